"""Log compaction as in Kafka's log cleaner: which records and batches of a log are kept.

For each key, the last record is kept. A batch keeps its base offset and its last offset whatever is
removed from it, so offsets have gaps. Records without a key, and those of aborted transactions, are
removed. A batch whose records are all removed is removed as well, with one exception: the last
batch of a producer stays as an empty batch, so that its sequence is still known.

Tombstones and the markers of transactions without records are kept for `delete.retention.ms` (the
delete horizon of KIP-534). The first compaction that meets one stores the time of its removal in
its batch: as the base timestamp, with an attribute that says so.

Nothing is removed from the last stable offset on, nor from the last batch, which in Kafka belongs
to the active segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from aiokclient.record.batch import Compression, RecordBatch
from aiokclient.record.compression import compress
from aiokclient.record.control import ControlType
from aiokclient.record.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    seal_crc,
)
from aiokclient.testing.broker.topics.producers import (
    AbortedTxn,
    ProducerState,
    ProducerStates,
)
from aiokclient.types import Headers

_HORIZON = 0x40
"""The attribute of a batch whose base timestamp is its delete horizon (KIP-534)."""
_NO_TIMESTAMP = -1
Row: TypeAlias = "tuple[int, int, bytes | None, bytes | None, Headers]"
"""Offset, timestamp, key, value, and headers of a record."""


class CompactionTimes(NamedTuple):
    """The time of a compaction, and `delete.retention.ms`."""

    now_ms: int
    retention_ms: int


class _Transactions:
    """The transactions of a log, as far as its batches were read.

    `gone` are the aborted transactions without batches. Readers need not know them any more.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.gone: list[AbortedTxn] = []
        self._waiting = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_records: dict[int, None] = {}
        """The ids of the producers of transactions from which a batch was read."""

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether a batch of records belongs to an aborted transaction."""
        self._begin_aborted(batch.last_offset)
        if not batch.is_transactional:
            return False
        self._with_records[batch.producer_id] = None
        return batch.producer_id in self._aborted

    def is_empty_before(self, marker: RecordBatch) -> bool:
        """Return whether the transaction that a marker ends has no batch any more."""
        self._begin_aborted(marker.last_offset)
        had_records = marker.producer_id in self._with_records
        self._with_records.pop(marker.producer_id, None)
        if not marker.count:
            return True
        if marker.control_type() == ControlType.ABORT:
            aborted = self._aborted.pop(marker.producer_id, None)
            if aborted is not None and not had_records:
                self.gone.append(aborted)
        return not had_records

    def _begin_aborted(self, offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= offset:
            each = self._waiting.popleft()
            self._aborted[each.producer_id] = each


class Compacted(NamedTuple):
    """The bytes of the batches that are kept, and the aborted transactions to forget."""

    batches: list[bytes]
    gone: Sequence[AbortedTxn]


def compact_batches(
    batches: Sequence[RecordBatch], limit: int, producers: ProducerStates, times: CompactionTimes
) -> Compacted:
    """Return what compaction keeps of all batches of a log. Those from `limit` on stay as they are.

    Raises CorruptRecordError for a batch whose records cannot be read.
    """
    readable = [each for each in batches if each.base_offset < limit]
    last_offsets = _find_last_offsets(readable, producers.aborted)
    transactions = _Transactions(producers.aborted)
    states = dict(producers)
    kept: list[bytes] = []
    for batch in batches:
        if batch.base_offset >= limit or batch is batches[-1]:
            kept.append(bytes(batch.buffer))
            continue
        is_last = _is_last_of_producer(batch, states.get(batch.producer_id))
        if batch.is_control:
            is_empty = transactions.is_empty_before(batch)
            compacted = _compact_marker(batch, is_empty, is_last, times)
        elif transactions.is_aborted(batch):
            compacted = _keep_if_last(batch, is_last)
        else:
            compacted = _compact_records(batch, last_offsets, is_last, times)
        if compacted is not None:
            kept.append(compacted)
    return Compacted(kept, transactions.gone)


def _find_last_offsets(
    batches: Iterable[RecordBatch], aborted: Iterable[AbortedTxn]
) -> dict[bytes, int]:
    """Return the last offset of each key, without the records of aborted transactions."""
    transactions = _Transactions(aborted)
    found: dict[bytes, int] = {}
    for batch in batches:
        if batch.is_control:
            transactions.is_empty_before(batch)
        elif not transactions.is_aborted(batch):
            found.update(
                (bytes(key), offset)
                for offset, _, key, _, _ in batch.rows(check_crcs=False)
                if key is not None
            )
    return found


def _is_last_of_producer(batch: RecordBatch, state: ProducerState | None) -> bool:
    """Return whether the state of a producer depends on this batch."""
    if state is None:
        return False
    if not state.batches:
        return batch.is_control and batch.producer_epoch == state.epoch
    return batch.last_offset == state.batches[-1].last_offset


def _keep_if_last(batch: RecordBatch, is_last: bool) -> bytes | None:
    """Return the empty batch that stays of the last batch of a producer, or None for others."""
    if not is_last:
        return None
    attributes = _read_attributes(batch) & ~(CODEC_MASK | _HORIZON)
    return _build_batch(batch, attributes, _NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _compact_marker(
    batch: RecordBatch, is_empty: bool, is_last: bool, times: CompactionTimes
) -> bytes | None:
    horizon = _read_horizon(batch)
    if is_empty and horizon is not None and horizon <= times.now_ms:
        return _keep_if_last(batch, is_last)
    if not batch.count:
        return _keep_if_last(batch, is_last)
    if is_empty and horizon is None:
        rows = batch.rows(check_crcs=False)
        return _rebuild_batch(batch, rows, times.now_ms + times.retention_ms)
    return bytes(batch.buffer)


def _compact_records(
    batch: RecordBatch, last_offsets: dict[bytes, int], is_last: bool, times: CompactionTimes
) -> bytes | None:
    horizon = _read_horizon(batch)
    keeps_tombstones = horizon is None or times.now_ms < horizon
    rows = batch.rows(check_crcs=False)
    kept = [
        row
        for row in rows
        if row[2] is not None
        and row[0] >= last_offsets.get(bytes(row[2]), -1)
        and (row[3] is not None or keeps_tombstones)
    ]
    if not kept:
        return _keep_if_last(batch, is_last)
    if horizon is None and any(row[3] is None for row in kept):
        return _rebuild_batch(batch, kept, times.now_ms + times.retention_ms)
    if len(kept) == len(rows):
        return bytes(batch.buffer)
    return _rebuild_batch(batch, kept, horizon)


def _rebuild_batch(batch: RecordBatch, rows: Sequence[Row], horizon: int | None) -> bytes:
    """Return a batch with some of its records, and perhaps with a delete horizon."""
    attributes = _read_attributes(batch)
    base = rows[0][1] if horizon is None else horizon
    content = b"".join(_encode_row(row, base, batch.base_offset) for row in rows)
    compressed = bytes(compress(Compression(attributes & CODEC_MASK), content))
    if horizon is not None:
        attributes |= _HORIZON
    latest = max(row[1] for row in rows)
    return _build_batch(batch, attributes, base, latest, len(rows), compressed)


def _build_batch(
    batch: RecordBatch, attributes: int, base: int, latest: int, count: int, content: bytes
) -> bytes:
    """Return a batch with the offsets and the producer of `batch`, and other records."""
    data = bytearray(HEADER_SIZE) + content
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        len(data) - LOG_OVERHEAD,
        batch.leader_epoch,
        2,
        0,
        attributes,
        batch.last_offset - batch.base_offset,
        base,
        latest,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    seal_crc(data)
    return bytes(data)


def _read_attributes(batch: RecordBatch) -> int:
    return int.from_bytes(batch.buffer[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big")


def _read_horizon(batch: RecordBatch) -> int | None:
    """Return the time from which tombstones in a batch may be removed, if it has one."""
    return batch.base_timestamp if _read_attributes(batch) & _HORIZON else None


def _encode_row(row: Row, base_timestamp: int, base_offset: int) -> bytes:
    offset, timestamp, key, value, headers = row
    parts = [
        b"\0",
        _encode_varint(timestamp - base_timestamp),
        _encode_varint(offset - base_offset),
        _encode_bytes(key),
        _encode_bytes(value),
        _encode_varint(len(headers)),
    ]
    for name, content in headers:
        parts += (_encode_bytes(name.encode()), _encode_bytes(content))
    body = b"".join(parts)
    return _encode_varint(len(body)) + body


def _encode_bytes(content: bytes | None) -> bytes:
    return _encode_varint(-1) if content is None else _encode_varint(len(content)) + content


def _encode_varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
