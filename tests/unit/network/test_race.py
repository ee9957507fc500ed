"""Tests of the order in which the addresses of a name are tried, and of their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import aiokclient.network.diagnosis as diagnosis
from aiokclient.errors import ConnectionSetupError, DisconnectedError
from aiokclient.network import setup as setups
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.setup import AddressRace, ConnectionSetup, alternate
from aiokclient.network.transport import Address
from aiokclient.testing.simulation.loop import VirtualLoop


@pytest.mark.parametrize(
    ("given", "tried"),
    [
        ([], []),
        (["::1", "::2", "10.0.0.1"], ["::1", "10.0.0.1", "::2"]),
        (["10.0.0.1", "10.0.0.2", "::1", "::2"], ["10.0.0.1", "::1", "10.0.0.2", "::2"]),
        (["10.0.0.1", "10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_families_alternate(given: list[str], tried: list[str]) -> None:
    assert alternate((host, 1) for host in given) == [(host, 1) for host in tried]


class Setup(ConnectionSetup):
    """A setup whose connections a function of the test makes."""

    def __init__(self, connect: Callable[[Address], Awaitable[BrokerConnection]]) -> None:
        self.connect_address = connect  # type: ignore[method-assign]


async def lost(*errors: DisconnectedError) -> DisconnectedError:
    """Return the error of a race in which each address fails with one of these errors."""
    left = dict(zip([("::1", 1), ("10.0.0.1", 1), ("10.0.0.2", 1)], errors, strict=False))

    async def connect(address: Address) -> BrokerConnection:
        raise left[address]

    race = AddressRace(left, Setup(connect))
    assert await race.find_winner() is None
    return race.make_failure("kafka:1", 7)


async def test_error_names_each_address_with_its_outcome() -> None:
    error = await lost(
        diagnosis.TimedOutError("kafka:1 ([::1]) did not accept a connection within 10.0 s."),
        diagnosis.NotConnectedError("kafka:1 (10.0.0.1): Connection refused."),
        DisconnectedError("The broker closed the connection."),
    )
    assert error.message == (
        "kafka:1 cannot be used at any of its 3 addresses. "
        "[::1] did not accept a connection within 10.0 s. 10.0.0.1: Connection refused. "
        "10.0.0.2: The broker closed the connection."
    )
    assert type(error) is diagnosis.TimedOutError
    assert error.broker == 7


async def test_error_of_one_address_is_unchanged() -> None:
    refused = diagnosis.NotConnectedError("kafka:1 ([::1]): Connection refused.")
    assert await lost(refused) is refused


async def test_wrong_broker_is_reported_even_if_other_addresses_fail_later() -> None:
    wrong, refused = diagnosis.wrong_broker(7, "kafka:1"), diagnosis.NotConnectedError("refused")
    assert type(await lost(wrong, refused)) is diagnosis.WrongBrokerError


FIRST, SECOND, THIRD = ("::1", 1), ("10.0.0.1", 1), ("::2", 1)


@pytest.fixture
def immediate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each attempt right after the previous one."""
    monkeypatch.setattr(setups, "STAGGER_S", 0)


@pytest.mark.usefixtures("immediate")
async def test_attempt_in_progress_wins_after_another_address_was_misconfigured() -> None:
    misconfigured = asyncio.Event()

    async def connect(address: Address) -> BrokerConnection:
        if address == SECOND:
            misconfigured.set()
            raise ConnectionSetupError("a certificate that is not accepted")
        await misconfigured.wait()
        return BrokerConnection(1, "kafka", 1, client_id="test")

    won = await AddressRace([FIRST, SECOND], Setup(connect)).find_winner()
    assert won is not None
    assert won[0] == FIRST


async def test_no_attempt_begins_after_an_address_was_misconfigured() -> None:
    tried: list[Address] = []

    async def connect(address: Address) -> BrokerConnection:
        tried.append(address)
        raise ConnectionSetupError("a certificate that is not accepted")

    with pytest.raises(ConnectionSetupError):
        await AddressRace([FIRST, SECOND], Setup(connect)).find_winner()
    assert tried == [FIRST]


