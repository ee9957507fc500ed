"""Tests of a partition's log against a list of batches, by hypothesis."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient.record.batch import RecordBatch, RecordBatchBuilder, walk, with_offset
from aiokclient.testing.broker.topics.log import EpochCache, PartitionLog

sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=30)


def filled(batches, segment_bytes=1000):
    """Return a log with batches of (record count, record size), and the offsets of each batch."""
    log, spans = PartitionLog(), []
    log.epochs.assign_epoch(0, 0)
    for count, size in batches:
        builder = RecordBatchBuilder(limit=1 << 20)
        for _ in range(count):
            builder.append(len(spans), None, bytes(size))
        builder.close()
        data = with_offset(builder.seal(), log.end_offset, 0)
        spans.append((log.end_offset, log.end_offset + count, len(data)))
        log.append_batch(data, RecordBatch(data), segment_bytes=segment_bytes)
    return log, spans


def bytes_of(pieces):
    return b"".join(bytes(each) for each in pieces)


@given(sizes, st.data())
@settings(deadline=None)
def test_a_log_returns_the_appended_batches(batches, data):
    log, spans = filled(batches)
    start = data.draw(st.integers(0, log.end_offset))
    upper = data.draw(st.sampled_from([base for base, _, _ in spans] + [log.end_offset]))
    limit = data.draw(st.integers(0, 3000))
    whole = data.draw(st.booleans())
    pieces, size, end = log.read_range(start, upper, limit, whole_first=whole)
    expected = [span for span in spans if span[1] > start and span[0] < upper and start < upper]
    content = bytes_of(pieces)
    assert len(content) == size
    if not content:
        assert not expected or (not whole and expected[0][2] > limit)
        return
    found = [(batch.base_offset, batch.next_offset, batch.size) for batch in walk(content)]
    assert found == expected[: len(found)]
    if size > limit:
        assert len(found) == 1
        assert whole
    elif len(found) < len(expected):
        assert size == limit
    assert end >= found[-1][1]


@given(sizes, st.data())
@settings(deadline=None)
def test_truncation_removes_whole_batches(batches, data):
    log, spans = filled(batches)
    to = data.draw(st.integers(0, log.end_offset))
    log.truncate(to)
    kept = [span for span in spans if span[1] <= to]
    assert log.end_offset == (kept[-1][1] if kept else 0)
    assert [(b.base_offset, b.next_offset, b.size) for b in log.read_batches()] == kept
    assert log.size == sum(size for _, _, size in kept)
    more, _ = filled([(2, 10)])
    (extra,) = more.read_batches()
    again = with_offset(extra.buffer, log.end_offset, 1)
    log.append_batch(again, RecordBatch(again), segment_bytes=1000)
    assert [b.base_offset for b in log.read_batches()] == [span[0] for span in kept] + [
        to and log.end_offset - 2
    ]


@given(sizes, st.integers(0, 5000), st.data())
@settings(deadline=None)
def test_retention_removes_old_segments(batches, size, data):
    log, spans = filled(batches)
    limit = data.draw(st.integers(0, log.end_offset))
    log.remove_oldest(size, limit)
    assert log.start_offset <= limit or log.start_offset == 0
    kept = [span for span in spans if span[0] >= log.start_offset]
    assert [b.base_offset for b in log.read_batches(log.start_offset)] == [each[0] for each in kept]
    assert log.size == sum(each[2] for each in kept)


@given(sizes, st.data())
@settings(deadline=None)
def test_deleted_records_cannot_be_read(batches, data):
    log, spans = filled(batches)
    before = data.draw(st.integers(0, log.end_offset))
    log.delete_before(before)
    assert log.start_offset == before
    content = bytes_of(log.read_range(before, log.end_offset, 1 << 20, whole_first=True)[0])
    expected = [span[0] for span in spans if span[1] > before]
    assert [batch.base_offset for batch in walk(content)] == expected


def test_a_log_stores_the_first_offset_of_each_epoch():
    cache = EpochCache()
    assert cache.find_end(0, 0) == (-1, -1)
    for epoch, start in ((0, 0), (2, 10), (5, 20)):
        cache.assign_epoch(epoch, start)
    ends = {epoch: cache.find_end(epoch, 30) for epoch in range(-1, 7)}
    assert ends == {
        -1: (-1, -1),
        0: (0, 10),
        1: (0, 10),
        2: (2, 20),
        3: (2, 20),
        4: (2, 20),
        5: (5, 30),
        6: (-1, -1),
    }
    assert [cache.find_epoch(offset) for offset in (0, 9, 10, 25)] == [0, 0, 2, 5]
    cache.remove_before(15)
    assert cache.find_end(0, 30) == (0, 15)
    assert cache.find_end(2, 30) == (2, 20)
    # An epoch without records is not remembered.
    cache.assign_epoch(6, 20)
    assert cache.find_end(5, 30) == (2, 20)
    cache.truncate_at(16)
    assert cache.find_end(2, 16) == (2, 16)
