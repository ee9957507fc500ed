"""One properties file for a producer, a consumer, an admin, a client, and a member of a group."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, GroupMember, GroupProtocol, Producer
from aiokclient.errors import ConfigError
from aiokclient.testing import EmbeddedCluster

SHARED = """
client.id=shared
request.timeout.ms=20000
acks=all
linger.ms=5
retries=2147483647
key.serializer=org.apache.kafka.common.serialization.StringSerializer
session.timeout.ms=45000
group.id=readers
auto.offset.reset=earliest
fetch.min.bytes=1
"""
OPTIONS: dict[type[Any], dict[str, str]] = {
    Producer: {"acks": "all", "linger.ms": "5"},
    Consumer: {"session.timeout.ms": "45000", "group.id": "readers", "fetch.min.bytes": "1"},
    Admin: {},
    Client: {},
}
EVERY = {name: value for options in OPTIONS.values() for name, value in options.items()}
SERVERS = {"bootstrap.servers": "b:9092", "client.id": "shared"}


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_of_other_kinds_are_ignored_with_one_line(
    kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokclient")
    made = kind.from_properties({**SERVERS, **EVERY})
    for name, value in OPTIONS[kind].items():
        assert str(getattr(made._config, name.replace(".", "_"))).lower() in (value, "-1")
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("INFO", "options_ignored")  # type: ignore[attr-defined]
    ignored = record.getMessage().partition("are ignored: ")[2].split(", ")
    assert set(ignored) == EVERY.keys() - OPTIONS[kind].keys()
    caplog.clear()
    kind.from_properties({**SERVERS, **OPTIONS[kind]})
    assert not caplog.records


def test_options_of_other_kinds_are_ignored_for_a_member_of_a_group() -> None:
    class Nothing(GroupProtocol):
        name = "nothing"

    options = {**SERVERS, **EVERY, "protocol.type": "t"}
    made = GroupMember.from_properties(options, protocols=[Nothing()])
    assert made._config.session_timeout_ms == 45_000


async def test_a_java_file_that_several_clients_share_works(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        shared = SHARED.replace("key.serializer", "partitioner.class")
        path.write_text(f"bootstrap.servers={cluster.bootstrap_servers}\n{shared}")
        lines = path.read_text().splitlines()
        with pytest.raises(ConfigError, match=r"retries is not an option here"):
            Producer.from_properties(path)
        async with (
            Consumer.from_properties(path, enable_auto_commit=False) as consumer,
            Client.from_properties(path),
        ):
            consumer.subscribe(["t"])
            of_producers = [line for line in lines if line.split("=")[0] not in ("retries",)]
            path.write_text("\n".join(of_producers).replace("partitioner.class", "#"))
            async with Producer.from_properties(path) as producer:
                await producer.send("t", b"x")
            record = await consumer.get(timeout=30)
            assert record is not None
            assert record.value == b"x"


@pytest.mark.parametrize("name", ["linger.mss", "linger_ms", "schema.registry.url", "groupid"])
def test_names_that_no_kind_of_client_has_are_still_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Consumer.from_properties({**SERVERS, name: "5"})


@pytest.mark.parametrize("kind", [Consumer, Admin])
def test_options_of_other_kinds_are_still_refused_as_keyword_arguments(kind: type[Any]) -> None:
    with pytest.raises(ConfigError, match=r"linger_ms is not .* but of a Producer"):
        kind(bootstrap_servers="b:9092", linger_ms=5)


def test_an_error_about_very_many_names_is_short_and_soon_there() -> None:
    source = {f"no.such.option.{number}.{'x' * 400}": "1" for number in range(20_000)}
    with pytest.raises(ConfigError) as raised:
        Consumer.from_properties({**SERVERS, **source})
    assert len(str(raised.value)) < 20_000
    assert "and 19950 more" in str(raised.value)
    assert len(raised.value.problems) == 20_000
    with pytest.raises(ConfigError) as raised:
        Consumer(bootstrap_servers="b:9092", **{name.replace(".", "_"): 1 for name in source})  # type: ignore[misc]
    assert len(str(raised.value)) < 20_000


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10_000_000)
    with pytest.raises(ConfigError, match="not one of properties"):
        Consumer.from_properties(path)


@pytest.mark.parametrize("path", ["a\0b", "caf\udce9", "x" * 5_000])
def test_a_path_that_cannot_be_opened_is_a_config_error(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        Consumer.from_properties(path)
    assert len(str(raised.value)) < 400


def test_a_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(ConfigError) as raised:
        Consumer.from_properties({**SERVERS, "fetch.min.bytes": "9" * 100_000})
    assert len(str(raised.value)) < 500
