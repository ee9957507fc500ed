"""The programs of processes with members of a share group: this library's, or librdkafka's.

The process reports its events (see `churn.events`); the first item of each is the member's name:

    started NAME    left NAME    failed NAME TEXT    stalls NAME SECONDS    stalled NAME
    session NAME BROKER    disconnected NAME BROKER     the share session with a broker
    acquired NAME PARTITION FIRST LAST COUNT BROKER     what a broker says that the member has
    begin NAME PARTITION OFFSET COUNT DEADLINE LOST     a handler begins; DEADLINE may be null
    renewed NAME PARTITION FIRST LAST DEADLINE   these locks are certain until DEADLINE
    lost NAME PARTITION FIRST LAST REASON        the member knows that it has lost these locks
    ask NAME PARTITION OFFSET COUNT KIND         a handler decides
    end NAME PARTITION OFFSET COUNT              a handler holds the record no longer
    outcome NAME PARTITION OFFSET COUNT KIND ERROR      what `commit` says; ERROR may be null
    error NAME TEXT EXPECTED                     what `on_acknowledge_error` was told

A process with members of this library obeys the lines `leave NAME`, `cancel NAME`,
`cancel_handlers NAME`, `go NAME` (see `CrewMember`), `stall SECONDS` (block the event loop), and
`end`, which has all members leave. One with a member of librdkafka only knows `end`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import select
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from churn.events import line

from aiokclient.share.leader import ShareLeader
from aiokclient.share.leader_partitions import LeaderPartitions
from aiokclient.share.renewals import Renewals
from aiokclient.share.settlements import Settlements

from .member import CrewMember, decide_fate


def live(spec: Mapping[str, Any], channel: socket.socket) -> None:
    """Run the members of a process until they have left. SIGUSR1 prints what it does."""
    faulthandler.register(signal.SIGUSR1)

    def tell(what: str, *data: object) -> None:
        # A blocking call, so that each event is reported before anything else happens.
        channel.sendall(line(what, *data))

    if spec["kind"] == "librdkafka":
        try:
            live_librdkafka(spec, channel, tell)
        except Exception:
            tell("failed", spec["name"], traceback.format_exc())
    else:
        record_locks(tell)
        asyncio.run(live_ours(spec, channel, tell))


async def live_ours(spec: Mapping[str, Any], channel: socket.socket, tell: Any) -> None:
    members = {each["name"]: CrewMember(spec, each, tell) for each in spec["members"]}

    def orders() -> None:
        found = channel.recv(4096)
        if not found:
            os._exit(0)
        for text in found.decode().splitlines():
            order(text)

    def order(text: str) -> None:
        what, _, argument = text.partition(" ")
        if what == "stall":
            name = spec["members"][0]["name"]
            tell("stalls", name, float(argument))
            time.sleep(float(argument))
            tell("stalled", name)
        elif what == "end":
            for member in members.values():
                member.leave()
        else:
            getattr(members[argument], what)()

    asyncio.get_running_loop().add_reader(channel, orders)
    await asyncio.gather(*(member.run() for member in members.values()))


def record_locks(tell: Callable[..., None]) -> None:
    """Report what answers of brokers say of locks, before the consumers of this process act."""
    send, on_closed = ShareLeader._send, ShareLeader._on_connection_closed
    apply_fetch, on_renewed, lose_run = (
        LeaderPartitions.apply_fetch,
        Renewals.on_renewed,
        Settlements.lose_run,
    )

    async def send_recorded(self: ShareLeader, connection: Any, request: Any, *args: Any) -> Any:
        answer = await send(self, connection, request, *args)
        if request.share_session_epoch == 0 and not answer.error_code:
            tell("session", self._engine.config.client_id, self.node_id)
        return answer

    def on_closed_recorded(self: ShareLeader, connection: Any, *args: Any) -> None:
        if connection is self._connection:
            tell("disconnected", self._engine.config.client_id, self.node_id)
        on_closed(self, connection, *args)

    def apply_fetch_recorded(self: LeaderPartitions, found: Any, *args: Any) -> None:
        found, name = list(found), self._engine.config.client_id
        for partition, data in found:
            for each in data.acquired_records:
                what = each.first_offset, each.last_offset, each.delivery_count
                tell("acquired", name, partition.tp.partition, *what, self._leader.node_id)
        apply_fetch(self, found, *args)

    def on_renewed_recorded(self: Renewals, partition: Any, runs: Any, *args: Any) -> None:
        runs = list(runs)
        on_renewed(self, partition, runs, *args)
        for run in runs:
            deadline = run.acquisition.find_deadline(run.acquisition.first + run.start)
            tell("renewed", self._config.client_id, *locate(run), deadline)

    def lose_run_recorded(self: Settlements, run: Any, reason: Any, *args: Any) -> None:
        tell("lost", self._engine.config.client_id, *locate(run), reason)
        lose_run(self, run, reason, *args)

    for changed, name, function in (
        (ShareLeader, "_send", send_recorded),
        (ShareLeader, "_on_connection_closed", on_closed_recorded),
        (LeaderPartitions, "apply_fetch", apply_fetch_recorded),
        (Renewals, "on_renewed", on_renewed_recorded),
        (Settlements, "lose_run", lose_run_recorded),
    ):
        setattr(changed, name, function)


def locate(run: Any) -> tuple[int, int, int]:
    """Return the partition, and the first and last offset of a run."""
    offsets = run.list_offsets()
    return run.acquisition.partition.tp.partition, offsets[0], offsets[-1]


def live_librdkafka(
    spec: Mapping[str, Any], channel: socket.socket, tell: Callable[..., None]
) -> None:
    """Read until a command arrives, and settle each record by its fate."""
    import confluent_kafka as confluent

    name, kinds = spec["name"], confluent.AcknowledgeType
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is a preview.
        consumer = confluent.ShareConsumer(
            {
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
                "max.poll.records": 10,
                **spec["options"],
            }
        )
    consumer.subscribe([spec["topic"]])
    tell("started", name)
    while not select.select([channel], [], [], 0)[0]:
        messages = consumer.poll(timeout=0.1)
        for message in messages:
            if message.error() is not None:
                continue
            count, value = message.delivery_count(), message.value()
            assert count is not None
            assert value is not None
            place = message.partition(), message.offset(), count
            tell("begin", name, *place, None, False)
            time.sleep(0.002)
            kind = decide_fate(value.decode(), count)
            tell("ask", name, *place, kind)
            tell("end", name, *place)
            consumer.acknowledge(message, getattr(kinds, kind.upper()))
        if messages:
            consumer.commit_sync(timeout=30)
    consumer.close()
    tell("left", name)
