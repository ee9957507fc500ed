"""Reading and writing records with the schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registry_stub import RegistryStub, StubThread

from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "item", "type": "string"},
            {"name": "raw", "type": "bytes", "default": ""},
            {"name": "at", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        ],
    }
)
PROTO = 'syntax = "proto3"; package shop; message Other {} message Order { string item_name = 1; }'
JSON = '{"type": "object", "properties": {"item": {"type": "string"}}}'
FULL = ("consume", "orders", "-o", "start", "--until", "end")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with StubThread() as stub:
        yield stub


@pytest.fixture
def run(
    run_on: Callable[[str], Run],
    cluster: EmbeddedCluster,
    stub: RegistryStub,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Return a function that types a command for the cluster and the registry."""
    monkeypatch.setenv("AIOKCLIENT_SCHEMA_REGISTRY_URL", stub.url)
    return run_on(cluster.bootstrap_servers)


@pytest.fixture
def register(run: Run, tmp_path: Path) -> Callable[[str, str, str], None]:
    """Return a function that registers a schema."""

    def register_schema(subject: str, schema_type: str, text: str) -> None:
        file = tmp_path / "schema"
        file.write_text(text)
        done = run("schemas", "register", subject, str(file), "--type", schema_type)
        assert done.code == 0, done.err

    return register_schema


@pytest.mark.parametrize(
    ("name", "schema_type", "text", "typed", "shown"),
    [
        (
            "avro",
            "AVRO",
            AVRO,
            '{"item":"tea","raw":{"base64":"/w=="}}',
            {"item": "tea", "raw": {"base64": "/w=="}, "at": "1970-01-01"},
        ),
        ("avro", "AVRO", '"string"', "just tea", "just tea"),
        ("json-schema", "JSON", JSON, '{"item":"té"}', {"item": "té"}),
        ("protobuf", "PROTOBUF", PROTO, "{}", {}),
        ("protobuf:shop.Order", "PROTOBUF", PROTO, '{"item_name":"x"}', {"item_name": "x"}),
    ],
)
def test_records_are_written_and_read_with_a_schema(
    name: str,
    schema_type: str,
    text: str,
    typed: str,
    shown: Any,
    run: Run,
    register: Callable[[str, str, str], None],
    cluster: EmbeddedCluster,
) -> None:
    register("orders-value", schema_type, text)
    done = run("produce", "orders", "--value-format", name, typed=f"{typed}\n")
    assert (done.code, done.err) == (0, "")
    (record,) = cluster.records("orders")
    assert record.value is not None
    assert record.value[:5] == b"\x00\x00\x00\x00\x01"
    for form in (name, "auto"):
        (line,) = run(*FULL, "--value-format", form, "--jsonl").out.splitlines()
        assert json.loads(line)["value"] == shown
    plain = run(*FULL, "--value-format", name).out
    assert plain == f"{json.dumps(shown, ensure_ascii=False, separators=(',', ':'))}\n"


def test_auto_leaves_what_has_no_schema_and_grep_searches_what_was_decoded(
    run: Run, register: Callable[[str, str, str], None], cluster: EmbeddedCluster
) -> None:
    register("orders-value", "AVRO", '"string"')
    unknown = b"\x00\x00\x00\x00\x63\x02a"
    cluster.produce("orders", [b"\x00\x00\x00\x00\x01\x02a", b"plain", unknown], partition=0)
    done = run(*FULL, "--value-format", "auto", "--jsonl")
    values = [json.loads(line)["value"] for line in done.out.splitlines()]
    assert values == ["a", "plain", unknown.decode()]
    assert run(*FULL, "--value-format", "auto", "--grep", 'v:^"a"').out == '"a"\n'


def test_record_that_does_not_match_is_an_error_or_skipped(
    run: Run, register: Callable[[str, str, str], None], cluster: EmbeddedCluster
) -> None:
    register("orders-value", "AVRO", '"string"')
    cluster.produce("orders", [b"no schema", b"\x00\x00\x00\x00\x01\x02a"], partition=0)
    refused = run(*FULL, "--value-format", "avro")
    assert refused.code == 1
    assert "offset 0 cannot be decoded" in refused.err
    skipped = run(*FULL, "--value-format", "avro", "--skip-errors")
    assert (skipped.code, skipped.out) == (0, '"a"\n')


def test_line_that_a_schema_does_not_allow_ends_the_input(
    run: Run, register: Callable[[str, str, str], None], cluster: EmbeddedCluster
) -> None:
    register("orders-value", "JSON", JSON)
    typed = '{"item":"tea"}\n{"item":1}\n{"item":"late"}\n'
    done = run("produce", "orders", "--value-format", "json-schema", typed=typed)
    assert done.code == 1
    assert "1 of 1 record was acknowledged" in done.err
    assert "at item" in done.err
    assert len(cluster.records("orders")) == 1


def test_keys_have_a_subject_of_their_own(
    run: Run, register: Callable[[str, str, str], None], cluster: EmbeddedCluster
) -> None:
    register("orders-key", "AVRO", '"long"')
    words = ("produce", "orders", "--key-format", "avro", "-K", ":")
    assert run(*words, typed="7:tea\n").code == 0
    (record,) = cluster.records("orders")
    assert (record.key, record.value) == (b"\x00\x00\x00\x00\x01\x0e", b"tea")
    assert run(*FULL, "--key-format", "avro", "-f", r"%k=%s\n").out == "7=tea\n"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("produce", "orders", "--value-format", "avro"), 3, "SUBJECT_NOT_FOUND"),
        (("produce", "orders", "--value-format", "text"), 2, "no format of a schema"),
        (("produce", "orders", "--value-format", "auto"), 2, "not written as auto"),
        (("consume", "orders", "--value-format", "avro:Order"), 2, "no format of a schema"),
        (("consume", "orders", "-f", "%s{avro}"), 2, "needs a registry"),
    ],
)
def test_wrong_use_of_schemas_is_refused(words: Any, code: int, why: str, run: Run) -> None:
    done = run(*words, typed="{}\n")
    assert done.code == code, done.err
    assert why in done.err


def test_schemas_need_a_registry(run_on: Callable[[str], Run], cluster: EmbeddedCluster) -> None:
    done = run_on(cluster.bootstrap_servers)("consume", "orders", "--value-format", "avro")
    assert done.code == 2
    assert "No schema registry is known" in done.err
