"""The way of requests and responses through a connection, in the usual case.

These are the native twins of `HeldState`, `MeterState`, `PendingRequest`, and `ConnectionState`, in
`network`, and of `TimerState` in `background`. They use those of `ReaderState` (ground_frames.pxi),
`PipelineState`, `TemplateState`, and `BatchesState` (ground_requests.pxi), in `protocol`.

A usual request can be written at once. A usual response is a small frame with the correlation id of
the oldest request in flight, and without tags in its header. Of a produce request with one batch,
also the message is handled here: it is written around the batch, and the response of a success,
which is the same for all batches of a partition except for three numbers, is compared with the
bytes that the codec has made for it.

The classes have the fields that the usual case reads and changes. All else is in the Python classes
that derive from them: setting up, held requests, throttle times, large frames, responses that are
decoded in threads, errors, and closing. Where a case is not usual, nothing was changed here before
the Python code is called. The order of the steps is that of the Python twins: a request is counted
and logged after it was written, and a response before it is delivered. The receiver of a response
may send requests and close the connection.
"""


from cpython.dict cimport PyDict_GetItem


cdef enum:
    LARGE = 128 * 1024
    UNCOUNTED = 64

cdef object DEBUG = 10  # As in `logging`, which `types` does not need.


cdef object kafka_error():
    # The class is imported when it is needed, because its module imports this one.
    from aiokclient.errors import KafkaError
    return KafkaError


cdef object protocol_error():
    from aiokclient.errors import ProtocolError
    return ProtocolError


cdef class HeldState:
    """See `network.flow.HeldState`."""


cdef class MeterState:
    """See `network.traffic.MeterState`."""

    def count_response(
        self, broker, PendingRequest sent, response, Py_ssize_t size, double now, throttle_ms
    ):
        """Count a response. `now` is on the loop's clock."""
        count_response(self, broker, sent, response, size, now, throttle_ms)


cdef inline bint is_quiet(MeterState self) except -1:
    """Return whether the wire log is known to be off."""
    cdef PyObject *known = PyDict_GetItem(self.known_levels, DEBUG)
    if known != NULL and <object>known is False:
        return True
    return not self.is_logged(DEBUG)


cdef int count_request(
    MeterState self, object broker, PendingRequest sent, Py_ssize_t size
) except -1:
    self.sizes.append(size)
    if len(self.sizes) >= UNCOUNTED:
        self.count_latest()
    if not is_quiet(self):
        self.traffic.log_request(broker, sent.api, sent.version, size)
    return 0


cdef int count_response(
    MeterState self,
    object broker,
    PendingRequest sent,
    object response,
    Py_ssize_t size,
    double now,
    object throttle_ms,
) except -1:
    cdef PyObject *waits = PyDict_GetItem(self.waits, type(sent.message))
    cdef double seconds = now - sent.since
    if waits == NULL:
        (<list>self._add_waits(sent)).append(seconds)
    else:
        (<list>waits).append(seconds)
    self.received += size
    if throttle_ms is not None and throttle_ms > 0:
        self._count_throttle(sent, throttle_ms)
    if not is_quiet(self):
        self.traffic.log_response(broker, sent.api, sent.version or 0, size, seconds, response)
    return 0


cdef class TimerState:
    """See `background.TimerState`."""


cdef class PendingRequest:
    """See `network.connection.PendingRequest`."""

    def __init__(self, message, version, double since, double timeout_s, bint expect):
        self.message = message
        self.version = version
        self.since = since
        self.timeout_s = timeout_s
        self.deadline = since + timeout_s
        self.expect_response = expect

    def restart_timeout(self, double now):
        """Start the timeout of the request now."""
        self.since = now
        self.deadline = now + self.timeout_s

    @property
    def api(self):
        """The name of the request's API, such as "Fetch"."""
        return self.message.api_key.api_name

    @property
    def over(self):
        """Whether the request has an outcome, or was cancelled."""
        raise NotImplementedError

    cpdef deliver_response(self, response):
        """Deliver the response."""
        raise NotImplementedError

    def on_written(self):
        """Complete a request that has no response, once the transport has it."""
        raise NotImplementedError

    def fail(self, error):
        """End the request with an error instead of a response."""
        raise NotImplementedError


