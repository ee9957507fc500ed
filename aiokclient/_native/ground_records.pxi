"""The native twin of `types.ConsumerRecord`; see record_object.h and record_types.h."""


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
    AiokSpares aiok_spares
    int aiok_record_types(PyTypeObject *record, PyTypeObject *tracked) except -1


@cython.no_gc
@cython.final
cdef class Place:
    """The fields that all records of a batch share. It never changes."""


cdef Place _last = None


cdef Place place_of(object topic, object partition, object timestamp_type, object leader_epoch):
    """Return a Place with these fields. It is the previous one if the fields are the same."""
    global _last
    cdef Place place = _last
    if (
        place is not None
        and place.topic is topic
        and place.partition is partition
        and place.timestamp_type is timestamp_type
        and place.leader_epoch is leader_epoch
    ):
        return place
    place = Place.__new__(Place)
    place.topic = topic
    place.partition = partition
    place.timestamp_type = timestamp_type
    place.leader_epoch = leader_epoch
    _last = place
    return place


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
        _move(self, place_of(topic, partition, timestamp_type, leader_epoch))

    @property
    def topic(self):
        return _place(self).topic

    @topic.setter
    def topic(self, topic):
        cdef Place old = _place(self)
        _move(self, place_of(topic, old.partition, old.timestamp_type, old.leader_epoch))

    @property
    def partition(self):
        return _place(self).partition

    @partition.setter
    def partition(self, partition):
        cdef Place old = _place(self)
        _move(self, place_of(old.topic, partition, old.timestamp_type, old.leader_epoch))

    @property
    def timestamp_type(self):
        return _place(self).timestamp_type

    @timestamp_type.setter
    def timestamp_type(self, timestamp_type):
        cdef Place old = _place(self)
        _move(self, place_of(old.topic, old.partition, timestamp_type, old.leader_epoch))

    @property
    def leader_epoch(self):
        return _place(self).leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, leader_epoch):
        cdef Place old = _place(self)
        _move(self, place_of(old.topic, old.partition, old.timestamp_type, leader_epoch))

    def _fields(self):
        cdef Place place = _place(self)
        return (
            place.topic,
            place.partition,
            self._offset,
            self._timestamp,
            place.timestamp_type,
            self.key,
            self.value,
            tuple(self.headers),
            place.leader_epoch,
        )

    def _asdict(self):
        """Return the fields by name, in the order of the constructor's arguments."""
        return dict(zip(RECORD_FIELDS, self._fields()))

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        cdef Place place = _place(self)
        return hash((place.topic, place.partition, self._offset))

    def __repr__(self):
        cdef Place place = _place(self)
        return (
            f"ConsumerRecord(topic={place.topic!r}, partition={place.partition}, "
            f"offset={self._offset}, timestamp={self._timestamp}, "
            f"timestamp_type={place.timestamp_type!r}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, leader_epoch={place.leader_epoch})"
        )

    def __reduce__(self):
        cdef Place place = _place(self)
        kind = ConsumerRecord if type(self) is Tracked else type(self)
        return kind, (
            place.topic,
            place.partition,
            self._offset,
            self._timestamp,
            place.timestamp_type,
            self.key,
            self.value,
            self.headers,
            place.leader_epoch,
        )


cdef class Tracked(ConsumerRecord):
    """A record that the garbage collector tracks. The constructor creates this class."""


cdef Place _place(ConsumerRecord record):
    if record._place == NULL:
        raise AttributeError("The record was created without its fields.")
    return <Place>record._place


cdef int _move(ConsumerRecord record, Place place) except -1:
    _put(&record._place, place)
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


record_spares = &aiok_spares
aiok_record_types(<PyTypeObject *>ConsumerRecord, <PyTypeObject *>Tracked)
