"""Tests of the offsets of a stream and of their JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.source.offsets import StreamOffsets, connector_offsets, load, parse

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)
WRITTEN = StreamOffsets(
    {"orders": "id-1", "payments": None}, {ORDERS: 12, PAYMENTS: 7}, {ORDERS: 10}
)


def test_the_json_names_topics_their_ids_and_the_next_offset_of_each_partition() -> None:
    assert WRITTEN.as_json() == {
        "version": 1,
        "topics": {
            "orders": {"id": "id-1", "offsets": {"0": 12}},
            "payments": {"id": None, "offsets": {"3": 7}},
        },
        "starts": {"orders": {"0": 10}},
    }


def test_the_initial_offset_is_told_from_resolved_offsets() -> None:
    document = StreamOffsets.beginning().as_json()
    assert document == {"version": 1, "initial": True}
    assert parse(document).initial
    assert not parse(WRITTEN.as_json()).initial


POSITIONS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b.c", "version"]), st.integers(0, 999)).map(
        lambda pair: TopicPartition(*pair)
    ),
    st.integers(0, 2**63 - 1),
)


@given(POSITIONS, st.data())
def test_what_is_written_is_read_again(
    offsets: dict[TopicPartition, int], data: st.DataObject
) -> None:
    ids = {tp.topic: data.draw(st.none() | st.text()) for tp in offsets}
    some = data.draw(st.sets(st.sampled_from(sorted(offsets)))) if offsets else set()
    written = StreamOffsets(ids, offsets, {tp: offsets[tp] for tp in some})
    assert parse(json.loads(json.dumps(written.as_json()))) == written


def test_the_text_does_not_depend_on_the_order_in_which_partitions_were_found() -> None:
    tps = [TopicPartition("t", number) for number in (10, 9, 1)]
    one = StreamOffsets({"t": "x"}, dict.fromkeys(tps, 1))
    other = StreamOffsets({"t": "x"}, dict.fromkeys(reversed(tps), 1))
    assert json.dumps(one.as_json()) == json.dumps(other.as_json())


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([1], "the document is [1], and must be an object"),
        ({"topics": {}}, "version is null, and must be the integer 1"),
        ({"version": True}, "version is true, and must be the integer 1"),
        ({"version": 0}, "version is 0, and must be the integer 1"),
        ({"version": 1}, "topics is null, and must be an object"),
        ({"version": 1, "initial": False}, "initial is false, and must be true"),
        ({"version": 1, "topics": {}, "more": 1}, "more is not known. The names there are version"),
        ({"version": 1, "topics": {"a": 5}}, "topics.a is 5, and must be an object"),
        ({"version": 1, "topics": {"a": {"id": 5}}}, "topics.a.id is 5, and must be a string"),
        ({"version": 1, "topics": {"a": {"id": "x", "offsets": {"0": "7"}}}}, 'offsets.0 is "7"'),
        ({"version": 1, "topics": {"a": {"id": "x", "offsets": {"0": -1}}}}, "offsets.0 is -1"),
        ({"version": 1, "topics": {"a": {"id": "x", "offsets": {"x": 1}}}}, 'offsets is "x", and'),
        ({"version": 1, "topics": {"a": {"offsets": {"9" * 5_000: 1}}}}, 'offsets is "9999'),
        ({"version": 1, "topics": {"a": {"offsets": {"0": 1 << 63}}}}, "offsets.0 is 9223372036"),
        ({"version": 1, "topics": {}, "starts": {"a": {"0": 1}}}, '"starts" has the partition a-0'),
        ({"version": 1, "topics": ["x" * 200]}, "xxx..., and must be an object"),
    ],
)
def test_a_wrong_document_is_refused_with_the_part_that_is_wrong(
    document: object, text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(document)
    assert text in str(raised.value)


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"version 2, .* versions up to 1\. Install the release"):
        parse({"version": 2, "anything": {}})


def test_offsets_of_the_connector_are_refused_with_the_command_that_converts_them() -> None:
    with pytest.raises(ConfigError, match=r"python -m aiokclient\.spark\.convert CHECKPOINT"):
        parse({"orders": {"0": 5}, "version": {"1": 7}})


def test_offsets_of_the_connector_are_told_from_others() -> None:
    assert connector_offsets({"orders": {"0": 5}}) == {ORDERS: 5}
    for other in (
        {"orders": {"0": -1}},
        {"orders": {"x": 1}},
        {"logOffset": 0},
        7,
        WRITTEN.as_json(),
    ):
        assert connector_offsets(other) is None


def test_text_that_is_not_json_is_reported_with_its_position() -> None:
    with pytest.raises(ConfigError) as raised:
        load('{"version": 1,\n "topics" {}}', "offsets/3")
    assert "offsets/3 is not JSON: Expecting ':' delimiter at line 2, column 11." in str(
        raised.value
    )
    assert raised.value.__context__ is None


@pytest.mark.parametrize("text", ["9" * 5_000, "[" * 200_000])
def test_a_text_with_a_number_or_a_depth_that_python_refuses_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="offsets/1 has a number or a depth that no offsets have"):
        load(text, "offsets/1")
