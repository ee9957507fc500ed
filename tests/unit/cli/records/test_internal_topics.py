"""Records of internal topics are decoded, and stay bytes if they do not fit."""

from __future__ import annotations

import struct
from typing import Any

from aiokclient import ConsumerRecord
from aiokclient.cli.records.internal_topics import decode_record


def decode(topic: str, key: bytes | None, value: bytes | None) -> Any:
    record: Any = ConsumerRecord(topic, 0, 0, 0, 0, key, value)  # type: ignore[arg-type]
    return decode_record(record)


def text(content: str) -> bytes:
    return struct.pack(">h", len(content)) + content.encode()


def compact(content: str) -> bytes:
    return bytes([len(content) + 1]) + content.encode()


COMMIT = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 3)
COMMIT_KEY = {"type": "offset_commit", "group": "g", "topic": "t", "partition": 3}


def test_offsets_of_all_versions_are_decoded() -> None:
    old = struct.pack(">hq", 1, 5) + text("m") + struct.pack(">qq", 7, 8)
    assert decode("__consumer_offsets", COMMIT, old) == (
        COMMIT_KEY,
        {
            "version": 1,
            "offset": 5,
            "metadata": "m",
            "commit_timestamp": 7,
            "expire_timestamp": 8,
        },
    )
    new = struct.pack(">hqi", 4, 5, -1) + compact("m") + struct.pack(">q", 7) + b"\0"
    assert decode("__consumer_offsets", COMMIT, new)[1] == {
        "version": 4,
        "offset": 5,
        "leader_epoch": -1,
        "metadata": "m",
        "commit_timestamp": 7,
        "topic_id": None,
    }
    unknown_tag = new[:-1] + b"\x01\x09\x02ab"
    assert decode("__consumer_offsets", COMMIT, unknown_tag)[1]["offset"] == 5
    assert decode("__consumer_offsets", COMMIT, None) == (COMMIT_KEY, None)


def test_transactions_are_decoded() -> None:
    key = struct.pack(">h", 0) + text("tx")
    partitions = b"\x02" + compact("t") + b"\x03" + struct.pack(">ii", 0, 1) + b"\0"
    value = (
        struct.pack(">hqhib", 1, 9, 2, 60_000, 4)
        + partitions
        + struct.pack(">qq", 11, 10)
        + b"\x01\x00\x08"
        + struct.pack(">q", 8)
    )
    assert decode("__transaction_state", key, value) == (
        {"type": "transaction", "transactional_id": "tx"},
        {
            "version": 1,
            "producer_id": 9,
            "previous_producer_id": 8,
            "next_producer_id": -1,
            "producer_epoch": 2,
            "transaction_timeout_ms": 60_000,
            "state": "complete_commit",
            "partitions": [{"topic": "t", "partition_ids": [0, 1]}],
            "last_update_timestamp": 11,
            "start_timestamp": 10,
            "client_transaction_version": 0,
        },
    )


def test_updates_of_share_groups_are_decoded() -> None:
    key = struct.pack(">h", 1) + text("g") + bytes(16) + struct.pack(">i", 2)
    batch = struct.pack(">qqbh", 5, 6, 2, 1) + b"\0"
    value = struct.pack(">hiiq", 0, 1, 2, 5) + b"\x02" + batch + b"\0"
    key_item, value_item = decode("__share_group_state", key, value)
    assert key_item == {
        "type": "share_update",
        "group": "g",
        "topic_id": "A" * 22,
        "partition": 2,
    }
    assert value_item["state_batches"] == [
        {"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}
    ]


def test_what_does_not_fit_stays_as_it_is() -> None:
    topic = "__consumer_offsets"
    assert decode("orders", COMMIT, b"v") is None
    assert decode(topic, None, b"v") == (None, "v")
    assert decode(topic, b"\x00\x63k", b"\xff") == ("\x00ck", {"base64": "/w=="})
    assert decode(topic, COMMIT + b"x", b"v")[1] == "v"
    for wrong in (
        b"",
        b"\0",
        struct.pack(">h", 99),
        struct.pack(">hqi", 4, 5, -1),
        b"\x00\x03" * 40,
    ):
        key, value = decode(topic, COMMIT, wrong)
        assert key == COMMIT_KEY
        assert not (isinstance(value, dict) and "version" in value)
