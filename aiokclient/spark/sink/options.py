"""The options of the Spark sink, with the names, defaults, and rules of Spark's Kafka connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from aiokclient import Client, Producer
from aiokclient.spark.option_names import option_names, text_options
from aiokclient.spark.option_reader import OptionReader, Properties, bad_value, number_of
from aiokclient.spark.source.options import KNOWN as OF_THE_SOURCE
from aiokclient.spark.source.options import TOPIC, TOPIC_NAME

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

KNOWN = ("topic", "deliveryGuarantee", "writeId")
OF_SPARK = (
    "checkpointLocation",
    "path",
    "queryName",
    "includeHeaders",
    "commitScope",
    "aiokclient.test.points",
)
"""Options that Spark passes on to a sink, options of the connector's sink, options that say what is
always so, and options of tests."""
REFUSED = {
    "key.serializer": "Keys are written as they are. Convert them with functions of Spark.",
    "value.serializer": "Values are written as they are. Convert them with functions of Spark.",
    "transactional.id": "Set deliveryGuarantee=exactly-once; the sink then names its transactions.",
    "group.id": "The sink reads nothing. With exactly-once, it names its groups itself.",
}
EXACT = {"enable.idempotence": ("false",), "acks": ("0", "1")}
"""Values of Kafka's options that are not allowed with exactly-once."""
COMMIT_SCOPE = "batch"
ONLY_BATCH = (
    "A task cannot commit its own rows: if what stands before the sink fails, or if the query is "
    "stopped, Spark ends the rows of the task as if they were complete. Use batch, which is the "
    "default: the driver commits when all tasks of a batch have succeeded."
)
WRITE_ID = re.compile(r"[a-zA-Z0-9._-]{1,128}")
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of a sink.

    `client` and `producer` may have passwords. They are not in the repr.
    """

    streaming: bool
    topic: str | None = None
    """The topic of all rows. Without it, each row has its own, in the column `topic`."""
    delivery_guarantee: str = AT_LEAST_ONCE
    write_id: str | None = None
    """The name of a batch write, by which a repetition is recognized."""
    checkpoint: str | None = None
    """The folder of the checkpoint of a stream."""
    test_points: str | None = None
    """The folder by which a test stops or ends the process at certain points."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    client: Properties = field(default=(), repr=False)
    """The options of a Client."""
    producer: Properties = field(default=(), repr=False)
    """The options of a Producer that shares a Client."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Return the options of a batch write or a stream. Raises ConfigError for all mistakes."""
        of_source = [name for name in OF_THE_SOURCE if name not in OF_SPARK]
        reader = OptionReader(
            given,
            KNOWN,
            "sink",
            {"source": of_source},
            hidden=OF_SPARK,
            of_kafka=text_options(option_names(Producer), REFUSED),
        )
        reader.read_flag("includeHeaders", False)
        properties = reader.read_properties(REFUSED, Producer.from_properties)
        of_client = option_names(Client)
        timeout = dict(properties).get("transaction.timeout.ms", "")
        found = cls(
            streaming=streaming,
            topic=_topic(reader),
            delivery_guarantee=reader.read_choice(
                "deliveryGuarantee", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE
            ),
            write_id=reader.read_text("writeId"),
            checkpoint=reader.read_text("checkpointLocation"),
            test_points=reader.read_text("aiokclient.test.points"),
            transaction_timeout_ms=number_of(timeout, TRANSACTION_TIMEOUT_MS),
            client=tuple(pair for pair in properties if pair[0] in of_client),
            producer=tuple(pair for pair in properties if pair[0] not in of_client),
        )
        _check_guarantee(found, reader)
        reader.refuse_mistakes()
        return found

    @property
    def exactly_once(self) -> bool:
        """Whether rows are written in transactions that a repetition recognizes."""
        return self.delivery_guarantee == EXACTLY_ONCE


def _topic(reader: OptionReader) -> str | None:
    topic = reader.read_text("topic")
    if topic is not None and not TOPIC.fullmatch(topic):
        reader.add_problem(bad_value("topic", topic, f"It must be {TOPIC_NAME}"))
    return topic


def _check_guarantee(options: SinkOptions, reader: OptionReader) -> None:
    scope = (reader.read_text("commitScope") or COMMIT_SCOPE).strip()
    if scope.lower() != COMMIT_SCOPE:
        reader.add_problem(bad_value("commitScope", scope, ONLY_BATCH))
        return
    if not options.exactly_once:
        for name in ("commitScope", "writeId"):
            if reader.has_option(name):
                reader.add_problem(
                    f"{name} has no effect without deliveryGuarantee=exactly-once. Set that, or "
                    f"remove {name}."
                )
        return
    properties = dict(options.producer)
    for name, wrong in EXACT.items():
        value = properties.get(name, "").strip().lower()
        if value in wrong:
            reader.add_problem(
                bad_value(
                    f"kafka.{name}", value, "deliveryGuarantee=exactly-once needs the default."
                )
            )
    if options.streaming:
        _check_stream(options, reader)
    elif options.write_id is None:
        reader.add_problem(
            "writeId is missing. deliveryGuarantee=exactly-once in a batch write needs the name by "
            "which a repetition of this write is recognized."
        )
    elif not WRITE_ID.fullmatch(options.write_id):
        allowed = "It must have 1 to 128 letters, digits, '.', '_', and '-'."
        reader.add_problem(bad_value("writeId", options.write_id, allowed))


def _check_stream(options: SinkOptions, reader: OptionReader) -> None:
    if options.write_id is not None:
        reader.add_problem(
            "writeId is only allowed in a batch write. A stream is recognized by its checkpoint. "
            "Remove it."
        )
    if not (options.checkpoint or "").strip():
        reader.add_problem(
            "checkpointLocation is missing. deliveryGuarantee=exactly-once recognizes a repeated "
            "batch by the query's checkpoint: set its folder as an option of this query."
        )
