"""The records of Kafka's internal topics as items of JSON.

`__consumer_offsets` has the state of groups, `__transaction_state` that of transactions, and
`__share_group_state` that of share groups. A key begins with the number of its type, and a value
with its version. What has an unknown type or version, or does not fit, stays bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from aiokclient.cli.output import as_kafka_id, as_text_or_base64

if TYPE_CHECKING:
    from aiokclient import ConsumerRecord

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARES = "__share_group_state"
TOPICS = (GROUPS, TRANSACTIONS, SHARES)
TRANSACTION_STATES = (
    "empty",
    "ongoing",
    "prepare_commit",
    "prepare_abort",
    "complete_commit",
    "complete_abort",
    "dead",
    "prepare_epoch_fence",
)


class Source:
    """Bytes that are read from the start. `compact` is the encoding with tagged fields (KIP-482).

    Its methods raise ValueError if the bytes end too early.
    """

    def __init__(self, content: bytes, compact: bool = False) -> None:
        self._content = content
        self._at = 0
        self.compact = compact

    def count_rest(self) -> int:
        """Return the number of bytes that are left."""
        return len(self._content) - self._at

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes."""
        part = self._content[self._at : self._at + size]
        if size < 0 or len(part) < size:
            raise ValueError("The record ends too early.")
        self._at += size
        return part

    def take_integer(self, size: int) -> int:
        """Return the next integer of so many bytes."""
        return int.from_bytes(self.take_bytes(size), "big", signed=True)

    def take_varint(self) -> int:
        """Return the next unsigned integer of variable size."""
        number = shift = 0
        while True:
            byte = self.take_bytes(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def take_length(self, size: int) -> int:
        """Return the next length of a text, bytes, or a list, or -1 for null."""
        return self.take_varint() - 1 if self.compact else self.take_integer(size)

    def take_text(self) -> str | None:
        """Return the next text."""
        length = self.take_length(2)
        return None if length < 0 else self.take_bytes(length).decode()

    def take_content(self) -> Any:
        """Return the next bytes with a length, as an item of JSON."""
        length = self.take_length(4)
        return None if length < 0 else as_text_or_base64(self.take_bytes(length))


class Field(NamedTuple):
    """A field of a key or value. With a tag, it is among the tagged fields if it is not a default.

    `type` is the name of a type, a list of one type, or the fields of a structure.
    """

    name: str
    type: Any
    first: int = 0
    last: int = 32767
    tag: int | None = None
    default: Any = None


class Definition(NamedTuple):
    """The key and the value of one type of records. `flexible` is the first version with tags."""

    name: str
    key: Sequence[Field]
    value: Sequence[Field]
    flexible: int = 0
    latest: int = 0


TYPES: Mapping[str, Callable[[Source], Any]] = {
    "int8": lambda source: source.take_integer(1),
    "int16": lambda source: source.take_integer(2),
    "int32": lambda source: source.take_integer(4),
    "int64": lambda source: source.take_integer(8),
    "string": Source.take_text,
    "bytes": Source.take_content,
    "uuid": lambda source: as_kafka_id(UUID(bytes=source.take_bytes(16))),
}


def _texts(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "string") for name in names)


