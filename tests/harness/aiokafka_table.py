"""The page with every public name of aiokafka, and what the adapter has for it.

    python tests/harness/aiokafka_table.py

writes `docs/migration/aiokafka-names.md`. A name is "the same" if the adapter has it with the same
signature and `OTHER` has no note for it. The names come from the installed aiokafka.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import aiokafka

from aiokclient import errors as native
from aiokclient.adapters.aiokafka import error_mapping

ADAPTER = "aiokclient.adapters.aiokafka"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration" / "aiokafka-names.md"
CLIENTS = ("AIOKafkaProducer", "AIOKafkaConsumer", "AIOKafkaAdminClient", "AIOKafkaClient")
ATTRIBUTES = {"AIOKafkaProducer": ("client",)}
"""Public attributes of objects, which their classes do not show."""
NO_NAMES = frozenset({"KT", "T", "VT", "annotations", "log"})
"""Names that a module has for itself only."""

RAISED_BY_ADAPTER = {
    "ConsumerStoppedError",
    "IllegalOperation",
    "NodeNotReadyError",
    "ProducerClosed",
}
"""Errors that have none of aiokclient as their cause."""

SAME, DIFFERENT, ABSENT = "the same", "other meaning", "absent"

STOPPED = "Raises ConsumerStoppedError after `stop()`."
NO_EFFECT = "It has no effect."
OTHER = {
    "AIOKafkaProducer(loop)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaProducer(api_version)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaProducer(partitioner)": "The default sends the records without a key of one batch to "
    "one partition, instead of each record to any.",
    "AIOKafkaProducer(linger_ms)": "`flush()` and `stop()` do not wait for it.",
    "AIOKafkaProducer(client_id)": "None is `aiokafka-producer-` and a number, as in aiokafka.",
    "AIOKafkaProducer.begin_transaction": "IllegalStateError instead of AssertionError while "
    "another transaction is open.",
    "AIOKafkaProducer.commit_transaction": "IllegalStateError instead of AssertionError without "
    "an open transaction.",
    "AIOKafkaProducer.abort_transaction": "As `commit_transaction`. A second one does nothing.",
    "AIOKafkaProducer.send": "It waits while the memory for records is full. The future is not "
    "cancelled with a task that awaits it. The name of a topic that no broker accepts raises "
    "InvalidTopicError at once.",
    "AIOKafkaProducer.send_batch": "The records stay in order, but may leave in several batches. "
    "An empty batch raises ValueError.",
    "AIOKafkaConsumer(loop)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaConsumer(api_version)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaConsumer(auto_offset_reset)": 'With "none", a partition without a position fails all '
    "reads until a seek, also those of other partitions. Unknown values raise ValueError.",
    "AIOKafkaConsumer(consumer_timeout_ms)": NO_EFFECT,
    "AIOKafkaConsumer(rebalance_timeout_ms)": f"{NO_EFFECT} A rebalance takes at most "
    "`max_poll_interval_ms`.",
    "AIOKafkaConsumer(heartbeat_interval_ms)": "It must be below `session_timeout_ms`: ValueError.",
    "AIOKafkaConsumer.last_poll_timestamp": "It is the present time, as a partition is always "
    "being fetched; None for one that is paused.",
    "AIOKafkaConsumer.getmany": "Its records are those of aiokclient, with the attributes of "
    "`ConsumerRecord` except `checksum`. The records before one that cannot be deserialized come "
    "first.",
    "AIOKafkaConsumer.subscribe": "Without a group, partitions that are read already keep their "
    "positions.",
    "AIOKafkaConsumer.position": "Raises NoOffsetForPartitionError at once, instead of waiting, if "
    f'`auto_offset_reset` is "none". {STOPPED}',
    **dict.fromkeys(
        (
            "AIOKafkaConsumer." + name
            for name in (
                *("beginning_offsets", "commit", "committed", "end_offsets", "highwater"),
                *(
                    "offsets_for_times",
                    "pause",
                    "resume",
                    "seek",
                    "seek_to_beginning",
                    "seek_to_committed",
                    "seek_to_end",
                ),
                *("topics", "unsubscribe"),
            )
        ),
        STOPPED,
    ),
    "AIOKafkaAdminClient(loop)": NO_EFFECT,
    "AIOKafkaAdminClient(api_version)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaAdminClient.alter_configs": "The list is empty without resources.",
    "AIOKafkaAdminClient.delete_records": "UnknownTopicOrPartitionError instead of "
    "NotLeaderForPartitionError for a partition that does not exist.",
    "AIOKafkaClient(loop)": NO_EFFECT,
    "AIOKafkaClient(api_version)": f"{NO_EFFECT} A DeprecationWarning says so.",
    "AIOKafkaClient.ready": "It says whether the broker is known; a request connects by itself.",
    "AIOKafkaClient.send": "It takes CreateTopicsRequest and MetadataRequest. `native.request` "
    "sends any request.",
    "AIOKafkaClient.set_topics": "The future is of asyncio, and no coroutine.",
    "AIOKafkaClient.coordinator_lookup": "`coordinator_type` is a number.",
    "structs.ConsumerRecord": "`getone` and iterations make it. A record of `getmany` is an "
    "instance of it for `isinstance`, but no dataclass.",
    "client.AIOKafkaClient": "It has no connections of its own: `native` is the `Client`.",
    "structs.TopicPartition": '`str(TopicPartition("orders", 3))` is `orders-3`.',
    "structs.RecordMetadata": "`timestamp_type` is an enumeration whose members are equal to 0 "
    "and 1.",
    "producer.message_accumulator.BatchBuilder": "It keeps the records; the producer makes the "
    "batch.",
    "producer.message_accumulator.BatchBuilder.append": "It returns the offset, the size, and the "
    "timestamp of the record.",
    "coordinator.assignors.abstract.AbstractPartitionAssignor": "A bridge makes it one of "
    "aiokclient's.",
    **dict.fromkeys(
        (
            f"coordinator.assignors.{path}.assign"
            for path in (
                "range.RangePartitionAssignor",
                "roundrobin.RoundRobinPartitionAssignor",
                "sticky.sticky_assignor.StickyPartitionAssignor",
            )
        ),
        "A consumer uses aiokclient's strategy of the same name. Called by a program, it assigns "
        "in turn.",
    ),
    "protocol.admin.CreateTopicsRequest": "It takes the same arguments, and has no builders.",
    "protocol.metadata.MetadataRequest": "It takes the same arguments, and has no builders.",
    "protocol.metadata.MetadataRequest_v1": "It is MetadataRequest.",
    "partitioner.DefaultPartitioner": "See `AIOKafkaProducer(partitioner)`.",
    "coordinator.protocol.ConsumerProtocol": "It has no codec.",
    "coordinator.protocol.ConsumerProtocolMemberAssignment": "A named tuple instead of a structure "
    "that can be encoded.",
    "coordinator.protocol.ConsumerProtocolMemberMetadata": "A named tuple instead of a structure "
    "that can be encoded.",
    "consumer.group_coordinator.GroupCoordinator": "It has `group_id`, `member_id`, and "
    "`generation`.",
    "cluster.ClusterMetadata": "It knows the topics that were asked for through its client.",
}
"""What a name means that the adapter has with another meaning."""

PROTOCOL = "`producer.client.native.request(message)` sends any request of `aiokclient.protocol`."
BATCHES = "`create_batch` and `send_batch`, or `native.send_many`."
INTERNAL = "Nothing: it is internal."
INSTEAD = {
    "cluster.ClusterMetadata": "`await native.partitions_for(topic)`, or `Admin.describe_topics`.",
    "codec": "The option `compression_type`.",
    "conn": "`AIOKafkaClient`. `AbstractTokenProvider` is here, too.",
    "consumer.fetcher": "`getmany`, `getone`, `seek`; `consumer.native`.",
    "consumer.group_coordinator": "`consumer.native.group_metadata()`, and a rebalance listener.",
    "consumer.subscription_state": "`subscription()`, `assignment()`, `paused()`.",
    "coordinator.assignors.sticky": INTERNAL,
    "coordinator.protocol": INTERNAL,
    "producer.message_accumulator": BATCHES,
    "producer.producer": INTERNAL,
    "producer.sender": INTERNAL,
    "producer.transaction_manager": "`begin_transaction`, `transaction`, and the like.",
    "protocol": PROTOCOL,
    "record": BATCHES,
    "util": INTERNAL,
    "client": INTERNAL,
}
"""What a program uses instead of a name that the adapter lacks, by the begin of its path."""

HEADER = """# Every name of aiokafka

