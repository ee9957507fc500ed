/* A tuple of four that the garbage collector does not know: the base of RecordMetadata.

One is made for each message that is acknowledged, and holds a text and three numbers, which refer
to nothing. To have the collector know of it costs as much as making it. */

#ifndef AIOKCLIENT_PLAIN_TUPLE_H
#define AIOKCLIENT_PLAIN_TUPLE_H

#include <Python.h>

#define AIOK_FIELDS 4

/* Memory of those that are gone, for the next ones. Left out where every use of memory is to be
watched: -DAIOK_NO_SPARES. */
#ifdef AIOK_NO_SPARES
#define AIOK_TUPLES 0
#else
#define AIOK_TUPLES 16384
#endif

typedef struct {
    PyObject *first; /* The next one is its first item; all keep their type. */
    int count;
} AiokTuples;

/* A new one of that type, which is the one in plain_tuple_type.h. Steals offset and timestamp, also
when it fails. */
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

/* Appends to a list, and takes the reference, also when it fails. */
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
