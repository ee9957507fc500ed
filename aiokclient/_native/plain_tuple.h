/* A tuple of four items that the garbage collector does not track: the base of RecordMetadata.

One is created for each record that is acknowledged. Its items are a str and three integers, which
refer to no other objects. Tracking the tuple would cost as much as creating it. */

#ifndef AIOKCLIENT_PLAIN_TUPLE_H
#define AIOKCLIENT_PLAIN_TUPLE_H

#include <Python.h>

#define AIOK_FIELDS 4

/* The number of freed tuples whose memory is kept for reuse. -DAIOK_NO_SPARES disables it for the
sanitizers, which check every use of memory. */
#ifdef AIOK_NO_SPARES
#define AIOK_TUPLES 0
#else
#define AIOK_TUPLES 16384
#endif

typedef struct {
    PyObject *first; /* A linked list: the first item is the next one. All keep their type. */
    int count;
} AiokTuples;

/* Returns a new tuple of the type in plain_tuple_type.h. Takes over the references to offset and
timestamp, also if it fails. */
static inline PyObject *
aiok_plain_tuple(AiokTuples *spares, PyTypeObject *type, PyObject *topic, PyObject *partition,
                 PyObject *offset, PyObject *timestamp)
{
    PyObject *made = NULL;
    if (offset != NULL && timestamp != NULL) {
        made = spares->first;
        if (made != NULL) {
            spares->first = PyTuple_GET_ITEM(made, 0);
            spares->count--;
            _Py_NewReference(made);
        }
        else {
            made = type->tp_alloc(type, AIOK_FIELDS);
        }
    }
    if (made == NULL) {
        Py_XDECREF(offset);
        Py_XDECREF(timestamp);
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)made)->ob_hash = -1;
#endif
    PyTuple_SET_ITEM(made, 0, Py_NewRef(topic));
    PyTuple_SET_ITEM(made, 1, Py_NewRef(partition));
    PyTuple_SET_ITEM(made, 2, offset);
    PyTuple_SET_ITEM(made, 3, timestamp);
    return made;
}

/* Appends an item to a list. Takes over the reference to the item, also if it fails. */
static inline int
aiok_append(PyObject *list, PyObject *item)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (((PyListObject *)list)->allocated > size) {
        PyList_SET_ITEM(list, size, item);
        Py_SET_SIZE(list, size + 1);
        return 0;
    }
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return failed;
}

#endif
