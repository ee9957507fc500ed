/* How an awaitable or an iterator in C gives back a value. */

#ifndef AIOKCLIENT_STOP_ITERATION_H
#define AIOKCLIENT_STOP_ITERATION_H

#include <Python.h>

/* Raises StopIteration(value), taking over the reference. From 3.12 to 3.14 a native awaitable can
answer `await` in no other way, and making an exception would be the dearest part of it; so one is
kept in `stop` and used again as long as nobody else has it or has left anything on it. */
static void
aiok_stop_iteration(PyObject **stop, PyObject *value)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyStopIterationObject *kept = (PyStopIterationObject *)*stop;
    if (kept == NULL || Py_REFCNT(kept) != 1 || kept->traceback != NULL || kept->context != NULL
        || kept->cause != NULL || kept->dict != NULL) {
        PyObject *made = PyObject_CallNoArgs(PyExc_StopIteration);
        if (made == NULL) {
            Py_DECREF(value);
            return;
        }
        Py_XSETREF(*stop, made);
        kept = (PyStopIterationObject *)made;
    }
    PyObject *old = kept->value;
    kept->value = value;
    /* Before the old one goes: what is run then may come here, too. */
    Py_INCREF(kept);
    Py_XDECREF(old);
    PyErr_SetRaisedException((PyObject *)kept);
#else
    /* A tuple as the value would be taken for the arguments of the exception. */
    PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, value);
    Py_DECREF(value);
    if (made != NULL) {
        PyErr_SetObject(PyExc_StopIteration, made);
        Py_DECREF(made);
    }
#endif
}

#endif
