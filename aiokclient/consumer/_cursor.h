/* What _cursor_cy.pyx needs of C: a clock that costs nothing, slots of a type, StopIteration. */

#ifndef AIOKCLIENT_CURSOR_H
#define AIOKCLIENT_CURSOR_H

#include <Python.h>
#include <stdint.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

/* Nanoseconds, right to a few milliseconds: reading an exact clock costs as much as all the rest of
handing out a record. */
static inline int64_t
aiok_coarse_time(void)
{
#ifdef _WIN32
    return (int64_t)GetTickCount64() * 1000000;
#elif defined(__APPLE__)
    return (int64_t)clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX);
#else
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
}

/* Raises StopIteration(value). From 3.12 on to 3.14 a native awaitable can answer `await` in no
other way, and making an exception would be the dearest part of a record; so one is kept in `stop`
and used again as long as nobody else has it. */
static void
aiok_stop_iteration(PyObject **stop, PyObject *value)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyStopIterationObject *kept = (PyStopIterationObject *)*stop;
    if (kept == NULL || Py_REFCNT(kept) != 1 || kept->traceback != NULL || kept->context != NULL) {
        PyObject *made = PyObject_CallNoArgs(PyExc_StopIteration);
        if (made == NULL) {
            return;
        }
        Py_XSETREF(*stop, made);
        kept = (PyStopIterationObject *)made;
    }
    Py_XSETREF(kept->value, Py_NewRef(value));
    PyErr_SetRaisedException(Py_NewRef((PyObject *)kept));
#else
    PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (made != NULL) {
        PyErr_SetObject(PyExc_StopIteration, made);
        Py_DECREF(made);
    }
#endif
}

/* Cython enters a method of its own as `__anext__`, which subclasses in Python would look up and
call for each record. With the descriptor that a type in C has, they take over the slot itself. */
static int
aiok_cursor_type(PyTypeObject *type)
{
    PyObject *there = PyObject_GetAttrString((PyObject *)&PyAsyncGen_Type, "__anext__");
    if (there == NULL) {
        return -1;
    }
    if (!Py_IS_TYPE(there, &PyWrapperDescr_Type)) {
        Py_DECREF(there);
        return 0;
    }
    PyObject *ours = PyDescr_NewWrapper(type, ((PyWrapperDescrObject *)there)->d_base,
                                        (void *)type->tp_as_async->am_anext);
    Py_DECREF(there);
    if (ours == NULL || PyDict_SetItemString(type->tp_dict, "__anext__", ours) < 0) {
        Py_XDECREF(ours);
        return -1;
    }
    Py_DECREF(ours);
    PyType_Modified(type);
    return 0;
}

static int
aiok_awaitable_type(PyTypeObject *type, sendfunc send, iternextfunc next)
{
    if (type->tp_as_async == NULL || PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_ImportError, "the type of awaitables has another layout");
        return -1;
    }
    type->tp_as_async->am_send = send;
    type->tp_iternext = next;
    PyType_Modified(type);
    return 0;
}

#endif
