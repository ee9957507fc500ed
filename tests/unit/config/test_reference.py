"""Tests of the reference of options and of the other texts generated from their declarations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from option_reference import OptionEntry, describe

from aiokclient.config.admin import AdminConfig
from aiokclient.config.client import ClientConfig
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.config.producer import ProducerConfig
from aiokclient.config.share import ShareConsumerConfig
from aiokclient.group.options import GroupMemberConfig

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = (
    ClientConfig,
    ProducerConfig,
    ConsumerConfig,
    ShareConsumerConfig,
    AdminConfig,
    GroupMemberConfig,
)


def entry(config: type[ClientConfig], name: str) -> OptionEntry:
    return next(one for one in describe(config) if one.name == name)


def test_typed_dicts_are_as_the_declarations_have_them() -> None:
    command = [sys.executable, str(ROOT / ".ci/write-options"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("config", CONFIGS)
def test_every_option_has_a_text_of_complete_sentences(config: type[ClientConfig]) -> None:
    for one in describe(config):
        assert re.fullmatch(r"[A-Z0-9].{15,}[^ ]\.", one.text), one.name
        assert "  " not in one.text, one.name
        assert one.allowed, one.name
        assert one.type, one.name


def test_an_option_is_described_with_kafkas_name_and_default() -> None:
    linger = entry(ProducerConfig, "linger_ms")
    assert (linger.type, linger.default, linger.kafka_name) == ("int", "5", "linger.ms")
    assert linger.allowed == "an integer from 0 to 2147483647"
    assert (linger.in_java, linger.java_default, linger.shared) == (True, None, False)
    assert entry(ProducerConfig, "batch_size").java_default == "16384"
    assert entry(ProducerConfig, "key_serializer").java_default == "required"
    assert entry(ProducerConfig, "acks").type == "int | str"
    serializer = entry(ProducerConfig, "value_serializer")
    assert serializer.type == "Callable[[V], bytes] | Serializer[V] | None"
    assert not entry(ConsumerConfig, "new_partitions").in_java


def test_options_of_every_client_are_shared() -> None:
    assert all(one.shared for one in describe(ClientConfig))
    assert [one for one in describe(ConsumerConfig) if one.shared] == describe(ClientConfig)


def test_defaults_that_a_reader_could_not_interpret_are_described() -> None:
    assert entry(ProducerConfig, "acks").default == "'all'"
    assert entry(ConsumerConfig, "enable_auto_commit").default.startswith("True, unless")
