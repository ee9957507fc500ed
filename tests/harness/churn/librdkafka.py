"""A member that uses librdkafka's consumer, in a separate process."""

import select
import socket
from collections.abc import Callable, Mapping
from typing import Any

from .events import now


def live(spec: Mapping[str, Any], channel: socket.socket, tell: Callable[..., None]) -> None:
    """Read until the command to leave arrives, and commit what was processed."""
    from confluent_kafka import Consumer

    def numbers(tps: Any) -> list[int]:
        return sorted(tp.partition for tp in tps)

    consumer = Consumer(
        {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "enable.auto.offset.store": False,
            "log_level": 0,
            **spec["options"],
        }
    )
    consumer.subscribe(
        [spec["topic"]],
        on_assign=lambda _, tps: tell("assigned", numbers(tps), None),
        on_revoke=lambda _, tps: tell("revoked", numbers(tps)),
        on_lost=lambda _, tps: tell("lost", numbers(tps)),
    )
    tell("started")
    # The only command that this member knows is to leave.
    while not select.select([channel], [], [], 0)[0]:
        asked = now()
        message = consumer.poll(0.05)
        if message is None or message.error() is not None:
            continue
        tell("delivered", asked, [(message.partition(), message.offset())])
        tell("done", message.partition(), message.offset())
        consumer.store_offsets(message)
    consumer.close()
    tell("left")
