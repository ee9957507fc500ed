"""Tests of which pushes of a stream are accepted, late, or duplicates, across batches."""

from __future__ import annotations

from aiokclient.spark.telemetry.admission import ACCEPTED, BROKEN, DUPLICATE, LATE, Admission

SECOND = 1_000_000
ONE, TWO = b"1" * 16, b"2" * 16


def test_copy_is_a_duplicate_in_the_same_batch_and_in_a_later_one() -> None:
    admission = Admission(b"", 0)
    assert admission.decide_push(ONE, 5 * SECOND, None) == (ACCEPTED, None)
    assert admission.decide_push(ONE, 5 * SECOND, None)[0] == DUPLICATE
    later = Admission(admission.save_state(), 3 * SECOND)
    assert later.decide_push(ONE, 5 * SECOND, None)[0] == DUPLICATE
    assert later.decide_push(TWO, 5 * SECOND, None)[0] == ACCEPTED


def test_push_older_than_the_watermark_is_late_and_the_reason_says_by_how_much() -> None:
    status, reason = Admission(b"", 10 * SECOND).decide_push(ONE, 8 * SECOND, None)
    assert (status, reason) == (LATE, "The push is 2.000 s older than the watermark.")


def test_push_out_of_order_is_accepted_until_the_watermark() -> None:
    admission = Admission(b"", 10 * SECOND)
    assert admission.decide_push(ONE, 12 * SECOND, None)[0] == ACCEPTED
    assert admission.decide_push(TWO, 10 * SECOND, None)[0] == ACCEPTED


def test_state_forgets_what_would_be_late() -> None:
    admission = Admission(b"", 0)
    admission.decide_push(ONE, 5 * SECOND, None)
    admission.decide_push(TWO, 15 * SECOND, None)
    later = Admission(admission.save_state(), 10 * SECOND)
    assert len(later.save_state()) * 2 == len(admission.save_state())
    assert later.decide_push(ONE, 5 * SECOND, None)[0] == LATE


def test_late_push_is_not_remembered() -> None:
    admission = Admission(b"", 10 * SECOND)
    admission.decide_push(ONE, 8 * SECOND, None)
    assert admission.save_state() == b""


def test_broken_push_keeps_its_problem() -> None:
    admission = Admission(b"", 10 * SECOND)
    assert admission.decide_push(ONE, 8 * SECOND, "It is empty.") == (BROKEN, "It is empty.")
    assert admission.decide_push(ONE, None, None)[0] == BROKEN
