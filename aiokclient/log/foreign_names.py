"""Methods and attributes of other clients, whose access says what to use here instead.

`with_foreign_names` gives each public class one descriptor for each name. It stands outside of the
package `hints`, whose tables are imported only for an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

_START = "Start a client with `async with`, `await client.start()`, or `await client`."
_CLOSE = "Await close(), or use `async with`."
_STARTS = "The start of a producer does this. After an error, use `await producer.restart()`."
_ASSIGN = "Use assign(), which keeps the positions of partitions that remain assigned."
_COMMON: Final = {
    "stop": _CLOSE,
    "shutdown": _CLOSE,
    "aclose": _CLOSE,
    "open": _START,
    "connect": _START,
    "bootstrap_connected": "Read the attribute state, or call health().",
    "client_id": "The client id is part of the repr.",
    "set_sasl_credentials": "Pass security=SaslPlain(...) or SaslScram(...) to a new client.",
    "list_topics": "Use Admin.list_topics().",
    "create_topics": "Use Admin.create_topics().",
    "stats": "Call metrics().",
}

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "Consumer": {
        "getmany": (
            "Use `await consumer.poll(timeout, max_records=...)`, whose result has "
            "by_partition(). Or iterate over consumer.batches(). To read only some partitions, "
            "pause() the others."
        ),
        "getone": "Use `await consumer.get(timeout)`, or loop: `async for record in consumer`.",
        "consume": "Use `await consumer.poll(timeout, max_records=...)`, or consumer.batches().",
        "poll_async": "Use `await consumer.poll(timeout)`.",
        "messages": "Iterate over the consumer: `async for record in consumer`.",
        "last_poll_timestamp": "Call metrics(), which contains consumer.poll.age.seconds.",
        "seek_to_committed": "Use seek() with an offset from `await consumer.committed(tps)`.",
        "topics": "Use `await consumer.list_topics()`.",
        "subscribe_pattern": "Pass a compiled pattern: subscribe(re.compile(...)).",
        "unassign": "Use assign(()) or unsubscribe().",
        "incremental_assign": _ASSIGN,
        "incremental_unassign": _ASSIGN,
        "store_offsets": (
            "A record counts as processed when the next one is requested. Use tracked() and "
            "done(record)."
        ),
        "get_watermark_offsets": (
            "Use `await consumer.beginning_offsets(tps)` and end_offsets(tps)."
        ),
        "memberid": "Use group_metadata().member_id.",
        "consumer_group_metadata": "Use group_metadata().",
        "commit_sync": "Use `await consumer.commit()`.",
        "commit_async": "Use `await consumer.commit()` in a task.",
        "commitSync": "Use `await consumer.commit()`.",
        "commitAsync": "Use `await consumer.commit()` in a task.",
        "wakeup": "Use stop(), which any thread may call.",
        "enforceRebalance": "The coordinator of the group starts rebalances.",
        "enforce_rebalance": "The coordinator of the group starts rebalances.",
        "partitionsFor": "Use `await consumer.partitions_for(topic)`.",
        "listTopics": "Use `await consumer.list_topics()`.",
        "seekToBeginning": "Use seek_to_beginning().",
        "seekToEnd": "Use seek_to_end().",
        "beginningOffsets": "Use `await consumer.beginning_offsets(tps)`.",
        "endOffsets": "Use `await consumer.end_offsets(tps)`.",
        "offsetsForTimes": "Use `await consumer.offsets_for_times({tp: ms})`.",
        "currentLag": "Use `await consumer.lag(tps)`.",
        "current_lag": "Use `await consumer.lag(tps)`.",
        "groupMetadata": "Use group_metadata().",
        "acknowledge": "Share consumers are not available in this version. Use commit().",
        **{name: hint for name, hint in _COMMON.items() if name not in ("stop", "list_topics")},
    },
    "ShareConsumer": {
        "acknowledge": "Call consumer.done(record), release(record), or reject(record).",
        "commit_sync": "Write `await consumer.commit()`, which returns the outcome of each record.",
        "commit_async": "Settlements are sent by themselves. `await consumer.commit()` waits.",
        "set_acknowledgement_commit_callback": (
            "Pass on_acknowledge_error=, or look at the outcomes of `await consumer.commit()`."
        ),
        "wakeup": "Cancel the task that reads, or call consumer.stop().",
        "seek": "Share groups have no positions. Admin.alter_share_group_offsets sets their start.",
        "position": "Share groups have no positions. `await consumer.lag()` tells what is left.",
        "pause": "Share groups cannot pause partitions. Request no records, or stop().",
        "assign": "The group assigns partitions. Use subscribe().",
    },
    "Producer": {
        "produce": "Use send(topic, value, key=...). Await the delivery that it returns.",
        "send_batch": "Use send_many(topic, values). Batches are made by the producer.",
        "create_batch": "Use send_many(topic, values). Batches are made by the producer.",
        "poll": "There is nothing to poll: deliveries complete in the event loop.",
        "purge": "Use close(0), which fails all records that are not sent yet.",
        "sendOffsetsToTransaction": "Use `await producer.send_offsets_to_transaction(...)`.",
        "init_transactions": _STARTS,
        "initTransactions": _STARTS,
        "beginTransaction": "Use `await producer.begin_transaction()`, or transaction().",
        "commitTransaction": "Use `await producer.commit_transaction()`, or transaction().",
        "abortTransaction": "Use `await producer.abort_transaction()`, or transaction().",
        "partitionsFor": "Use `await producer.partitions_for(topic)`.",
        "partitions_for_topic": "Use `await producer.partitions_for(topic)`.",
        **_COMMON,
    },
    "Admin": {
        "create_topic": "Use `await admin.create_topics([NewTopic(...)])`.",
        "delete_topic": "Use `await admin.delete_topics([name])`.",
        "describe_consumer_groups": "Use `await admin.describe_groups(groups)`.",
        "list_consumer_groups": "Use `await admin.list_groups()`.",
        "delete_consumer_groups": "Use `await admin.delete_groups(groups)`.",
        "alter_consumer_group_offsets_async": (
            "Use `await admin.alter_consumer_group_offsets(...)`."
        ),
        "incremental_alter_configs": "Use `await admin.alter_configs({resource: {name: change}})`.",
        "find_coordinator": "Use describe_groups(), whose descriptions have a coordinator.",
        "poll": "Await the calls. There is nothing to poll.",
        **{
            name: hint
            for name, hint in _COMMON.items()
            if name not in ("list_topics", "create_topics")
        },
    },
    "Client": {
        "send_request": "Use `await client.request(message, to=...)`.",
        **_COMMON,
    },
    "GroupMember": dict(_COMMON),
}
"""Methods and attributes of other clients, by the class here, with what to use instead."""


class ForeignName:
    """An attribute of another client, whose access raises an AttributeError with a hint.

    A descriptor for each name costs nothing where a name exists, while `__getattr__` on a class
    makes every access to its attributes slower: CPython then keeps no inline caches for them.
    """

    __slots__ = ("_hint", "_name", "_owner")

    def __init__(self, owner: type, name: str, hint: str) -> None:
        self._owner = owner
        self._name = name
        self._hint = hint

    def __get__(self, instance: object | None, owner: type) -> Any:
        mro = owner.__mro__
        # A class that stands beside the owner of the hint, such as a mixin, may define the name.
        for base in mro[mro.index(self._owner) + 1 :]:
            if self._name in vars(base):
                value = vars(base)[self._name]
                return value.__get__(instance, owner) if hasattr(value, "__get__") else value
        if instance is None:
            text = f"type object {owner.__name__!r} has no attribute {self._name!r}"
        else:
            text = f"{owner.__name__!r} object has no attribute {self._name!r}"
        raise AttributeError(
            f"{text}. {self._hint}", name=self._name, obj=owner if instance is None else instance
        )


ClassT = TypeVar("ClassT", bound=type)


def with_foreign_names(owner: ClassT) -> ClassT:
    """Give a class its names in ATTRIBUTES, none of which it may have itself. A class decorator."""
    for name, hint in ATTRIBUTES[owner.__name__].items():
        if hasattr(owner, name):
            raise TypeError(f"{owner.__name__}.{name} exists, so that it needs no hint")
        setattr(owner, name, ForeignName(owner, name, hint))
    return owner


def own_names(instance: object, names: Iterable[str]) -> list[str]:
    """Return those of the names of an object that are not only hints, for its `__dir__`."""
    defined: dict[str, object] = {}
    for base in reversed(type(instance).__mro__):
        defined.update(vars(base))
    defined.update(vars(instance))
    return [name for name in names if not isinstance(defined.get(name), ForeignName)]