cdef class ConnectionState:
    """See `network.connection.ConnectionState`."""

    def start_request(self, PendingRequest sent not None, double now):
        """Send a request that the caller has made. `now` is the time on the loop's clock."""
        start_request(self, sent, now)

    def _write_request(self, PendingRequest sent not None):
        write_request(self, sent)

    def get_buffer(self, sizehint):
        self._buffer = buffer = next_buffer(self._reader)
        return buffer

    def buffer_updated(self, Py_ssize_t nbytes):
        if self._setup is not None:
            self._read_setup(self._setup, nbytes)
            return
        try:
            frames = take(self._reader, nbytes)
        except protocol_error() as error:
            self._close_oversized(error)
            return
        if self._threshold is not None:
            self._threshold.expect_bytes(self._reader.missing)
        self.is_reading = True
        try:
            if type(frames) is bytes:
                read_frame(self, frames)
            else:
                for frame in <list>frames:
                    read_frame(self, frame)
        finally:
            self.is_reading = False
            while self.after_read:
                function = self.after_read.pop()
                function()

    def call_after_read(self, function):
        """Call a function once all frames of the present read are handled. It must not raise.

        Return False, and do not call it, if no read is being handled: a large response is decoded
        in a thread, for example.
        """
        return call_after_read(self, function)

    def on_response(self, response, Py_ssize_t size):
        """Complete the oldest request in flight. `size` is that of the response's frame."""
        complete_request(self, response, size)


cdef int start_request(ConnectionState self, PendingRequest sent, double now) except -1:
    cdef HeldState held = self._held
    if self._open_transport is None:
        self._fail_unwritten(sent)
        return 0
    if sent.version is None:
        try:
            sent.version = self.broker.version_of(type(sent.message))
        except kafka_error() as error:
            sent.fail(error)
            return 0
    self._last_used = now
    if held.paused or now < held.throttled_until or held.requests:
        self._timer.wake_at(held.hold_request(sent, now))
        return 0
    write_request(self, sent)
    if sent.deadline < self._timer.due:  # Usually, an earlier request has set it.
        self._timer.wake_at(sent.deadline)
    return 0


cdef bint call_after_read(ConnectionState self, object function) except -1:
    if self.is_reading:
        if self.after_read is None:
            self.after_read = []
        self.after_read.append(function)
    return self.is_reading


cdef int write_request(ConnectionState self, PendingRequest sent) except -1:
    cdef object transport = self._open_transport
    cdef object frame
    cdef Py_ssize_t size
    if transport is None or transport.is_closing():
        self._fail_unwritten(sent)
        return 0
    try:
        frame = encode(self._pipeline, sent.message, sent.version, sent.expect_response)
    except kafka_error() as error:
        error.broker = self.broker.node_id
        sent.fail(error)
        return 0
    if sent.expect_response:
        append(self._in_flight, sent)
    else:
        self._one_way = True
        sent.on_written()
    if type(frame) is list:
        size = self._write_segments(transport, frame)
    else:
        size = len(frame)
        transport.write(frame)
    # This comes after the write: it takes no time from the response, for which a task may wait.
    return count_request(self._meter, self.broker, sent, size)


cdef int read_frame(ConnectionState self, object frame) except -1:
    cdef Py_ssize_t size
    if self._open_transport is None:  # The connection was closed meanwhile.
        return 0
    size = len(frame)
    if size >= LARGE or self._decoding:
        self._read_unusual(frame)
        return 0
    try:
        response = read(self._pipeline, frame)
    except protocol_error() as error:
        self.close(error)
        return 0
    return complete_request(self, response, size)


cdef int complete_request(ConnectionState self, object response, Py_ssize_t size) except -1:
    cdef PendingRequest sent
    cdef object throttle_ms = None
    cdef double now
    if self._open_transport is None:
        return 0
    sent = <PendingRequest?>popleft(self._in_flight)
    now = self._now()
    self._last_used = now
    # A list tells that all batches were written. It comes from a response without a throttle.
    if type(response) is not list:
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._apply_throttle(now, throttle_ms / 1000)
    count_response(self._meter, self.broker, sent, response, size, now, throttle_ms)
    # Throttle before delivering the response, because its receiver may send a request.
    if self._draining and not (self._in_flight or self._held.requests):
        self.close(None)
    sent.deliver_response(response)
    return 0