This page lists the public names of aiokafka {version}, and what the
[adapter](aiokafka.md#one-changed-import) has for each: the same (name, signature, defaults, and
meaning), the same name with another meaning, or nothing. It is generated, and a test compares the
signatures with the installed aiokafka. In the first column, `Class(argument)` is an argument of a
constructor.
"""


class Row(NamedTuple):
    """A name, and what the adapter has for it."""

    path: str
    status: str
    note: str


def shown(value: object) -> object:
    """Return a default in a form that is equal for the same default of both."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, type):
        return value.__name__
    if type(value).__module__.startswith((ADAPTER, "aiokafka")) or type(value) is object:
        return type(value).__name__
    return value


def signature_of(function: Any) -> list[tuple[str, object, object]]:
    """Return names, kinds, and defaults of the parameters."""
    return [
        (each.name, each.kind, shown(each.default))
        for each in inspect.signature(function).parameters.values()
    ]


def public_members(owner: type) -> dict[str, Any]:
    """Return methods, properties, and fields."""
    found: dict[str, Any] = {}
    for kind in reversed(owner.__mro__[:-1]):
        if kind.__module__.startswith(("aiokafka", ADAPTER)) or kind is owner:
            found |= {n: getattr(owner, n) for n in vars(kind) if not n.startswith("_")}
            found |= dict.fromkeys(n for n in getattr(kind, "__annotations__", ()) if n[0] != "_")
    found |= dict.fromkeys(getattr(owner, "_fields", ()))
    return found


