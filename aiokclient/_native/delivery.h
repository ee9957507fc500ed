/* The parts of producer_delivery.pxi that need C: the slots of awaitables, and StopIteration. */

#ifndef AIOKCLIENT_DELIVERY_H
#define AIOKCLIENT_DELIVERY_H

#include <Python.h>
#include <stdint.h>

#include "stop_iteration.h"

static int
aiok_awaiting_type(PyTypeObject *type, sendfunc send, iternextfunc next)
{
    if (type->tp_as_async == NULL || PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(
            PyExc_ImportError, "The type of awaitables has an unexpected memory layout.");
        return -1;
    }
    type->tp_as_async->am_send = send;
    type->tp_iternext = next;
    PyType_Modified(type);
    return 0;
}

#endif
