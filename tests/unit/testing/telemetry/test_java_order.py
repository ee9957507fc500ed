"""Tests of the order in which Java's hash collections iterate. The expected values are Java's."""

from __future__ import annotations

import pytest

from aiokclient.testing.broker.telemetry.java_order import (
    ConcurrentHashMap,
    java_string_hash,
    order_as_hash_set,
)

EXPECTED_ADDED = [
    "metric.9",
    "metric.64",
    "metric.4",
    "metric.16",
    "metric.49",
    "metric.100",
    "metric.25",
    "metric.36",
    "metric.121",
    "metric.1",
    "metric.0",
    "metric.81",
]
EXPECTED_COPIED = [
    "metric.9",
    "metric.4",
    "metric.16",
    "metric.49",
    "metric.25",
    "metric.36",
    "metric.1",
    "metric.0",
    "metric.64",
    "metric.100",
    "metric.121",
    "metric.81",
]
EXPECTED_MAP = [
    "s1073",
    "s111",
    "s370",
    "s74",
    "s703",
    "s37",
    "s666",
    "s962",
    "s925",
    "s407",
    "s629",
    "AaAa",
    "BBBB",
    "AaBB",
    "BBAa",
    "s222",
    "s185",
    "s481",
    "s777",
    "s999",
    "s851",
    "s333",
    "s259",
    "s555",
    "s518",
    "s814",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("Aa", 2112), ("BB", 2112), ("😀", 1772899)],
)
def test_string_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


COLLIDING = ["AaAa", "BBBB", "AaBB", "BBAa"]


def test_elements_of_one_bucket_keep_the_order_in_which_they_were_added() -> None:
    assert order_as_hash_set(COLLIDING) == COLLIDING
    assert order_as_hash_set(reversed(COLLIDING)) == COLLIDING[::-1]


def test_a_set_that_was_copied_from_a_collection_has_more_buckets() -> None:
    names = [f"metric.{number * number}" for number in range(12)]
    assert order_as_hash_set(names) == EXPECTED_ADDED
    assert order_as_hash_set(names, copied=True) == EXPECTED_COPIED


def test_a_growing_map_has_the_order_of_javas_concurrent_map() -> None:
    names: ConcurrentHashMap[int] = ConcurrentHashMap()
    for number in range(30):
        names[f"s{number * 37}"] = number
    for number in range(0, 30, 4):
        del names[f"s{number * 37}"]
    for text in COLLIDING:
        names[text] = 0
    assert list(names) == EXPECTED_MAP
    assert len(names) == len(EXPECTED_MAP)
