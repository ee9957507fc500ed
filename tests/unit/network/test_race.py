"""Tests of the order in which the addresses of a name are tried, and of their errors."""

from __future__ import annotations

import pytest

import aiokclient.network.diagnosis as diagnosis
from aiokclient.errors import DisconnectedError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.race import AddressRace, alternate
from aiokclient.network.transport import Address


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


async def lost(*errors: DisconnectedError) -> DisconnectedError:
    """Return the error of a race in which each address fails with one of these."""
    left = dict(zip([("::1", 1), ("10.0.0.1", 1), ("10.0.0.2", 1)], errors, strict=False))

    async def connect(address: Address) -> BrokerConnection:
        raise left[address]

    race = AddressRace(left, connect)
    assert await race.winner() is None
    return race.failure("kafka:1", 7)


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
