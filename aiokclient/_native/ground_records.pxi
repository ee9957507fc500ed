"""The native twin of `types.ConsumerRecord`; see record_object.h and record_types.h.

The decoder fills the fields of a record in C. This file has what a program can do with it: create,
change, compare, pickle, and print it. The object that records share is created once for each batch, and
is the last one again if the fields are the same.
"""


RECORD_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)


cdef extern from "record_types.h":
    AiokSpares *aiok_spares
    int aiok_record_types(PyTypeObject *record, PyTypeObject *tracked) except -1
    Py_ssize_t aiok_slot_offset(PyObject *descriptor) except -1
    PyObject *aiok_locked_record(
        PyTypeObject *type, PyObject *record, Py_ssize_t slot, PyObject *lock
    ) except NULL
    int aiok_light_class(PyTypeObject *type, Py_ssize_t first, Py_ssize_t second) except -1
    int aiok_lock_record(
        PyTypeObject *type, PyObject *record, Py_ssize_t slot, PyObject *lock
    ) except -1


cdef extern from "record_format.h":
    list aiok_list(Py_ssize_t count)
    void aiok_add(PyObject *records, PyObject *record)


@cython.no_gc
@cython.final
cdef class SharedFields:
    """An immutable object with the fields that all records of a batch share."""


cdef SharedFields _last = None


cdef SharedFields shared_fields(
    object topic, object partition, object timestamp_type, object leader_epoch
):
    """Return an object with these fields. It is the previous one if the fields are the same."""
    global _last
    cdef SharedFields shared = _last
    if (
        shared is not None
        and shared.topic is topic
        and shared.partition is partition
        and shared.timestamp_type is timestamp_type
        and shared.leader_epoch is leader_epoch
    ):
        return shared
    shared = SharedFields.__new__(SharedFields)
    shared.topic = topic
    shared.partition = partition
    shared.timestamp_type = timestamp_type
    shared.leader_epoch = leader_epoch
    _last = shared
    return shared


cdef class ConsumerRecord:
    """ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers=(),\
 leader_epoch=None)
--

A record that was read from a partition."""

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self,
        topic,
        partition,
        long long offset,
        long long timestamp,
        timestamp_type,
        key,
        value,
        headers=(),
        leader_epoch=None,
    ):
        """__init__($self, topic, partition, offset, timestamp, timestamp_type, key, value,\
 headers=(), leader_epoch=None)
--

"""
        self._offset = offset
        self._timestamp = timestamp
        _put(&self._key, key)
        _put(&self._value, value)
        _put(&self._headers, headers)
        _set_shared(self, shared_fields(topic, partition, timestamp_type, leader_epoch))

    @property
    def topic(self):
        return _shared(self).topic

    @topic.setter
    def topic(self, topic):
        cdef SharedFields old = _shared(self)
        _set_shared(self, shared_fields(topic, old.partition, old.timestamp_type, old.leader_epoch))

    @property
    def partition(self):
        return _shared(self).partition

    @partition.setter
    def partition(self, partition):
        cdef SharedFields old = _shared(self)
        _set_shared(self, shared_fields(old.topic, partition, old.timestamp_type, old.leader_epoch))

    @property
    def timestamp_type(self):
        return _shared(self).timestamp_type

    @timestamp_type.setter
    def timestamp_type(self, timestamp_type):
        cdef SharedFields old = _shared(self)
        _set_shared(self, shared_fields(old.topic, old.partition, timestamp_type, old.leader_epoch))

    @property
    def leader_epoch(self):
        return _shared(self).leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, leader_epoch):
        cdef SharedFields old = _shared(self)
        _set_shared(self, shared_fields(old.topic, old.partition, old.timestamp_type, leader_epoch))

    @property
    def serialized_key_size(self):
        """The size of the key in the log, in bytes; -1 if it is null.

        Of a record that the program has created, it is -1 unless the key is bytes.
        """
        if isinstance(self, Tracked) and (<Tracked>self)._sized:
            return (<Tracked>self)._key_size
        return size_of(self.key)

    @property
    def serialized_value_size(self):
        """The size of the value in the log, in bytes; -1 if it is null.

        Of a record that the program has created, it is -1 unless the value is bytes.
        """
        if isinstance(self, Tracked) and (<Tracked>self)._sized:
            return (<Tracked>self)._value_size
        return size_of(self.value)

    def _note_sizes(self, key, value):
        """Keep the sizes of the serialized key and value."""
        if isinstance(self, Tracked):
            (<Tracked>self)._key_size = size_of(key)
            (<Tracked>self)._value_size = size_of(value)
            (<Tracked>self)._sized = True

    def _fields(self):
        cdef SharedFields shared = _shared(self)
        return (
            shared.topic,
            shared.partition,
            self._offset,
            self._timestamp,
            shared.timestamp_type,
            self.key,
            self.value,
            tuple(self.headers),
            shared.leader_epoch,
        )

    def _asdict(self):
        """Return the fields by name, in the order of the constructor's arguments."""
        return dict(zip(RECORD_FIELDS, self._fields()))

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        cdef SharedFields shared = _shared(self)
        return hash((shared.topic, shared.partition, self._offset))

    def __repr__(self):
        cdef SharedFields shared = _shared(self)
        return (
            f"ConsumerRecord(topic={shared.topic!r}, partition={shared.partition}, "
            f"offset={self._offset}, timestamp={self._timestamp}, "
            f"timestamp_type={shared.timestamp_type!r}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, leader_epoch={shared.leader_epoch})"
        )

    def __reduce__(self):
        cdef SharedFields shared = _shared(self)
        kind = ConsumerRecord if type(self) is Tracked else type(self)
        sizes = None
        if isinstance(self, Tracked) and (<Tracked>self)._sized:
            sizes = (<Tracked>self)._key_size, (<Tracked>self)._value_size
        fields = (
            shared.topic,
            shared.partition,
            self._offset,
            self._timestamp,
            shared.timestamp_type,
            self.key,
            self.value,
            self.headers,
            shared.leader_epoch,
        )
        return (kind, fields) if sizes is None else (kind, fields, sizes)

    def __setstate__(self, state):
        if isinstance(self, Tracked):
            (<Tracked>self)._key_size, (<Tracked>self)._value_size = state
            (<Tracked>self)._sized = True


