"""The splitting of a byte stream into frames: the native twin of `framing.ReaderState`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memmove


cdef enum:
    SCRATCH = 64 * 1024
    SPARE = 8
    REMAINDER = 512
    LULL = 16

cdef list spare = []


cdef class ReaderState:
    """See `protocol.framing.ReaderState`."""

    def get_buffer(self):
        """Return memory for the next bytes, at least one."""
        return next_buffer(self)

    def take_frames(self, Py_ssize_t count):
        """Return the frames that are complete after `count` more bytes, without their lengths.

        Raises ProtocolError for a length that is negative or above max_frame, before memory is
        allocated for it. The connection must then be closed.
        """
        frames = take(self, count)
        return [frames] if type(frames) is bytes else frames


cdef object next_buffer(ReaderState self):
    cdef object scratch = self._scratch
    if self._frame is not None:
        return self._get_large_buffer()
    if scratch is None:
        scratch = spare.pop() if spare else memoryview(bytearray(SCRATCH))
        self._scratch = scratch
        if not self._filled:
            return scratch
        memcpy(bytes_of(scratch), PyBytes_AS_STRING(self.remainder), self._filled)
        self.remainder = None
    return scratch[self._filled:]


cdef object take(ReaderState self, Py_ssize_t count):
    """Return the frame if the new bytes complete exactly one, which is usual, or a list of frames."""
    cdef object scratch = self._scratch
    cdef const uint8_t *data
    cdef Py_ssize_t filled, start = 0, begin
    cdef int32_t length
    cdef list frames
    cdef bytes frame
    if self._frame is not None:
        return self._fill_large_frame(count)
    data = bytes_of(scratch)
    filled = self._filled + count
    frames = None
    while filled - start >= LENGTH_SIZE:
        length = read_int32(data + start)
        if not 0 <= length <= self.max_frame:
            self._refuse_length(scratch, start, filled)
        begin = start + LENGTH_SIZE
        if length > filled - begin:
            if length > SCRATCH - LENGTH_SIZE:
                self._begin_large_frame(scratch[begin:filled], length)
                start = filled
            break
        frame = PyBytes_FromStringAndSize(<const char *>data + begin, length)
        if start == 0 and begin + length == filled:
            end_reading(self, scratch, filled, filled)
            return frame
        if frames is None:
            frames = []
        frames.append(frame)
        start = begin + length
    end_reading(self, scratch, start, filled)
    return [] if frames is None else frames


cdef int end_reading(
    ReaderState self, object scratch, Py_ssize_t start, Py_ssize_t filled
) except -1:
    """Keep the bytes from `start` on for the next read."""
    cdef uint8_t *data = bytes_of(scratch)
    cdef Py_ssize_t rest = filled - start
    if rest <= REMAINDER:
        if rest:
            self.remainder = PyBytes_FromStringAndSize(<const char *>data + start, rest)
        self._scratch = None
        if len(spare) < SPARE:
            spare.append(scratch)
    elif start:
        memmove(data, data + start, rest)
    self._filled = rest
    self._lull += 1
    if self._lull == LULL:
        self._pool.clear()
    return 0


cdef inline uint8_t *bytes_of(object view) noexcept:
    """Return the memory of a scratch buffer."""
    return <uint8_t *>PyMemoryView_GET_BUFFER(view).buf


cdef inline int32_t read_int32(const uint8_t *at) noexcept:
    return <int32_t>(
        <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]
    )


cdef inline int64_t read_int64(const uint8_t *at) noexcept:
    return <int64_t>(
        <uint64_t><uint32_t>read_int32(at) << 32 | <uint32_t>read_int32(at + 4)
    )