GROUP = _texts("group")
MEMBER = _texts("group", "member_id")
PARTITIONS = [(Field("topic_id", "uuid"), Field("partitions", ["int32"]))]
EPOCH = Field("epoch", "int32")
MEMBER_STATE = (
    Field("member_epoch", "int32"),
    Field("previous_member_epoch", "int32"),
    Field("state", "int8"),
    Field("assigned_partitions", PARTITIONS),
)
CLASSIC_MEMBER = (
    Field("member_id", "string"),
    Field("group_instance_id", "string", 3),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("rebalance_timeout", "int32", 1),
    Field("session_timeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
OFFSET_COMMIT = Definition(
    "offset_commit",
    (*_texts("group", "topic"), Field("partition", "int32")),
    (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", 3),
        Field("metadata", "string"),
        Field("commit_timestamp", "int64"),
        Field("expire_timestamp", "int64", 1, 1),
        Field("topic_id", "uuid", 4, tag=0),
    ),
    flexible=4,
    latest=4,
)
SHARE_TOPIC = _texts("topic_name")
SHARE_PARTITIONS = (
    Field("topic_id", "uuid"),
    *SHARE_TOPIC,
    Field("partitions", ["int32"]),
)
GROUP_RECORDS: Mapping[int, Definition] = {
    0: OFFSET_COMMIT,
    1: OFFSET_COMMIT,
    2: Definition(
        "group_metadata",
        GROUP,
        (
            Field("protocol_type", "string"),
            Field("generation", "int32"),
            Field("protocol", "string"),
            Field("leader", "string"),
            Field("current_state_timestamp", "int64", 2),
            Field("members", [CLASSIC_MEMBER]),
        ),
        flexible=4,
        latest=4,
    ),
    3: Definition(
        "consumer_group_metadata",
        GROUP,
        (EPOCH, Field("metadata_hash", "int64", tag=0, default=0)),
    ),
    5: Definition(
        "consumer_group_member_metadata",
        MEMBER,
        (
            *_texts("instance_id", "rack_id", "client_id", "client_host"),
            Field("subscribed_topic_names", ["string"]),
            Field("subscribed_topic_regex", "string"),
            Field("rebalance_timeout_ms", "int32"),
            Field("server_assignor", "string"),
        ),
    ),
    6: Definition(
        "consumer_group_target_assignment_metadata", GROUP, (Field("assignment_epoch", "int32"),)
    ),
    7: Definition(
        "consumer_group_target_assignment_member",
        MEMBER,
        (Field("topic_partitions", PARTITIONS),),
    ),
    8: Definition(
        "consumer_group_current_member_assignment",
        MEMBER,
        (*MEMBER_STATE, Field("partitions_pending_revocation", PARTITIONS)),
    ),
    10: Definition(
        "share_group_member_metadata",
        MEMBER,
        (
            *_texts("rack_id", "client_id", "client_host"),
            Field("subscribed_topic_names", ["string"]),
        ),
    ),
    11: Definition("share_group_metadata", GROUP, (EPOCH, Field("metadata_hash", "int64"))),
    12: Definition(
        "share_group_target_assignment_metadata", GROUP, (Field("assignment_epoch", "int32"),)
    ),
    13: Definition(
        "share_group_target_assignment_member", MEMBER, (Field("topic_partitions", PARTITIONS),)
    ),
    14: Definition("share_group_current_member_assignment", MEMBER, MEMBER_STATE),
    15: Definition(
        "share_group_state_partition_metadata",
        GROUP,
        (
            Field("initializing_topics", [SHARE_PARTITIONS]),
            Field("initialized_topics", [SHARE_PARTITIONS]),
            Field("deleting_topics", [(Field("topic_id", "uuid"), *SHARE_TOPIC)]),
        ),
    ),
    16: Definition(
        "consumer_group_regular_expression",
        _texts("group", "regular_expression"),
        (
            Field("topics", ["string"]),
            Field("metadata_version", "int64"),
            Field("timestamp", "int64"),
        ),
    ),
}
TRANSACTION_RECORDS: Mapping[int, Definition] = {
    0: Definition(
        "transaction",
        _texts("transactional_id"),
        (
            Field("producer_id", "int64"),
            Field("previous_producer_id", "int64", 1, tag=0, default=-1),
            Field("next_producer_id", "int64", 1, tag=1, default=-1),
            Field("producer_epoch", "int16"),
            Field("transaction_timeout_ms", "int32"),
            Field("state", "int8"),
            Field("partitions", [(Field("topic", "string"), Field("partition_ids", ["int32"]))]),
            Field("last_update_timestamp", "int64"),
            Field("start_timestamp", "int64"),
            Field("client_transaction_version", "int16", 1, tag=2, default=0),
        ),
        flexible=1,
        latest=1,
    )
}
SHARE_KEY = (
    Field("group", "string"),
    Field("topic_id", "uuid"),
    Field("partition", "int32"),
)
STATE_BATCHES = Field(
    "state_batches",
    [
        (
            Field("first_offset", "int64"),
            Field("last_offset", "int64"),
            Field("delivery_state", "int8"),
            Field("delivery_count", "int16"),
        )
    ],
)
COMPLETE_COUNT = Field("delivery_complete_count", "int32", tag=0, default=-1)
SHARE_RECORDS: Mapping[int, Definition] = {
    0: Definition(
        "share_snapshot",
        SHARE_KEY,
        (
            Field("snapshot_epoch", "int32"),
            Field("state_epoch", "int32"),
            Field("leader_epoch", "int32"),
            Field("start_offset", "int64"),
            COMPLETE_COUNT,
            Field("create_timestamp", "int64"),
            Field("write_timestamp", "int64"),
            STATE_BATCHES,
        ),
    ),
    1: Definition(
        "share_update",
        SHARE_KEY,
        (
            Field("snapshot_epoch", "int32"),
            Field("leader_epoch", "int32"),
            Field("start_offset", "int64"),
            COMPLETE_COUNT,
            STATE_BATCHES,
        ),
    ),
}
RECORDS: Mapping[str, Mapping[int, Definition]] = {
    GROUPS: GROUP_RECORDS,
    TRANSACTIONS: TRANSACTION_RECORDS,
    SHARES: SHARE_RECORDS,
}


def decode_record(record: ConsumerRecord[bytes, bytes]) -> tuple[Any, Any] | None:
    """Return key and value of a record as items of JSON, or None if it is of no internal topic."""
    definitions = RECORDS.get(record.topic)
    if definitions is None:
        return None
    key, value = record.key, record.value
    plain_key = None if key is None else as_text_or_base64(key)
    plain_value = None if value is None else as_text_or_base64(value)
    if key is None or len(key) < 2:
        return plain_key, plain_value
    definition = definitions.get(int.from_bytes(key[:2], "big", signed=True))
    if definition is None:
        return plain_key, plain_value
    try:
        decoded_key = {"type": definition.name, **_decode_key(definition, key)}
    except ValueError:
        return plain_key, plain_value
    if value is None:
        return decoded_key, None
    try:
        return decoded_key, _decode_value(definition, value)
    except ValueError:
        return decoded_key, plain_value


def _decode_key(definition: Definition, content: bytes) -> dict[str, Any]:
    source = Source(content)
    source.take_integer(2)
    key = _take_structure(source, definition.key, 0)
    _require_end(source)
    return key


def _decode_value(definition: Definition, content: bytes) -> dict[str, Any]:
    source = Source(content)
    version = source.take_integer(2)
    if not 0 <= version <= definition.latest:
        raise ValueError("The version is unknown.")
    source.compact = version >= definition.flexible
    value = {"version": version, **_take_structure(source, definition.value, version)}
    _require_end(source)
    if definition.name == "transaction" and 0 <= value["state"] < len(TRANSACTION_STATES):
        value["state"] = TRANSACTION_STATES[value["state"]]
    return value


def _require_end(source: Source) -> None:
    if source.count_rest():
        raise ValueError("The record is too long.")


def _take_structure(source: Source, fields: Sequence[Field], version: int) -> dict[str, Any]:
    present = [each for each in fields if each.first <= version <= each.last]
    found = {
        each.name: each.default if each.tag is not None else _take_value(source, each.type, version)
        for each in present
    }
    if source.compact:
        tagged = {each.tag: each for each in present if each.tag is not None}
        for _ in range(source.take_varint()):
            tag = source.take_varint()
            content = source.take_bytes(source.take_varint())
            if tag in tagged:  # Other fields are newer than this table.
                inner = Source(content, compact=True)
                found[tagged[tag].name] = _take_value(inner, tagged[tag].type, version)
    return found


def _take_value(source: Source, kind: Any, version: int) -> Any:
    if isinstance(kind, str):
        return TYPES[kind](source)
    if isinstance(kind, tuple):
        return _take_structure(source, kind, version)
    length = source.take_length(4)
    if length < 0:
        return None
    if length > source.count_rest():
        raise ValueError("The list is too long.")
    return [_take_value(source, kind[0], version) for _ in range(length)]
