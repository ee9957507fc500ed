"""The native twin of `producer._pure.deliveries`: `DeliveryRuns`, and the loops of `gather`."""

from aiokclient.producer._pure.delivery import Run as RunTuple

from cpython.mem cimport PyMem_Free, PyMem_Realloc


cdef extern from "Python.h":
    PyTypeObject *_type "Py_TYPE"(PyObject *)
    PyObject *_item "PySequence_Fast_GET_ITEM"(object sequence, Py_ssize_t index)
    Py_ssize_t _size "PySequence_Fast_GET_SIZE"(object sequence)
    void _xdecref "Py_XDECREF"(PyObject *)

cdef extern from "plain_tuple.h":
    int aiok_append(PyObject *list, PyObject *item) except -1


cdef uint64_t run_serials = 0


cdef class DeliveryRuns:
    """See `producer._pure.deliveries.DeliveryRuns`.

    A run refers to its batch by the batch's index in a list.
    """

    def __cinit__(self):
        global run_serials
        run_serials += 1
        self._serial = run_serials
        self._batches = []

    def __init__(self, runs=()):
        for run in runs:
            self.add_run(run)

    def __dealloc__(self):
        PyMem_Free(self._runs)

    def add_run(self, run):
        """Append the deliveries of a run."""
        batch, first, size, timestamp = run
        self.put(batch, first, size, timestamp)

    cdef int put(
        self, DeliveryBatch batch, Py_ssize_t first, Py_ssize_t size, int64_t timestamp
    ) except -1:
        cdef Py_ssize_t end = self._runs[self._count - 1].end if self._count else 0
        cdef Run *run
        cdef Py_ssize_t room
        if batch.asker != self._serial:
            self._batches.append(batch)
            batch.asker = self._serial
            batch.number = len(self._batches) - 1
        if self._count == self._room:
            room = 2 * self._room + 8
            run = <Run *>PyMem_Realloc(self._runs, room * sizeof(Run))
            if run == NULL:
                raise MemoryError
            self._runs, self._room = run, room
        run = self._runs + self._count
        run.end, run.first, run.number, run.timestamp = end + size, first, batch.number, timestamp
        self._count += 1
        return 0

    cdef int put_one(self, DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except -1:
        cdef Run *run
        cdef Py_ssize_t start
        if self._count and batch.asker == self._serial:
            run = self._runs + self._count - 1
            start = self._runs[self._count - 2].end if self._count > 1 else 0
            if (
                run.number == batch.number
                and run.timestamp == timestamp
                and run.first + run.end - start == index
            ):
                run.end += 1
                return 0
        return self.put(batch, index, 1, timestamp)

    @property
    def runs(self):
        """The runs of deliveries in the sequence."""
        cdef Py_ssize_t i, start = 0
        found = []
        for i in range(self._count):
            run = self._runs[i]
            found.append(
                RunTuple(self._batches[run.number], run.first, run.end - start, run.timestamp)
            )
            start = run.end
        return found

    def __len__(self):
        return self._runs[self._count - 1].end if self._count else 0

    def __iter__(self):
        cdef Py_ssize_t i = 0, start = 0, at
        while i < self._count:
            at = start
            while i < self._count and at < self._runs[i].end:
                yield made(self, i, at - start)
                at += 1
            start = at
            i += 1

    def __getitem__(self, index):
        cdef Py_ssize_t at, run
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError("deliveries index out of range")
        run = find(self, at)
        return made(self, run, at - (self._runs[run - 1].end if run else 0))

    def __repr__(self):
        return f"<Deliveries of {len(self)} records in {self._count} runs>"


cdef Py_ssize_t find(DeliveryRuns runs, Py_ssize_t at) noexcept:
    """Return the index of the run that contains the delivery with index `at`, which must exist."""
    cdef Py_ssize_t low = 0, high = runs._count, middle
    while low < high:
        middle = (low + high) // 2
        if runs._runs[middle].end <= at:
            low = middle + 1
        else:
            high = middle
    return low


cdef Delivery made(DeliveryRuns runs, Py_ssize_t run, Py_ssize_t nth):
    cdef Run *found = runs._runs + run
    batch = runs._batches[found.number]
    return aiok_delivery_new(
        deliveries, <PyObject *>batch, found.first + nth, found.timestamp
    )


cdef class Gathering:
    """Two passes over deliveries: `skip_lingers` sends their batches, `collect_outcomes` takes their outcomes.

    Each call handles at most `limit` deliveries. It returns None after the last one, True if there
    are more, or a batch for whose outcome the caller must wait first.
    """

    cdef object _items
    cdef DeliveryRuns _runs
    cdef Py_ssize_t _demanded
    cdef Py_ssize_t _seen
    cdef Py_ssize_t _run
    cdef DeliveryBatch _last
    cdef DeliveryBatch _called
    cdef PyObject *_time
    cdef int64_t _time_is
    cdef readonly list results
    cdef readonly object failure

    def __cinit__(self, deliveries):
        self.results = []
        if isinstance(deliveries, DeliveryRuns):
            self._runs = deliveries
        else:
            self._items = deliveries if type(deliveries) is list else list(deliveries)

    def __dealloc__(self):
        _xdecref(self._time)

    def skip_lingers(self, Py_ssize_t limit):
        """Send the batches without lingering, because a task waits for them."""
        cdef Py_ssize_t at = self._demanded, end
        cdef object items = self._items
        cdef PyObject *item
        cdef PyObject *last = NULL if self._last is None else <PyObject *>self._last
        cdef DeliveryBatch batch
        if self._runs is not None:
            for batch in self._runs._batches:
                skip_linger(batch)
            return None
        end = min(_size(items), at + limit)
        while at < end:
            item = _item(items, at)
            at += 1
            if is_delivery(item) and batch_of(item) == last:
                continue
            self._last = batch = delivery_at(items, at - 1)._batch
            last = <PyObject *>batch
            skip_linger(batch)
            end = min(_size(items), end)  # Python code that was called may have changed the list.
        self._demanded = at
        return True if at < _size(self._items) else None

    def collect_outcomes(self, Py_ssize_t limit):
        """Append the outcomes to `results`, and store the first failure in `failure`."""
        if self._runs is not None:
            return self._collect_runs(limit)
        return self._collect_list(limit)

    cdef object _collect_list(self, Py_ssize_t limit):
        cdef object items = self._items
        cdef Py_ssize_t end = min(_size(items), self._seen + limit)
        cdef PyObject *item
        cdef PyObject *written = NULL
        cdef Delivery delivery
        cdef DeliveryBatch batch, pending
        while self._seen < end:
            item = _item(items, self._seen)
            if is_delivery(item) and batch_of(item) == written:
                # The batch is written, and no Python code has run since the last delivery.
                self._note(batch, (<Delivery>item)._index, 1, (<Delivery>item)._timestamp)
                self._seen += 1
                continue
            delivery = delivery_at(items, self._seen)
            pending = self._take(delivery._batch, delivery._index, delivery._timestamp)
            if pending is not None:
                return pending
            self._seen += 1
            end = min(_size(items), end)
            batch = delivery._batch
            written = <PyObject *>batch if is_written(batch) else NULL
        return True if self._seen < _size(items) else None

    cdef object _collect_runs(self, Py_ssize_t limit):
        cdef DeliveryRuns runs = self._runs
        cdef Py_ssize_t end = min(len(runs), self._seen + limit)
        cdef Py_ssize_t start, count
        cdef Run *run
        cdef DeliveryBatch batch, pending
        while self._seen < end:
            start = runs._runs[self._run - 1].end if self._run else 0
            run = runs._runs + self._run
            batch = runs._batches[run.number]
            while self._seen < run.end and self._seen < end:
                if is_written(batch):
                    count = min(run.end, end) - self._seen
                    self._note(batch, run.first + self._seen - start, count, run.timestamp)
                    self._seen += count
                    continue
                pending = self._take(batch, run.first + self._seen - start, run.timestamp)
                if pending is not None:
                    return pending
                self._seen += 1
                run = runs._runs + self._run
            if self._seen == run.end:
                self._run += 1
        return True if self._seen < len(runs) else None

    cdef DeliveryBatch _take(self, DeliveryBatch batch, Py_ssize_t index, int64_t timestamp):
        """Append the outcome of one record. If it has none yet, return the batch to wait for."""
        if index < batch.moved:
            batch = locate(batch, &index)
        if not batch.done:
            skip_linger(batch)
            return batch
        if batch.calls and batch is not self._called:
            self._called = batch  # The callbacks of the batch run first.
            return batch
        if batch.error is not None:
            error = batch.retrieve_error(index)
            if self.failure is None:
                self.failure = error
            self.results.append(error)
            return None
        self._note(batch, index, 1, timestamp)
        return None

    cdef int _note(
        self, DeliveryBatch batch, Py_ssize_t index, Py_ssize_t count, int64_t timestamp
    ) except -1:
        """Append the metadata of `count` written records. This calls no Python code."""
        cdef PyObject *results = <PyObject *>self.results
        if batch.append_time >= 0:
            timestamp = batch.append_time
        if self._time == NULL or self._time_is != timestamp:
            _xdecref(self._time)
            self._time = NULL
            self._time = _new_long(timestamp)
            self._time_is = timestamp
        for index in range(index, index + count):
            aiok_append(results, metadata_at(batch, index, self._time))
        return 0


cdef inline bint is_delivery(PyObject *item) noexcept:
    return _type(item) == <PyTypeObject *>Delivery


cdef inline PyObject *batch_of(PyObject *delivery) noexcept:
    return <PyObject *>(<Delivery>delivery)._batch


cdef inline bint is_written(DeliveryBatch batch) noexcept:
    """Return whether all records are written and in this batch, and all callbacks have run."""
    return batch.done and not batch.moved and batch.error is None and not batch.calls


cdef inline Delivery delivery_at(object items, Py_ssize_t index):
    cdef PyObject *item = _item(items, index)
    if type(<object>item) is not Delivery or (<Delivery>item)._batch is None:
        raise TypeError(f"gather() takes deliveries, not {type(<object>item).__name__}.")
    return <Delivery>item


cdef int skip_linger(DeliveryBatch batch) except -1:
    """Send the batch, and the batches to which its records have moved, without lingering."""
    batch.skip_linger()
    if batch._forwards is not None:
        for target in batch.targets:
            skip_linger(target)
    return 0
