/* Hides data from the garbage collector; see memory.py.

Data are structs of messages, UUIDs, and lists and tuples. What they contain is hidden, too, if it is
data. None of them refers to what refers to it, so there is no cycle that only the collector could
free, and reference counting frees them all. Other objects, such as dicts, remain tracked. */

#ifndef AIOKCLIENT_UNTRACK_H
#define AIOKCLIENT_UNTRACK_H

#include <Python.h>

static PyTypeObject *aiok_struct_type; /* The base class of all structs in messages. */
static PyTypeObject *aiok_uuid_type;

static inline int
aiok_is_data(PyObject *item)
{
    return PyList_CheckExact(item) || PyTuple_Check(item) || Py_TYPE(item) == aiok_uuid_type
           || (aiok_struct_type != NULL && PyObject_TypeCheck(item, aiok_struct_type));
}

/* The unused parameter is required by tp_traverse. */
static int
aiok_untrack(PyObject *item, void *unused)
{
    if (PyObject_IS_GC(item) && PyObject_GC_IsTracked(item) && aiok_is_data(item)) {
        PyObject_GC_UnTrack(item);
        Py_TYPE(item)->tp_traverse(item, aiok_untrack, unused);
    }
    return 0;
}

#endif
