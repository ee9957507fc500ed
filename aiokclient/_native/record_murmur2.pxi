"""The native twin of `record.murmur2`, for the keys of records.

The C function in record_format.h does the same for `send`. Multiplications are modulo 2**32, as those
of Java's int.
"""


def murmur2(data):
    """Return Kafka's murmur2 hash of `data` as a signed 32-bit integer, as Java's `Utils.murmur2`.

    The default partitioner puts a record with a key, on all clients that use Kafka's partitioner,
    into the partition `(murmur2(key) & 0x7FFFFFFF) % partitions`, where `key` is the serialized key
    and `partitions` the number of the topic's partitions.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    hashed = aiok_murmur2(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return hashed
