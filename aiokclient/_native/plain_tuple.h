/* A tuple of four items that the garbage collector does not track: the base of RecordMetadata.

One is created for each record that is acknowledged. Its items are a str and three integers, which
refer to no other objects. Tracking the tuple would cost as much as creating it.

Behind its items, a tuple of exactly this type has an integer, `answer`, which is no item; see
`producer._pure.delivery.encode_answer`. A tuple of a subclass has none. */

#ifndef AIOKCLIENT_PLAIN_TUPLE_H
#define AIOKCLIENT_PLAIN_TUPLE_H

#include <Python.h>
#include <limits.h>
#include <string.h>

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

/* Does what `producer._pure.delivery.encode_answer` does. The result for a number that no log can have
is 0. */
static inline long long
aiok_answer(long long append_time, long long log_start)
{
    long long known = log_start >= 0 && log_start < LLONG_MAX / 2 ? log_start + 1 : 0;
    return known * 2 + (append_time >= 0);
}

/* Returns the place of `answer`. */
static inline char *
aiok_answer_at(PyObject *made)
{
    return (char *)&((PyTupleObject *)made)->ob_item[AIOK_FIELDS];
}

/* Returns memory for a tuple of exactly this type, with its answer. */
static inline PyObject *
aiok_plain_memory(PyTypeObject *type)
{
    PyObject *made
        = (PyObject *)PyObject_Malloc(type->tp_basicsize + AIOK_FIELDS * type->tp_itemsize
                                      + sizeof(long long));
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    return (PyObject *)PyObject_InitVar((PyVarObject *)made, type, AIOK_FIELDS);
}

/* Returns a new tuple of the type in plain_tuple_type.h. Takes over the references to offset and
timestamp, also if it fails. */
static inline PyObject *
aiok_plain_tuple(AiokTuples *spares, PyTypeObject *type, PyObject *topic, PyObject *partition,
                 PyObject *offset, PyObject *timestamp, long long answer)
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
            made = aiok_plain_memory(type);
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
    memcpy(aiok_answer_at(made), &answer, sizeof answer);
    return made;
}

#endif
