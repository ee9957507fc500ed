"""The native twin of `murmur2`."""


def murmur2(data):
    """Return the hash of `data` as a signed 32-bit integer, as Java's `Utils.murmur2` does."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    hashed = aiok_murmur2(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return hashed
