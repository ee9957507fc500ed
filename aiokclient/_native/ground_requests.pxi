"""Requests and their responses.

These are the native twins of `TemplateState`, `BatchesState`, and `PipelineState`, in `protocol`.
"""

from collections import deque

from libc.string cimport memcmp


cdef enum:
    OFFSETS = 16  # The size of the numbers of a response without the start of the log.

# These take the deque as an argument: a call by name would look the name up for each request.
cdef object append = deque.append
cdef object popleft = deque.popleft


cdef class TemplateState:
    """See `protocol.produce_template.TemplateState`."""

    def read_answer(self, frame, Py_ssize_t position):
        """Return a list with the `Written` of the batch if the response is the usual one.

        Otherwise, return None.
        """
        return read_answer(self, <bytes>frame, position) if type(frame) is bytes else None


cdef object read_answer(TemplateState self, bytes frame, Py_ssize_t position):
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(frame) + position
    cdef Py_ssize_t start = len(self.answer_head), end = self.answer_size - len(self.answer_tail)
    cdef int64_t log_start = -1
    if len(frame) - position != self.answer_size:
        return None
    if memcmp(at, PyBytes_AS_STRING(self.answer_head), start):
        return None
    if memcmp(at + end, PyBytes_AS_STRING(self.answer_tail), len(self.answer_tail)):
        return None
    if end - start > OFFSETS:
        log_start = read_int64(at + start + OFFSETS)
    return [(read_int64(at + start), read_int64(at + start + 8), log_start)]


cdef class BatchesState:
    """See `protocol.produce_template.BatchesState`."""


ctypedef object (*Constructor)(PyTypeObject *, PyObject *, PyObject *)


cpdef BatchesState new_request(object kind, list templates, list batches):
    """See `protocol.produce_template.new_request`."""
    cdef PyTypeObject *wanted = <PyTypeObject *>kind
    cdef BatchesState made = (<Constructor>wanted.tp_new)(wanted, <PyObject *>(), NULL)
    made.templates = templates
    made.batches = batches
    return made


cdef class PipelineState:
    """See `protocol.framing.PipelineState`."""

    def encode_request(self, request, version, bint expect_response=True):
        """Encode a request, and return its correlation id and the segments of its frame.

        expect_response: False for a produce request with acks=0
        Raises the errors of `Message.encode_into`. The request is not in flight then.
        """
        cdef int32_t number = self._next
        frame = encode(self, request, version, expect_response)
        return number, frame if type(frame) is list else [frame]

    def read_response(self, frame):
        """Return the response to the oldest request in flight, which is removed.

        This is `match_response` and `InFlight.decode` in one call. Raises their errors.
        """
        return read(self, frame)


cdef object encode(PipelineState self, object request, object version, bint expect):
    """Return the only segment of a frame, or the list of its segments."""
    cdef int32_t number = self._next
    cdef TemplateState template = None
    cdef object frame = None
    cdef uint8_t digits[LENGTH_SIZE]
    if type(request) is not self.kind or version is not self.version:
        learn_header(self, type(request), version)
    if isinstance(request, BatchesState) and len((<BatchesState>request).templates) == 1:
        first = (<BatchesState>request).templates[0]
        if isinstance(first, TemplateState) and (<TemplateState>first).version == version:
            template = <TemplateState>first
            frame = frame_batch(
                (<BatchesState>request).batches[0],
                self.start,
                number,
                self.end,
                template.head,
                template.tail,
                template.flexible,
            )
    if frame is None:
        put_length(digits, number)
        packed = PyBytes_FromStringAndSize(<const char *>digits, LENGTH_SIZE)
        frame = request.encode_frame(version, self.start + packed + self.end)
        if type(frame) is list and len(<list>frame) == 1:
            frame = (<list>frame)[0]
    self._next = 0 if number == INT32_MAX else number + 1
    if expect:
        append(self._in_flight, (number, request, version, self.response_header, template))
    return frame


cdef int learn_header(PipelineState self, object kind, object version) except -1:
    header = self._headers.get((kind, version))
    if header is None:
        header = self._add_header(kind, version)
    self.kind = None
    self.start, self.end, self.response_header = header
    self.kind, self.version = kind, version
    return 0


cdef object read(PipelineState self, object frame):
    cdef const uint8_t *data
    cdef Py_ssize_t position = LENGTH_SIZE
    cdef tuple entry
    if type(frame) is bytes and len(<bytes>frame) > LENGTH_SIZE and self._in_flight:
        data = <const uint8_t *>PyBytes_AS_STRING(frame)
        entry = self._in_flight[0]
        if read_int32(data) == <int32_t>entry[0]:
            if entry[3]:  # The response has a flexible header, usually without tags.
                position = -1 if data[LENGTH_SIZE] else LENGTH_SIZE + 1
            if position > 0:
                popleft(self._in_flight)
                if entry[4] is not None:
                    answer = read_answer(<TemplateState>entry[4], <bytes>frame, position)
                    if answer is not None:
                        return answer
                return entry[1].read_response(frame, position, entry[2])[0]
    return self.match_response(frame).decode(frame)
