"""Tests of memory that is reused when nothing refers to it any more."""

import gc
import importlib.util
import sys
import threading
from typing import Any

import pytest

from aiokclient import memory
from aiokclient._native import in_use
from aiokclient.memory import BufferPool
from aiokclient.protocol.framing import FrameReader

NATIVE = in_use()
KIB, MIB = 1 << 10, 1 << 20


def in_python() -> Any:
    spec = importlib.util.spec_from_file_location("pure_memory", memory.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiokclient._native.WANTED", False)
        spec.loader.exec_module(module)
    return module.BufferPool


KINDS = {"pure": in_python(), "native" if NATIVE else "pure": BufferPool}
native = pytest.mark.skipif(not NATIVE, reason="the native modules are not in use")


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_memory_is_of_the_size_asked_for(kind: Any) -> None:
    pool = kind(MIB)
    for size in (0, 1, 63, 64, 5000, 100_000):
        view = pool.take(size)
        assert (len(view), view.readonly, view.format, view.nbytes) == (size, False, "B", size)
        view[:] = bytes([size & 255]) * size
        part = view[size // 2 :]
        del view
        other = pool.take(size)
        other[:] = bytes(size)
        assert bytes(part) == bytes([size & 255]) * (size - size // 2)
    pool.clear()
    with pytest.raises((ValueError, OverflowError)):
        pool.take(-1)
    with pytest.raises((MemoryError, OverflowError)):
        pool.take(sys.maxsize)


@native
def test_the_memory_that_was_released_last_is_used_first() -> None:
    pool = BufferPool(MIB)
    views = [pool.take(100 * KIB) for _ in range(3)]
    for mark in range(3):
        views[mark][0] = mark
    for mark in (1, 2, 0):
        views[mark] = memoryview(b"")
    assert [pool.take(100 * KIB)[0] for _ in range(2)] == [0, 0]
    held = [pool.take(100 * KIB) for _ in range(3)]
    assert [view[0] for view in held] == [0, 2, 1]


@native
def test_what_nobody_holds_is_used_again() -> None:
    pool = BufferPool(MIB)
    view = pool.take(100 * KIB)
    view[:4] = b"mark"
    keeper = memoryview(view)[50:60]
    del view
    assert pool.kept == 0
    del keeper
    assert 100 * KIB <= pool.kept <= 120 * KIB
    assert bytes(pool.take(99 * KIB)[:4]) == b"mark"
    assert bytes(pool.take(60 * KIB)[:4]) == b"mark"
    assert pool.kept >= 100 * KIB
    # The kept buffer has five times the size that is needed, so it is not used.
    small = pool.take(20 * KIB)
    assert pool.kept >= 100 * KIB
    del small
    pool.clear()
    assert pool.kept == 0


@native
def test_no_more_is_kept_than_the_limit() -> None:
    pool = BufferPool(MIB)
    views = [pool.take(300 * KIB) for _ in range(5)]
    large = pool.take(2 * MIB)
    del views, large
    assert 600 * KIB < pool.kept <= MIB
    views = [pool.take(size * KIB) for size in range(40, 80)]
    pool.clear()
    del views
    assert pool.kept <= MIB
    none = BufferPool(0)
    none.take(100 * KIB)
    assert none.kept == 0


@native
def test_it_is_given_back_from_any_thread_and_after_the_pool() -> None:
    pool = BufferPool(MIB)
    views = [pool.take(40 * KIB)]
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert pool.kept > 0
    view = pool.take(40 * KIB)
    del pool
    view[:] = bytes(40 * KIB)
    del view
    gc.collect()


def frame(size: int, content: int) -> bytes:
    return size.to_bytes(4, "big") + bytes([content]) * size


def fed(reader: FrameReader, data: bytes) -> list[Any]:
    frames: list[Any] = []
    while data:
        room = reader.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += reader.take_frames(count)
        data = data[count:]
    return frames


def test_a_frame_stays_as_long_as_a_part_of_it_is_held() -> None:
    reader = FrameReader(MIB)
    held = [fed(reader, frame(200_000 + n, n))[0][n : n + 9] for n in range(10)]
    for _ in range(10):
        fed(reader, frame(200_000, 99))
    assert [bytes(part) for part in held] == [bytes([n]) * 9 for n in range(10)]


@native
def test_a_reader_gives_memory_back_when_large_frames_no_longer_come() -> None:
    reader = FrameReader(MIB)
    fed(reader, frame(200_000, 1))
    assert reader._pool.kept >= 200_000
    for _ in range(20):
        fed(reader, frame(10, 1))
    assert reader._pool.kept == 0
    fed(reader, frame(200_000, 1))
    assert reader._pool.kept >= 200_000


@native
def test_trim_frees_what_was_not_used_since_the_last_trim() -> None:
    pool = BufferPool(MIB)
    views = [pool.take(100 * KIB) for _ in range(4)]
    views.clear()
    pool.trim()  # All four were in use since the pool was made.
    assert pool.kept >= 400 * KIB
    views = [pool.take(100 * KIB)]
    views.clear()
    pool.trim()
    assert 100 * KIB <= pool.kept <= 120 * KIB
    pool.trim()
    assert pool.kept == 0
