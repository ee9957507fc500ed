"""The names of aiokafka and kafka-python: each exists here, or says what to use instead."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import aiokclient
from aiokclient import Admin, Consumer, Producer, TopicPartition, errors
from aiokclient.admin import AclOperation
from aiokclient.config.admin import AdminConfig
from aiokclient.config.client import ClientConfig
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.config.producer import ProducerConfig
from aiokclient.log.foreign_names import ATTRIBUTES
from aiokclient.log.hints import option_hint
from aiokclient.log.hints.error_names import _ABSENT, _MORE, _RENAMED

SERVERS = "localhost:9092"
TP = TopicPartition("orders", 0)
PEERS = [name for name in ("aiokafka", "kafka") if find_spec(name) is not None]
"""The other clients that are installed. The tests also run without them."""


def public(module: str) -> Iterator[tuple[str, Any]]:
    for name, value in vars(import_module(module)).items():
        if not name.startswith("_"):
            yield name, value


def error_names() -> Iterator[str]:
    for peer in PEERS:
        for name, value in public(f"{peer}.errors"):
            if isinstance(value, type) and issubclass(value, Exception):
                yield name


def import_error(module: str, name: str) -> str:
    with pytest.raises(ImportError) as caught:
        exec(f"from {module} import {name}")
    return str(caught.value)


def test_every_error_of_other_clients_exists_or_has_a_hint() -> None:
    missing = sorted({*error_names()} - {*errors.__all__})
    for name in missing:
        for module in ("aiokclient", "aiokclient.errors"):
            assert "of another client" in import_error(module, name), name
        assert not hasattr(errors, name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KafkaConnectionError", "import NetworkError. A start without a broker raises Bootstrap"),
        ("ConsumerStoppedError", "import ClosedError"),
        ("ProducerFenced", "import ProducerFencedError"),
        ("IllegalOperation", "import IllegalStateError"),
        ("MessageSizeTooLargeError", "import RecordTooLargeError"),
        ("TopicAlreadyExistsError", "import TopicExistsError. It is a value of the Results"),
        ("TopicExistsException", "import TopicExistsError"),  # Java
        ("TimeoutException", "import KafkaTimeoutError"),
        ("ProduceError", "import KafkaError"),  # confluent-kafka
        ("InvalidTxnState", "import InvalidTxnStateError"),
        ("NoError", "does not exist here. Code 0 is success"),
        ("for_code", "import error_for"),
    ],
)
def test_importing_an_error_of_another_client_says_what_to_import(name: str, text: str) -> None:
    assert text in import_error("aiokclient.errors", name)
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(errors, name)


def test_importing_an_error_from_the_package_says_where_it_is() -> None:
    text = import_error("aiokclient", "RecordTooLargeError")
    assert text == (
        "RecordTooLargeError is in aiokclient.errors. "
        "Write: from aiokclient.errors import RecordTooLargeError"
    )


def test_an_unknown_error_gets_no_hint() -> None:
    for module in ("aiokclient", "aiokclient.errors", "aiokclient.admin", "aiokclient.structs"):
        assert "cannot import name 'FrobnicatedError'" in import_error(module, "FrobnicatedError")
    assert not hasattr(errors, "Error")


def test_hints_about_errors_name_errors_that_exist() -> None:
    assert {*_RENAMED.values()} <= {*errors.__all__}
    assert not {*_ABSENT} & {*_RENAMED}
    texts = " ".join((*_MORE.values(), *_ABSENT.values()))
    named = {*re.findall(r"\b[A-Z]\w+Error\b", texts)} - {"CancelledError", "TypeError"}
    assert named - {"ValueError"} <= {*errors.__all__}
    hidden = [name for name in errors.__all__ if name.removesuffix("Error") in _ABSENT]
    assert hidden == []


@pytest.mark.parametrize("name", ["AIOKafkaAdminClient", "RecordsToDelete"])
def test_importing_a_class_of_aiokafka_from_the_admin_package_has_a_hint(name: str) -> None:
    assert "from aiokclient import Admin" in import_error("aiokclient.admin", name)
    exec(
        "from aiokclient.admin import AclOperation as found; assert found is expected",
        {"expected": AclOperation},
    )


def test_every_name_of_the_module_structs_of_other_clients_has_a_hint() -> None:
    names = {"TopicPartition", "OffsetAndMetadata", "ConsumerRecord"}
    for peer in PEERS:
        exported = getattr(import_module(f"{peer}.structs"), "__all__", ())
        names |= {*exported} if peer == "aiokafka" else set()
    for name in sorted(names):
        assert f"{name} is in another module here. " in import_error("aiokclient.structs", name)
    assert not hasattr(import_module("aiokclient.structs"), "frobnicate")


def test_every_method_and_option_of_aiokafka_exists_or_has_a_hint() -> None:
    peer = pytest.importorskip("aiokafka")
    admin = import_module("aiokafka.admin")
    pairs: list[tuple[type, Any, type[ClientConfig]]] = [
        (peer.AIOKafkaConsumer, Consumer, ConsumerConfig),
        (peer.AIOKafkaProducer, Producer, ProducerConfig),
        (admin.AIOKafkaAdminClient, Admin, AdminConfig),
    ]
    unknown = []
    for theirs, ours, config in pairs:
        for name in dir(theirs):
            if name[0] != "_" and not hasattr(ours, name):
                hint = ATTRIBUTES[ours.__name__].get(name)
                unknown += [] if hint else [f"{ours.__name__}.{name}"]
        names = {*inspect.signature(theirs).parameters} - {"topics"}
        options = {*config.declarations}
        unknown += [name for name in names - options if option_hint(name) is None]
    assert unknown == []


@pytest.mark.parametrize(
    ("make", "call", "text"),
    [
        (
            Consumer,
            lambda consumer: consumer.subscribe(pattern="orders.*"),
            "Pass a compiled pattern as the first argument: subscribe(re.compile(...))",
        ),
        (Consumer, lambda consumer: consumer.pause(TP, TP), "pause([TopicPartition(...), ...])"),
        (Consumer, lambda consumer: consumer.resume(TP, TP), "resume([TopicPartition(...), ...])"),
        (Consumer, lambda consumer: consumer.seek_to_end(TP, TP), "seek_to_end([TopicPartition("),
        (Consumer, lambda consumer: consumer.pause(TP), "Write [TopicPartition(topic, number)]"),
    ],
)
def test_arguments_of_another_client_say_what_to_write(
    make: Any, call: Callable[[Any], Any], text: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        call(make(bootstrap_servers=SERVERS))


async def test_arguments_of_another_client_in_a_coroutine_say_what_to_write() -> None:
    consumer = Consumer(bootstrap_servers=SERVERS, group_id="g")
    with pytest.raises(TypeError, match=r"Pass a list of partitions, \[TopicPartition"):
        await consumer.committed(partition=TP)  # type: ignore[call-arg]
    admin: Any = Admin(bootstrap_servers=SERVERS)
    with pytest.raises(TypeError, match=r"Write timeout=, in seconds\.$"):
        await admin.create_topics([], timeout_ms=1000)


def test_a_type_error_of_the_application_gets_no_hint() -> None:
    class Names:
        def __iter__(self) -> Iterator[str]:
            raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        Consumer(bootstrap_servers=SERVERS).subscribe(Names())


def test_timestamp_ms_of_a_send_says_that_the_argument_is_timestamp() -> None:
    producer: Any = Producer(bootstrap_servers=SERVERS)
    with pytest.raises(TypeError) as caught:
        producer.send("orders", b"tea", timestamp_ms=1)
    assert "unexpected keyword argument 'timestamp_ms'" in str(caught.value)
    # Before Python 3.13, calls of the pure modules have no suggestions.
    if aiokclient.native or sys.version_info >= (3, 13):
        assert re.search(r"Write timestamp=|Did you mean 'timestamp'", str(caught.value))
