/* What _delivery_cy.pyx needs of C: the slots of awaitables, StopIteration. */

#ifndef AIOKCLIENT_DELIVERY_H
#define AIOKCLIENT_DELIVERY_H

#include <Python.h>
#include <stdint.h>

/* Raises StopIteration(value). From 3.12 on to 3.14 a native awaitable can answer `await` in no
other way; one exception is kept in `stop` and used again as long as nobody else has it. */
static void
aiok_stop_with(PyObject **stop, PyObject *value)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyStopIterationObject *kept = (PyStopIterationObject *)*stop;
    if (kept == NULL || Py_REFCNT(kept) != 1 || kept->traceback != NULL || kept->context != NULL
        || kept->cause != NULL || kept->dict != NULL) {
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
    /* A tuple as the value would be taken for the arguments of the exception. */
    PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (made != NULL) {
        PyErr_SetObject(PyExc_StopIteration, made);
        Py_DECREF(made);
    }
#endif
}

static int
aiok_awaiting_type(PyTypeObject *type, sendfunc send, iternextfunc next)
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
