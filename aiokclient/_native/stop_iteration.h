/* Returns a value from an awaitable that is written in C. */

#ifndef AIOKCLIENT_STOP_ITERATION_H
#define AIOKCLIENT_STOP_ITERATION_H

#include <Python.h>

/* Raises StopIteration(value), and takes over the reference to the value. In Python 3.12 to 3.14, a
native awaitable has no other way to return a value from `await`, and creating the exception would
be the most expensive part. So `stop` keeps one, which is reused if no other object refers to it and
nothing was stored on it. */
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
    /* The new reference is taken first, because releasing the old value may run code that calls
    this function. */
    Py_INCREF(kept);
    Py_XDECREF(old);
    PyErr_SetRaisedException((PyObject *)kept);
#else
    /* Without this call, a tuple as the value would become the arguments of the exception. */
    PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, value);
    Py_DECREF(value);
    if (made != NULL) {
        PyErr_SetObject(PyExc_StopIteration, made);
        Py_DECREF(made);
    }
#endif
}

#endif
