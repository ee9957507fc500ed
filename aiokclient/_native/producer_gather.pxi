"""The native twin of `producer._pure.deliveries`: `DeliveryRuns`, `OutcomeRuns`, and `Gathering`.

Deliveries and outcomes are stored as runs of consecutive records of one batch. `Gathering` extends a
run for each further record, which takes a few instructions; creating its `RecordMetadata` would take
a third of what the producer spends on a record of 100 bytes.
"""

from aiokclient.producer._pure.delivery import Run as RunTuple

from cpython.mem cimport PyMem_Free, PyMem_Realloc


cdef extern from "Python.h":
    PyTypeObject *_type "Py_TYPE"(PyObject *)
    PyObject *_item "PySequence_Fast_GET_ITEM"(object sequence, Py_ssize_t index)
    Py_ssize_t _size "PySequence_Fast_GET_SIZE"(object sequence)

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


cdef class OutcomeRuns:
    """See `producer._pure.deliveries.OutcomeRuns`.

    The source of a run is an item of a list: a tuple of topic and partition, or an error.
    """

    def __cinit__(self):
        global run_serials
        run_serials += 1
        self._serial = run_serials
        self._sources = []

    def __dealloc__(self):
        PyMem_Free(self._runs)

    def add_written(self, DeliveryBatch batch, Py_ssize_t index, Py_ssize_t count, int64_t timestamp):
        """Append the metadata of consecutive records of a batch that was written."""
        self.put_written(batch, index, count, timestamp)

    def add_failed(self, error, Py_ssize_t count):
        """Append the failure of `count` records."""
        self.put_failed(error, count)

    cdef int put_written(
        self, DeliveryBatch batch, Py_ssize_t index, Py_ssize_t count, int64_t timestamp
    ) except -1:
        cdef int64_t offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        cdef OutcomeRun *run
        cdef Py_ssize_t start
        if batch.append_time >= 0:
            timestamp = batch.append_time
        if batch.asker != self._serial:
            self._sources.append((batch.topic, batch.partition))
            batch.asker, batch.number = self._serial, len(self._sources) - 1
        elif self._count:
            run = self._runs + self._count - 1
            start = self._runs[self._count - 2].end if self._count > 1 else 0
            if (
                run.number == batch.number
                and run.timestamp == timestamp
                and (offset < 0 or run.offset + run.end - start == offset)
            ):
                run.end += count
                return 0
        run = self.new_run(count)
        run.number, run.offset, run.timestamp = batch.number, offset, timestamp
        run.answer = aiok_answer(batch.append_time, batch.log_start)
        return 0

    cdef int put_failed(self, object error, Py_ssize_t count) except -1:
        cdef OutcomeRun *run
        if self._count:
            run = self._runs + self._count - 1
            if self._sources[run.number] is error:
                run.end += count
                return 0
        self._sources.append(error)
        run = self.new_run(count)
        run.number = len(self._sources) - 1
        return 0

    cdef OutcomeRun *new_run(self, Py_ssize_t count) except NULL:
        cdef OutcomeRun *run
        cdef Py_ssize_t room
        if self._count == self._room:
            room = 2 * self._room + 4
            run = <OutcomeRun *>PyMem_Realloc(self._runs, room * sizeof(OutcomeRun))
            if run == NULL:
                raise MemoryError
            self._runs, self._room = run, room
        run = self._runs + self._count
        run.end = count + (self._runs[self._count - 1].end if self._count else 0)
        self._count += 1
        return run

    def __len__(self):
        return self._runs[self._count - 1].end if self._count else 0

    def __iter__(self):
        cdef OutcomeIterator iterator = OutcomeIterator.__new__(OutcomeIterator)
        iterator._of = self
        return iterator

    def __getitem__(self, index):
        cdef Py_ssize_t at, low = 0, high = self._count, middle
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError("results index out of range")
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle].end <= at:
                low = middle + 1
            else:
                high = middle
        return make_outcome(self, low, at - (self._runs[low - 1].end if low else 0))

    def __eq__(self, other):
        if not isinstance(other, (list, OutcomeRuns)):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    def __add__(self, other):
        if not isinstance(other, (list, OutcomeRuns)):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other):
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __reduce__(self):
        """Copy and pickle as a list, which any version of the library can load."""
        return list, (list(self),)

    def __repr__(self):
        return repr(list(self))


@cython.final
cdef class OutcomeIterator:
    """An iterator over the outcomes, in order."""

    cdef OutcomeRuns _of
    cdef Py_ssize_t _run
    cdef Py_ssize_t _nth

    def __iter__(self):
        return self

    def __next__(self):
        cdef OutcomeRuns runs = self._of
        cdef Py_ssize_t start
        while self._run < runs._count:
            start = runs._runs[self._run - 1].end if self._run else 0
            if start + self._nth < runs._runs[self._run].end:
                self._nth += 1
                return make_outcome(runs, self._run, self._nth - 1)
            self._run += 1
            self._nth = 0
        raise StopIteration


cdef object make_outcome(OutcomeRuns runs, Py_ssize_t index, Py_ssize_t nth):
    """Return the outcome of the record with the index `nth` in a run."""
    cdef OutcomeRun *run = runs._runs + index
    source = runs._sources[run.number]
    if type(source) is not tuple:
        return source
    return owned(
        aiok_plain_tuple(
            metadata_spares,
            <PyTypeObject *>METADATA,
            PyTuple_GET_ITEM(source, 0),
            PyTuple_GET_ITEM(source, 1),
            _new_long(run.offset + nth if run.offset >= 0 else -1),
            time_object(run.timestamp),
            run.answer,
        )
    )


cdef class Gathering:
    """Two passes: `skip_lingers` sends the batches, `collect_outcomes` takes the outcomes.

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
    cdef readonly OutcomeRuns results
    cdef readonly object failure

    def __cinit__(self, deliveries, OutcomeRuns results not None):
        self.results = results
        if isinstance(deliveries, DeliveryRuns):
            self._runs = deliveries
        else:
            self._items = deliveries if type(deliveries) is list else list(deliveries)

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
        cdef Py_ssize_t end = min(_size(items), self._seen + limit), count
        cdef PyObject *item
        cdef Delivery delivery
        cdef DeliveryBatch batch, pending
        while self._seen < end:
            delivery = delivery_at(items, self._seen)
            batch = delivery._batch
            count = 1
            if is_written(batch):
                while self._seen + count < end:  # This calls no Python code.
                    item = _item(items, self._seen + count)
                    if not (
                        is_delivery(item)
                        and batch_of(item) == <PyObject *>batch
                        and (<Delivery>item)._index == delivery._index + count
                        and (<Delivery>item)._timestamp == delivery._timestamp
                    ):
                        break
                    count += 1
                self.results.put_written(batch, delivery._index, count, delivery._timestamp)
            else:
                pending = self._take(batch, delivery._index, delivery._timestamp)
                if pending is not None:
                    return pending
            self._seen += count
            end = min(_size(items), end)  # Python code that was called may have changed the list.
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
                    self.results.put_written(
                        batch, run.first + self._seen - start, count, run.timestamp
                    )
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
            self.results.put_failed(error, 1)
            return None
        self.results.put_written(batch, index, 1, timestamp)
        return None


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