def walk_modules() -> Iterator[str]:
    """Return the paths of all public modules, without `aiokafka.`."""
    for module in pkgutil.walk_packages(aiokafka.__path__, "aiokafka."):
        path = module.name.removeprefix("aiokafka.")
        if not any(part.startswith("_") for part in path.split(".")):
            yield path


def find_module(path: str) -> ModuleType | None:
    """Return a module of the adapter, or None if it lacks that."""
    try:
        return import_module(f"{ADAPTER}.{path}".rstrip("."))
    except ModuleNotFoundError:
        return None


def own_names(path: str) -> dict[str, Any]:
    """Return the names that a module of aiokafka defines or exports."""
    module = import_module(f"aiokafka.{path}".rstrip("."))
    exported = getattr(module, "__all__", ())
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in NO_NAMES
        and not inspect.ismodule(value)
        and (getattr(value, "__module__", None) == module.__name__ or name in exported)
    }


def find_instead(path: str) -> str:
    """Return what to use instead of an absent name. Raises LookupError if nothing says that."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if (start := ".".join(parts[:length])) in INSTEAD:
            return INSTEAD[start]
    raise LookupError(f"INSTEAD has nothing for {path}.")


def compare(path: str, theirs: Any, ours: Any) -> Row:
    """Return the row of a name that both have. Raises AssertionError for an unnoted difference."""
    if path in OTHER:
        return Row(path, DIFFERENT, OTHER[path])
    if callable(theirs) and not isinstance(theirs, type):
        assert signature_of(ours) == signature_of(theirs), f"{path} has another signature."
    return Row(path, SAME, "")


def list_class(path: str, theirs: type, ours: type) -> Iterator[Row]:
    """Return the rows of a class, its arguments, and its members."""
    name = path.rpartition(".")[2]
    short = name if name in CLIENTS else path
    yield compare(path, theirs, ours)
    if name in CLIENTS:
        have = {each[0]: each for each in signature_of(ours.__init__)}  # type: ignore[misc]
        for parameter in signature_of(theirs.__init__)[1:]:  # type: ignore[misc]
            argument = f"{short}({parameter[0]})"
            assert have[parameter[0]] == parameter, argument
            note = OTHER.get(argument, "")
            yield Row(argument, DIFFERENT if note else SAME, note)
    lacking = []
    members = public_members(theirs)
    known = public_members(ours)
    for member in (*members, *ATTRIBUTES.get(name, ())):
        if member in known or hasattr(ours, member) or member not in members:
            yield compare(f"{short}.{member}", members.get(member), getattr(ours, member, None))
        else:
            lacking.append(member)
    if lacking:
        yield Row(f"{short}: {', '.join(sorted(lacking))}", ABSENT, find_instead(path))


def list_module(path: str) -> Iterator[Row]:
    """Return the rows of a module."""
    names, module = own_names(path), find_module(path)
    if module is None:
        if names:
            yield Row(f"{path}: {list_some(names)}", ABSENT, find_instead(path))
        return
    lacking = []
    dot = f"{path}." if path else ""
    for name, theirs in names.items():
        ours = getattr(module, name, None)
        defined = str(getattr(theirs, "__module__", None)).removeprefix("aiokafka.")
        if ours is None:
            lacking.append(name)
        elif isinstance(theirs, type) and defined != path:
            found = f"{defined}.{name}"
            yield Row(dot + name, DIFFERENT if found in OTHER else SAME, f"See `{found}`.")
        elif isinstance(theirs, type):
            yield from list_class(dot + name, theirs, ours)
        else:
            yield compare(dot + name, theirs, ours)
    if lacking:
        yield Row(f"{path}: {list_some(lacking)}", ABSENT, find_instead(path))


def list_some(names: Iterable[str]) -> str:
    """Return names for one row, or their number if there are many."""
    ordered = sorted(names)
    return f"{len(ordered)} names" if len(ordered) > 12 else ", ".join(ordered)


def list_errors() -> Iterator[tuple[str, str]]:
    """Return each error, and the errors of aiokclient that become it."""
    kinds = [getattr(native, name) for name in native.__all__]
    sources: dict[str, list[str]] = {}
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, native.KafkaError):
            sources.setdefault(error_mapping.find_class(kind).__name__, []).append(kind.__name__)
    theirs = import_module("aiokafka.errors")
    for name, value in sorted(vars(theirs).items()):
        if isinstance(value, type) and value.__module__ == "aiokafka.errors":
            raised = ", ".join(f"`{each}`" for each in sources.get(name, ()))
            if name in RAISED_BY_ADAPTER:
                raised = "raised by the adapter itself"
            if name != value.__name__:
                raised = f"another name of `{value.__name__}`"
            yield name, raised or "Nothing raises it, or other errors below it are raised."


def write_page() -> str:
    """Return the text of the page."""
    lines = [HEADER.format(version=aiokafka.__version__)]
    sections: dict[str, Sequence[Row]] = {"aiokafka": list(list_module(""))}
    rest: list[Row] = []
    for path in walk_modules():
        if path == "errors":
            continue
        rows: Sequence[Row] = list(list_module(path))
        if rows and all(row.status == ABSENT for row in rows):
            rest += rows
        elif rows:
            sections[f"aiokafka.{path}"] = rows
    sections["Modules that are absent"] = rest
    for title, rows in sections.items():
        lines += [f"## {title}", "", "| aiokafka | the adapter | notes |", "| --- | --- | --- |"]
        lines += [f"| `{row.path}` | {row.status} | {row.note} |" for row in rows]
        lines.append("")
    lines += [
        *("## aiokafka.errors", ""),
        "All are the same, with the same bases. The second column has the errors of",
        "`aiokclient.errors` that become each of them, and are the cause of the raised error.",
        *("", "| aiokafka.errors | errors of aiokclient |", "| --- | --- |"),
        *(f"| `{name}` | {raised} |" for name, raised in list_errors()),
    ]
    return "\n".join(lines) + "\n"


def find_unused_notes(page: str) -> list[str]:
    """Return the notes for names that aiokafka does not have."""
    return [path for path in OTHER if f"| `{path}` | {DIFFERENT} |" not in page]


if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parents[2]))
    PAGE.write_text(write_page())
