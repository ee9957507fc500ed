"""Tests of when a subject may be requested again."""

import random

import pytest

from aiokclient.cluster.metadata.pacing import Pacing
from aiokclient.policy import Backoff

STEADY = Backoff(initial_s=1.0, maximum_s=8.0, jitter=0.0)


def pacing() -> Pacing:
    return Pacing(STEADY, random.Random(1))


def test_subject_may_be_requested_at_once_when_it_never_was() -> None:
    assert pacing().earliest("t") == 0.0


def test_delay_grows_up_to_the_maximum_while_responses_bring_nothing_new() -> None:
    found, now, delays = pacing(), 100.0, []
    for _ in range(6):
        found.asked("t", now, settled=False)
        delays.append(found.earliest("t") - now)
        now = found.earliest("t")
    assert delays == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_subjects_have_delays_of_their_own() -> None:
    found = pacing()
    found.asked("t", 100.0, settled=False)
    found.asked("t", 101.0, settled=False)
    found.asked("u", 101.0, settled=False)
    assert (found.earliest("t"), found.earliest("u")) == (103.0, 102.0)


def test_delay_begins_again_when_a_response_was_new() -> None:
    found = pacing()
    for now in (100.0, 101.0, 103.0):
        found.asked("t", now, settled=False)
    found.asked("t", 107.0, settled=True)
    assert found.earliest("t") <= 107.0
    found.asked("t", 107.0, settled=False)
    assert found.earliest("t") == 108.0


def test_delay_begins_again_when_the_subject_was_forgotten() -> None:
    found = pacing()
    for now in (100.0, 101.0, 103.0):
        found.asked("t", now, settled=False)
    found.forget("t")
    assert found.earliest("t") <= 103.0
    found.asked("t", 103.0, settled=False)
    assert found.earliest("t") == 104.0


@pytest.mark.parametrize(("later", "delay"), [(8.0, 4.0), (8.1, 1.0)])
def test_delay_begins_again_when_the_last_request_was_long_ago(later: float, delay: float) -> None:
    found = pacing()
    for now in (100.0, 101.0):
        found.asked("t", now, settled=False)
    now = found.earliest("t") + later
    found.asked("t", now, settled=False)
    assert found.earliest("t") - now == pytest.approx(delay)


def test_subjects_that_are_no_longer_requested_take_no_memory() -> None:
    found = pacing()
    for number in range(5_000):
        found.asked(f"t{number}", 20.0 * number, settled=False)
    assert len(found._next) <= 1_001
    found.asked("t4999", 20.0 * 4_999 + 1, settled=False)
    assert found.earliest("t4999") == 20.0 * 4_999 + 3, "a recent subject keeps its delay"
