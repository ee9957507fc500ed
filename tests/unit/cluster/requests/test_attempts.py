"""Tests of what the attempts of a call record: the last answer, silence, and refusals."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from typing import Any

import pytest

from aiokclient.cluster.requests.attempts import (
    UNANSWERED_S,
    CallAttempts,
    CallProgress,
    CallsInProgress,
    LastAnswer,
    PendingResponse,
    RefusalLog,
    is_refusal,
)
from aiokclient.cluster.targets import AnyBroker, Broker, Coordinator
from aiokclient.errors import (
    ApiTimeoutError,
    CoordinatorLoadInProgressError,
    DisconnectedError,
    GroupAuthorizationError,
    InvalidMetadataError,
    KafkaError,
    NotCoordinatorError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest

GROUP = Coordinator("group", "g")
API = ApiKey.OFFSET_COMMIT


class ManualClock:
    """A clock that a test sets."""

    rng = random.Random(1)

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 0


def caused(error: KafkaError, cause: BaseException) -> KafkaError:
    error.__cause__ = cause
    return error


def attempts(unanswered: set[asyncio.Future[Any]] | None = None) -> CallAttempts:
    retry = Attempts(200.0, Backoff(1.0, 8.0, jitter=0.0), ManualClock())
    return CallAttempts(
        ListGroupsRequest(), GROUP, Scope.CLIENT, Purpose.CONTROL, None,
        retry, 30.0, unanswered,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (NotCoordinatorError(), True),
        (DisconnectedError(), False),
        (ApiTimeoutError("There was no response."), False),
    ],
)
def test_refusal_is_an_error_that_a_broker_has_answered(error: KafkaError, refuses: bool) -> None:
    assert is_refusal(error) is refuses


def test_last_answer_is_not_replaced_by_silence() -> None:
    last = LastAnswer()
    first, lost, refused = ApiTimeoutError("a"), DisconnectedError(), NotCoordinatorError()
    kept = []
    for error in (first, lost, refused, DisconnectedError(), GroupAuthorizationError()):
        last.note_error(error)
        kept.append(last.error)
    assert kept[:4] == [first, lost, refused, refused]
    assert isinstance(kept[4], GroupAuthorizationError)


def test_last_answer_is_the_refusal_that_silence_has_as_its_cause() -> None:
    refused = NotCoordinatorError()
    for error, noted in [
        (silent := caused(ApiTimeoutError("a"), refused), refused),
        (other := caused(GroupAuthorizationError(), refused), other),
        (twice := caused(ApiTimeoutError("a"), DisconnectedError()), twice),
        (strange := caused(ApiTimeoutError("a"), OSError()), strange),
    ]:
        last = LastAnswer()
        last.note_error(error)
        assert last.error is noted, error
    assert silent.__cause__ is refused


def test_progress_is_silent_since_the_first_request_after_an_answer() -> None:
    progress = CallProgress(GROUP, API)
    assert (progress.sent_to, progress.silent_since) == (None, None)
    progress.note_request(1, 10.0)
    progress.note_failure(DisconnectedError())
    progress.note_request(2, 20.0)
    assert (progress.sent_to, progress.silent_since) == (2, 10.0)
    progress.note_failure(NotCoordinatorError())
    assert progress.silent_since is None
    assert isinstance(progress.last.error, NotCoordinatorError)
    progress.note_request(3, 30.0)
    assert progress.silent_since == 30.0
    progress.note_success()
    assert (progress.silent_since, progress.last.error) == (None, None)


def test_adopted_error_counts_as_one_of_an_attempt_that_was_sent() -> None:
    call = attempts()
    assert (call.was_sent, call.refusals, call.error) == (False, 0, None)
    error = NotCoordinatorError(broker=7)
    call.record_first_error(error)
    assert (call.was_sent, call.node_id, call.refusals) == (True, 7, 1)
    assert call.error is error
    assert call.cause is error


def test_error_gets_the_api_and_the_broker_of_the_attempt_unless_it_names_others() -> None:
    call = attempts()
    call.node_id = 3
    plain = DisconnectedError()
    call.record_error(plain)
    assert (plain.api, plain.broker, call.refusals) == ("ListGroups", 3, 0)
    named = NotCoordinatorError(api="FindCoordinator", broker=5)
    call.record_error(named)
    assert (named.api, named.broker, call.refusals) == ("FindCoordinator", 5, 1)
    call.record_error(GroupAuthorizationError())
    assert call.refusals == 2


@pytest.mark.parametrize("outcome", ["response", "error", "abandoned", "abandoned error"])
async def test_response_is_unanswered_until_it_arrives(outcome: str) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    unanswered: set[asyncio.Future[Any]] = set()
    call = attempts(unanswered)
    arriving: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(call.await_response(arriving))
    await asyncio.sleep(0)
    assert unanswered == {arriving}
    if outcome == "response":
        arriving.set_result(7)
        assert await waiting == 7
    elif outcome == "error":
        arriving.set_exception(DisconnectedError())
        with pytest.raises(DisconnectedError):
            await waiting
    else:
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not arriving.done(), "the broker may still answer"
        assert unanswered == {arriving}
        if outcome == "abandoned":
            arriving.cancel()
        else:
            arriving.set_exception(DisconnectedError())
        await asyncio.sleep(0)
    assert not unanswered
    del arriving, waiting
    gc.collect()
    await asyncio.sleep(0)
    assert not reported, "asyncio reports no error that nobody retrieved"


def test_cause_to_a_target_is_the_refusal_of_any_of_its_calls() -> None:
    calls = CallsInProgress(ManualClock())
    silent, refused, elsewhere = (CallProgress(to, API) for to in (GROUP, GROUP, AnyBroker()))
    for call in (silent, refused, elsewhere):
        calls.add_call(call)
    assert calls.find_cause(GROUP) is None
    elsewhere.note_failure(GroupAuthorizationError())
    assert calls.find_cause(GROUP) is None
    silent.note_failure(lost := DisconnectedError())
    assert calls.find_cause(GROUP) is lost
    try:
        raise NotCoordinatorError
    except NotCoordinatorError as error:
        refused.note_failure(error)
    found = calls.find_cause(GROUP)
    assert isinstance(found, NotCoordinatorError)
    assert found.__traceback__ is None
    calls.remove_call(refused)
    assert calls.find_cause(GROUP) is lost


def test_trouble_names_a_request_that_is_unanswered_or_refused() -> None:
    clock = ManualClock()
    calls = CallsInProgress(clock)
    others = [CallProgress(Broker(1), API), CallProgress(GROUP, ApiKey.HEARTBEAT)]
    call = CallProgress(GROUP, API)
    for each in (*others, call):
        calls.add_call(each)
    for other in others:
        other.note_request(1, 0.0)
    assert calls.find_trouble(GROUP, {API}) is None
    call.note_request(4, clock.now)
    clock.now += UNANSWERED_S - 0.5
    assert calls.find_trouble(GROUP, {API}) is None
    clock.now += 0.5
    assert calls.find_trouble(GROUP, {API}) == "broker 4 has not answered OffsetCommit for 2 s"
    call.note_failure(NotCoordinatorError("The broker moved."))
    text = calls.find_trouble(GROUP, {API})
    assert text is not None
    assert text.startswith("the last error of OffsetCommit: ")
    assert not text.endswith(".")


@pytest.mark.parametrize(
    ("error", "times", "lines"),
    [
        (NotCoordinatorError(api="Heartbeat"), 5, 1),
        (NotCoordinatorError(api="Heartbeat"), 4, 0),
        (DisconnectedError(api="Heartbeat"), 5, 0),
        (None, 5, 0),
    ],
)
def test_refusal_is_logged_when_it_has_been_repeated(
    caplog: pytest.LogCaptureFixture, error: KafkaError | None, times: int, lines: int
) -> None:
    caplog.set_level(logging.WARNING, logger="aiokclient")
    log = RefusalLog(ClientLog("aiokclient", "c", None), ManualClock())
    log.log_refusal(error, times)
    assert len(caplog.records) == lines
    log.log_refusal(CoordinatorLoadInProgressError(api="Heartbeat"))
    assert len(caplog.records) == lines + 1, "each kind of refusal has its own line"


def test_adopted_error_without_a_broker_id_names_no_broker() -> None:
    call = attempts()
    call.record_first_error(InvalidMetadataError("x", broker="kafka-1:9092"))
    assert call.node_id is None


async def test_callback_gets_the_handle_when_the_response_arrives() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    handle: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    handle.add_done_callback(called.append)
    assert not handle.done()
    future.set_result("response")
    assert handle.done()
    assert await handle == "response"
    await asyncio.sleep(0)
    assert called == [handle]
    handle.add_done_callback(called.append)
    await asyncio.sleep(0)
    assert called == [handle, handle]


async def test_removed_callback_is_not_called() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    handle: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    kept: list[Any] = []
    handle.add_done_callback(called.append)
    handle.add_done_callback(kept.append)
    handle.add_done_callback(called.append)
    assert handle.remove_done_callback(called.append) == 2
    assert handle.remove_done_callback(called.append) == 0
    future.set_result("response")
    await asyncio.sleep(0)
    assert (called, kept) == ([], [handle])


async def test_callback_of_another_handle_is_not_removed() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    one: PendingResponse[Any] = PendingResponse(future)
    other: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    one.add_done_callback(called.append)
    assert other.remove_done_callback(called.append) == 0
    future.set_result("response")
    await asyncio.sleep(0)
    assert called == [one]


async def test_callback_that_cannot_be_called_is_refused() -> None:
    handle: PendingResponse[Any] = PendingResponse(asyncio.get_running_loop().create_future())
    with pytest.raises(TypeError, match="takes a function of one response"):
        handle.add_done_callback("text")  # type: ignore[arg-type]
