"""The meaning of each code: of a partition, and at the top level of an answer."""

import pytest

from aiokclient.errors import KafkaError, error_for
from aiokclient.share.session import (
    REOPENING,
    UNCOUNTED,
    PartitionOutcome,
    SessionOutcome,
    judge_partition,
    judge_session,
)

P, S = PartitionOutcome, SessionOutcome
PARTITION = {
    0: P.APPLIED,
    -1: P.REFUSED,
    3: P.MOVED,
    6: P.MOVED,
    7: P.AGAIN,
    14: P.AGAIN,
    15: P.AGAIN,
    29: P.FATAL,
    30: P.FATAL,
    42: P.REFUSED,
    74: P.MOVED,
    100: P.MOVED,
    121: P.INVALID,
    9999: P.REFUSED,
}
SESSION = {
    0: S.OPEN,
    -1: S.UNCLEAR,
    7: S.AGAIN,
    14: S.AGAIN,
    15: S.AGAIN,
    29: S.FATAL,
    30: S.FATAL,
    35: S.FATAL,
    42: S.REFUSED,
    122: S.ENDED,
    123: S.REOPENED,
    133: S.LIMITED,
    9999: S.UNCLEAR,
}


def make(code: int) -> KafkaError | None:
    return error_for(code) if code else None


@pytest.mark.parametrize("code", PARTITION)
def test_the_code_of_a_partition_has_its_meaning(code: int) -> None:
    assert judge_partition(make(code)) is PARTITION[code]


@pytest.mark.parametrize("code", SESSION)
def test_the_code_at_the_top_level_has_its_meaning(code: int) -> None:
    assert judge_session(make(code)) is SESSION[code]


def test_a_new_session_begins_unless_the_epoch_is_known() -> None:
    assert {*S} - REOPENING == {S.OPEN, S.REFUSED, S.FATAL}
    assert {S.REFUSED} == UNCOUNTED
