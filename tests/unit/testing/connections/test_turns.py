"""The embedded cluster handles requests for a limited time in each iteration of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from aiokclient.testing.broker.connections.turns import Turns


class Busy:
    """A connection with requests, each of which takes 3 ms of the clock in `now`."""

    def __init__(self, turns: Turns, name: str, requests: int, now: list[float]) -> None:
        self.turns, self.name, self.requests, self.now = turns, name, requests, now
        self.handled: list[int] = []
        """The iterations in which requests were handled."""

    def handle_queued(self) -> None:
        while self.requests and self.turns.take_turn(self):
            self.requests -= 1
            self.handled.append(ITERATION[0])
            self.now[0] += 0.003


ITERATION = [0]


async def test_other_connections_go_on_in_the_next_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, now, turns = asyncio.get_running_loop(), [0.0], Turns()
    monkeypatch.setattr(loop, "time", lambda: now[0])
    connections = [Busy(turns, name, 3, now) for name in "abc"]
    ITERATION[0] = 0
    for connection in connections:
        connection.handle_queued()
    while any(connection.requests for connection in connections):
        ITERATION[0] += 1
        await asyncio.sleep(0)
    assert [connection.handled for connection in connections] == [[0, 0, 1], [1, 2, 2], [3, 3, 4]]
    await asyncio.sleep(0)
    assert turns.take_turn(connections[0])


async def test_one_connection_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, now, turns = asyncio.get_running_loop(), [0.0], Turns()
    monkeypatch.setattr(loop, "time", lambda: now[0])
    connection = Busy(turns, "a", 100, now)
    connection.handle_queued()
    while connection.requests:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert len(connection.handled) == 100
