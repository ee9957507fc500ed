"""Tests of the queue of requests that a connection does not write yet."""

import asyncio

from aiokclient.network.connection import AwaitedRequest, CallbackRequest, PendingRequest
from aiokclient.network.flow import HeldRequests
from aiokclient.protocol.messages.metadata import MetadataRequest


def request(since: float = 0.0, timeout_s: float = 30.0) -> PendingRequest:
    return CallbackRequest(
        lambda response, error: None, MetadataRequest(topics=[]), 1, since, timeout_s, True
    )


def test_first_request_is_written_at_once_when_nothing_holds_it() -> None:
    held = HeldRequests()
    asked = request()
    assert held.hold_request(asked, 0.0) == 30.0
    assert held.take_next(0.0) is asked
    assert held.take_next(0.0) is None


def test_request_waits_for_the_end_of_the_throttle_time() -> None:
    held = HeldRequests()
    held.hold_until(10.0)
    held.hold_until(5.0)
    assert held.list_wake_times(0.0) == []
    asked, short = request(), request(timeout_s=3.0)
    assert held.hold_request(asked, 0.0) == 10.0
    assert held.hold_request(short, 0.0) == 3.0
    assert held.list_wake_times(0.0) == [30.0, 3.0, 10.0]
    assert held.list_wake_times(10.0) == [30.0, 3.0]
    assert held.take_next(9.9) is None
    assert held.hold_request(request(timeout_s=40.0), 10.0) == 40.0
    assert held.take_next(10.0) is asked


def test_requests_that_are_over_are_left_out() -> None:
    held = HeldRequests()
    over, asked = request(), request()
    over.over = True  # type: ignore[misc]
    held.hold_request(over, 0.0)
    held.hold_request(asked, 0.0)
    assert held.take_next(0.0) is asked


def test_nothing_is_written_until_each_reason_to_pause_has_ended() -> None:
    held = HeldRequests()
    assert not held.paused
    assert not held.suspended
    held.pause_writing(0.0)
    held.set_suspended(True)
    held.resume_writing()
    assert held.paused
    held.set_suspended(False)
    assert not held.paused
    held.set_suspended(True)
    held.pause_writing(0.0)
    held.set_suspended(False)
    assert held.paused
    held.resume_writing()
    assert not held.paused
    held.hold_request(request(), 0.0)
    held.pause_writing(0.0)
    assert held.take_next(0.0) is None


def test_requests_expire_at_their_deadlines() -> None:
    held = HeldRequests()
    early, late = request(timeout_s=1.0), request(timeout_s=2.0)
    held.hold_request(early, 0.0)
    held.hold_request(late, 0.0)
    assert held.take_expired(0.9) == []
    assert held.take_expired(1.0) == [early]
    assert list(held.requests) == [late]


def test_request_is_stuck_when_only_a_full_transport_has_held_it() -> None:
    held = HeldRequests()
    assert not held.is_stuck(request(since=5.0))
    held.pause_writing(5.0)
    assert held.is_stuck(request(since=5.0))
    assert not held.is_stuck(request(since=4.9))
    held.hold_until(6.0)
    assert not held.is_stuck(request(since=5.5))
    assert held.is_stuck(request(since=6.0))
    held.resume_writing()
    assert not held.is_stuck(request(since=7.0))


def made(kind: str, outcomes: list[object]) -> PendingRequest:
    if kind == "awaited":
        return AwaitedRequest(MetadataRequest(topics=[]), 1, 0.0, 30.0, True)
    return CallbackRequest(
        lambda response, error: outcomes.append((response, error)),
        MetadataRequest(topics=[]), 1, 0.0, 30.0, True,
    )  # fmt: skip


async def test_callback_gets_only_the_first_outcome() -> None:
    outcomes: list[object] = []
    asked = made("called", outcomes)
    assert not asked.over
    asked.deliver_response("response")
    assert asked.over
    assert outcomes == [("response", None)]
    asked.deliver_response("another")
    asked.on_written()
    await asyncio.sleep(0)
    assert outcomes == [("response", None)]
    other = made("called", outcomes)
    other.on_written()
    assert other.over
    assert len(outcomes) == 1  # It is called later.
    await asyncio.sleep(0)
    assert outcomes[1:] == [(None, None)]


async def test_future_gets_only_the_first_outcome() -> None:
    asked = made("awaited", [])
    assert isinstance(asked, AwaitedRequest)
    assert not asked.over
    asked.on_written()
    assert asked.over
    asked.deliver_response("another")
    assert await asked.future is None
    asked.restart_timeout(7.0)
    assert (asked.since, asked.deadline, asked.api) == (7.0, 37.0, "Metadata")