@pytest.mark.usefixtures("immediate")
async def test_second_of_two_simultaneous_connections_is_closed() -> None:
    connected = asyncio.Event()
    made: list[BrokerConnection] = []

    async def connect(address: Address) -> BrokerConnection:
        if address == THIRD:
            connected.set()
            await asyncio.Event().wait()
        await connected.wait()
        made.append(BrokerConnection(1, "kafka", 1, client_id="test"))
        return made[-1]

    won = await AddressRace([FIRST, SECOND, THIRD], Setup(connect)).find_winner()
    assert won is not None
    assert won[1] is made[0]
    assert [connection.closed for connection in made] == [False, True]


@pytest.mark.usefixtures("immediate")
async def test_cancelled_race_cancels_all_attempts() -> None:
    begun: list[Address] = []
    ended: list[Address] = []

    async def connect(address: Address) -> BrokerConnection:
        begun.append(address)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(address)
        raise AssertionError

    racing = asyncio.create_task(AddressRace([FIRST, SECOND], Setup(connect)).find_winner())
    while len(begun) < 2:  # noqa: ASYNC110 - the attempts are the test's own
        await asyncio.sleep(0)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert sorted(ended) == sorted(begun)


async def test_first_misconfiguration_is_raised_when_several_addresses_have_one() -> None:
    begun: list[Address] = []

    async def connect(address: Address) -> BrokerConnection:
        begun.append(address)
        await both.wait()
        raise ConnectionSetupError(address[0])

    both = asyncio.Event()
    race = AddressRace([("::1", 1), ("10.0.0.1", 1)], Setup(connect))
    running = asyncio.ensure_future(race.find_winner())
    while len(begun) < 2:  # noqa: ASYNC110 - the race has no event
        await asyncio.sleep(0.01)
    both.set()
    with pytest.raises(ConnectionSetupError, match="::1"):
        await running


async def test_race_goes_on_with_the_addresses_that_have_not_failed() -> None:
    tried: list[Address] = []

    async def connect(address: Address) -> BrokerConnection:
        tried.append(address)
        if address[0] == "::1":
            raise DisconnectedError("refused")
        return BrokerConnection(1, *address, client_id="test")

    addresses = [("::1", 1), ("10.0.0.1", 1), ("10.0.0.2", 1)]
    race = AddressRace(addresses, Setup(connect))
    for address in addresses[1:]:
        won = await race.find_winner()
        assert won is not None
        assert won[0] == address
        race.mark_failed(address, diagnosis.ClosedEarlyError("closed"))
        won[1].close()
    assert await race.find_winner() is None
    assert tried == addresses
    early = race.find_early_closer()
    assert early is not None
    assert early[0] == addresses[1]


@pytest.mark.parametrize("first_fails", [False, True])
def test_next_address_is_tried_after_a_quarter_of_a_second_or_a_failure(first_fails: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began: dict[str, float] = {}
        won = BrokerConnection(1, "kafka", 1, client_id="test")

        async def connect(address: Address) -> BrokerConnection:
            began[address[0]] = loop.time()
            if address[0] == "10.0.0.1" and first_fails:
                raise DisconnectedError("refused")
            await asyncio.sleep(1.0 if address[0] == "10.0.0.3" else 100.0)
            return won

        race = AddressRace(
            [(f"10.0.0.{n}", 1) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9)], Setup(connect)
        )
        assert await race.find_winner() == (("10.0.0.3", 1), won)
        first_s = 0.0 if first_fails else 0.25
        expected = [0.0, *(first_s + 0.25 * number for number in range(6))]
        assert list(began.values()) == [at for at in expected if at < loop.time()]
        assert loop.time() == first_s + 1.25
        assert race.find_early_closer() is None
        won.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def test_two_errors_are_named_both_and_the_last_one_has_the_kind() -> None:
    error = await lost(
        diagnosis.NotConnectedError("kafka:1 ([::1]): Connection refused."),
        DisconnectedError("closed"),
    )
    assert error.message == (
        "kafka:1 cannot be used at any of its 2 addresses. [::1]: Connection refused. "
        "10.0.0.1: closed"
    )
    assert type(error) is DisconnectedError


async def test_first_address_that_closed_early_is_found() -> None:
    closed = diagnosis.ClosedEarlyError("closed early")

    async def connect(address: Address) -> BrokerConnection:
        raise DisconnectedError("refused") if address[0] == "10.0.0.1" else closed

    race = AddressRace([("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.3", 1)], Setup(connect))
    assert await race.find_winner() is None
    assert race.find_early_closer() == (("10.0.0.2", 1), closed)