cdef class Tracked(ConsumerRecord):
    """A record that the garbage collector tracks. The constructor creates this class."""


def light_class(type kind):
    """Make the records of a class cheap to create and to delete, and return the class.

    It changes the first class only. That has the slots `_acquisition` and `_count`, and one for weak
    references.
    """
    aiok_light_class(
        <PyTypeObject *>kind,
        aiok_slot_offset(<PyObject *>kind._acquisition),
        aiok_slot_offset(<PyObject *>kind._count),
    )
    return kind


def lock_records(list records, type kind, object lock):
    """Return the records as objects of `kind`, a subclass in Python, with their lock.

    `kind` has the slot `_acquisition` for the lock. The fields are those of `records`, which share
    them.
    """
    cdef Py_ssize_t slot = aiok_slot_offset(<PyObject *>kind._acquisition)
    cdef PyTypeObject *made_type = <PyTypeObject *>kind
    cdef PyObject *made
    cdef ConsumerRecord record
    cdef list locked = aiok_list(len(records))
    if not issubclass(kind, Tracked):
        raise TypeError("Records with locks are tracked by the garbage collector.")
    for given in records:
        record = given
        made = aiok_locked_record(made_type, <PyObject *>record, slot, <PyObject *>lock)
        if isinstance(record, Tracked):
            (<Tracked>made)._key_size = (<Tracked>record)._key_size
            (<Tracked>made)._value_size = (<Tracked>record)._value_size
            (<Tracked>made)._sized = (<Tracked>record)._sized
        aiok_add(<PyObject *>locked, made)
    return locked


def set_locks(list records, type kind, object lock):
    """Give their lock to records that the decoder has created as objects of `kind`."""
    cdef Py_ssize_t slot = aiok_slot_offset(<PyObject *>kind._acquisition)
    if not issubclass(kind, Tracked):
        raise TypeError("Records with locks are tracked by the garbage collector.")
    for record in records:
        aiok_lock_record(<PyTypeObject *>kind, <PyObject *>record, slot, <PyObject *>lock)


cdef Py_ssize_t size_of(object part) except -2:
    """Return the size of bytes or of a view of them, and -1 for None and any other object."""
    if isinstance(part, memoryview):
        return part.nbytes
    return len(part) if isinstance(part, (bytes, bytearray)) else -1


cdef SharedFields _shared(ConsumerRecord record):
    if record._shared == NULL:
        raise AttributeError("The record was created without its fields.")
    return <SharedFields>record._shared


cdef int _set_shared(ConsumerRecord record, SharedFields shared) except -1:
    _put(&record._shared, shared)
    return 0


cdef int _put(PyObject **slot, object content) except -1:
    cdef PyObject *old = slot[0]
    _incref(<PyObject *>content)
    slot[0] = <PyObject *>content
    _xdecref(old)
    return 0


cdef extern from "Python.h":
    void _incref "Py_INCREF"(PyObject *)
    void _xdecref "Py_XDECREF"(PyObject *)


record_spares = aiok_spares
aiok_record_types(<PyTypeObject *>ConsumerRecord, <PyTypeObject *>Tracked)
