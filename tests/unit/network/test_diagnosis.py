"""Tests of the texts that say why a connection cannot be used."""

from __future__ import annotations

import pytest

from aiokclient.network import diagnosis


@pytest.mark.parametrize(
    ("node_id", "whose", "option"),
    [
        (-1, "A bootstrap server has", "Check bootstrap_servers."),
        (0, "Broker 0 has", "Check advertised.listeners of the brokers."),
        (7, "Broker 7 has", "Check advertised.listeners of the brokers."),
    ],
)
def test_unusable_address_names_its_owner_and_the_option(
    node_id: int, whose: str, option: str
) -> None:
    error = diagnosis.unusable_address(node_id, "b:0", "the port must be from 1 to 65535")
    assert whose in str(error)
    assert option in str(error)
    assert error.broker == node_id
