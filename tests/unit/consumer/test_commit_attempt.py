"""Tests of the result of one commit for each of its offsets."""

import random
from typing import Any

import pytest

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.consumer.membership.offsets.attempt import CommitAttempt
from aiokclient.errors import CommitFailedError, RequestTimedOutError
from aiokclient.policy import Backoff, Retry

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
OFFSETS = {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6), T2: OffsetAndMetadata(7)}


class Clock:
    rng = random.Random(1)

    def monotonic(self) -> float:
        return 0.0


def attempt(attempts: float = 3) -> CommitAttempt:
    clock: Any = Clock()
    retry = Retry(10.0, Backoff(0.1, 1.0), clock)
    held = dict.fromkeys(OFFSETS)
    return CommitAttempt(1, OFFSETS, held, retry, attempts=attempts, rising=False)


def test_each_partition_goes_one_way() -> None:
    commit, error = attempt(), CommitFailedError(partitions=[T1])
    assert commit.stored(T0) == 5
    commit.refuse(T1, error)
    assert not commit.is_done()
    commit.superseded(T2)
    assert commit.is_done()
    assert commit.refused == {T1: error}
    for way in (commit.stored, commit.superseded, lambda tp: commit.refuse(tp, error)):
        with pytest.raises(KeyError):
            way(T0)


def test_what_failed_is_refused_when_there_are_no_more_attempts() -> None:
    commit, first, last = attempt(2), RequestTimedOutError(), RequestTimedOutError()
    commit.again(first)
    commit.attempted()
    assert (list(commit.left), commit.refused) == ([T0, T1, T2], {})
    commit.stored(T0)
    commit.again(last)
    commit.attempted()
    assert (commit.is_done(), commit.refused) == (True, {T1: last, T2: last})


def test_offsets_of_the_caller_are_not_changed() -> None:
    commit = attempt()
    commit.stored(T0)
    commit.refused[T1] = RequestTimedOutError()
    assert len(OFFSETS) == 3
    assert commit.refused == {}
