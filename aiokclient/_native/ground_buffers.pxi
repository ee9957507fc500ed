"""The native twin of `memory.BufferPool`. Memory is not cleared before it is used again.

A `MemoryBlock` owns its memory, and each memoryview of it refers to the block. So the memory returns
to the pool when the last view is gone, whoever has it: a record, a table of pyarrow, a transport. The
pool keeps pieces from the oldest to the newest, and frees the oldest ones if there are too many. It
finds the smallest piece that is large enough, but not more than twice as large. `trim` frees what was
not needed since the last time. Small blocks are left to malloc, which keeps them anyway.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef enum:
    ALIGNMENT = 64
    PAGE = 4096
    SMALL = 32 * 1024
    LENGTH_SIZE = 4

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX


@cython.no_gc
@cython.final
cdef class BufferPool:
    """The native twin of `buffers.BufferPool`, with the same interface."""

    def __init__(self, Py_ssize_t limit):
        self.limit = limit

    def __dealloc__(self):
        self.clear()

    def take(self, Py_ssize_t size):
        """Return `size` bytes of memory with arbitrary content."""
        if size < 0:
            raise ValueError(f"The size of a buffer must be at least 0, not {size}.")
        return memoryview(new_block(self, size, 0, 0))

    cpdef int clear(self) except -1:
        """Free the memory that is kept."""
        while self._count:
            free(self._drop(0))
        return 0

    def trim(self):
        """Free the memory that was not used since the last call of `trim`."""
        while self._unused:
            self._unused -= 1
            free(self._drop(0))
        self._unused = self._count

    cdef int _find(self, MemoryBlock block, Py_ssize_t size) except -1:
        cdef int best = -1, i
        for i in range(self._count):
            # The block may live long, so it gets at most twice the memory that it needs.
            if size + ALIGNMENT <= self._rooms[i] and self._rooms[i] // 2 <= size + PAGE:
                if best < 0 or self._rooms[i] < self._rooms[best]:
                    best = i
        if best >= 0:
            block.room = self._rooms[best]
            block.at = self._drop(best)
            self._unused = min(self._unused, self._count)
            return 0
        return allocate(block, size)

    cdef void *_drop(self, int which) noexcept:
        """Remove one kept piece of memory. The others keep their order."""
        cdef void *at = self._at[which]
        cdef int i
        self.kept -= self._rooms[which]
        self._count -= 1
        for i in range(which, self._count):
            self._at[i], self._rooms[i] = self._at[i + 1], self._rooms[i + 1]
        return at

    cdef void _give(self, void *at, Py_ssize_t room) noexcept:
        """Keep a piece of memory for reuse. Free older ones if there are too many."""
        if room > self.limit or room < SMALL:
            free(at)
            return
        while self._count == BLOCKS or self.kept > self.limit - room:
            free(self._drop(0))
            self._unused = min(self._unused, self._count)
        self._at[self._count], self._rooms[self._count] = at, room
        self._count += 1
        self.kept += room


@cython.no_gc
@cython.final
cdef class MemoryBlock:
    """The memory of a view. It is released when no view refers to it any more."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, block_start(self), self.size, 0, flags)

    def __dealloc__(self):
        if self.pool is not None:
            self.pool._give(self.at, self.room)
        else:
            free(self.at)


cdef MemoryBlock new_block(
    BufferPool pool, Py_ssize_t size, Py_ssize_t before, Py_ssize_t after
):
    cdef MemoryBlock block = MemoryBlock.__new__(MemoryBlock)
    if size > PY_SSIZE_T_MAX - before - after:
        raise MemoryError()
    if pool is None:
        allocate(block, before + size + after)
    else:
        pool._find(block, before + size + after)
        block.pool = pool
    block.start = before
    block.size = size
    return block


cdef uint8_t *block_start(MemoryBlock block) noexcept:
    return aligned(block.at) + block.start


def frame_batch(batch, bytearray head not None, bytes tail not None, bint flexible):
    """The native twin of `produce_template.frame_batch`, with the same interface."""
    cdef Py_ssize_t before = len(head), after = len(tail), size
    cdef uint8_t digits[10]
    cdef int count = 0
    cdef uint64_t rest
    cdef Py_buffer *view
    cdef PyObject *owner
    cdef MemoryBlock block
    cdef uint8_t *start
    cdef uint8_t *at
    if not PyMemoryView_Check(batch):
        return None
    view = PyMemoryView_GET_BUFFER(batch)
    owner = <PyObject *>view.obj
    if owner == NULL or type(<object>owner) is not MemoryBlock:
        return None
    block = <MemoryBlock>owner
    start, size = block_start(block), block.size
    if flexible:
        rest = size + 1
        while rest > 0x7F:
            digits[count] = <uint8_t>(rest & 0x7F | 0x80)
            rest >>= 7
            count += 1
        digits[count] = <uint8_t>rest
        count += 1
    else:
        put_length(digits, size)
        count = LENGTH_SIZE
    # Once this was done, the block is larger than the view of the batch.
    if view.buf != start or view.len != size or before + count > block.start:
        return None
    if after > block.room - (start - <uint8_t *>block.at) - size:
        return None
    if before < LENGTH_SIZE or size > INT32_MAX - before - count - after:
        return None
    at = start - count - before
    memcpy(at, PyByteArray_AS_STRING(head), before)
    put_length(at, before + count + size + after - LENGTH_SIZE)
    memcpy(start - count, digits, count)
    memcpy(start + size, PyBytes_AS_STRING(tail), after)
    block.start -= before + count
    block.size += before + count + after
    return memoryview(block).toreadonly()


cdef inline void put_length(uint8_t *at, Py_ssize_t number) noexcept:
    cdef int i
    for i in range(LENGTH_SIZE):
        at[i] = <uint8_t>(number >> (8 * (LENGTH_SIZE - 1 - i)))


cdef int allocate(MemoryBlock block, Py_ssize_t size) except -1:
    if size > PY_SSIZE_T_MAX - (size >> 3) - PAGE:
        raise MemoryError()
    # Small blocks are never kept, so they need no size that others can use.
    block.room = rounded(size) if size >= SMALL - ALIGNMENT else size + ALIGNMENT
    block.at = malloc(block.room)
    if block.at == NULL:
        raise MemoryError()
    return 0


cdef inline uint8_t *aligned(void *at) noexcept:
    """Return the first address that is a multiple of 64, as Arrow requires."""
    return <uint8_t *>((<uintptr_t>at + ALIGNMENT - 1) & ~<uintptr_t>(ALIGNMENT - 1))


cdef Py_ssize_t rounded(Py_ssize_t size) noexcept:
    """Round a size up by an eighth at most, so that similar sizes fit into the same memory."""
    cdef Py_ssize_t step = PAGE // 4
    while step < size >> 4:
        step <<= 1
    return ((size + step - 1) & ~(step - 1)) + ALIGNMENT
