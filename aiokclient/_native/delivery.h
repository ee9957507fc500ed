/* What producer_delivery.pxi needs of C: the slots of awaitables, StopIteration. */

#ifndef AIOKCLIENT_DELIVERY_H
#define AIOKCLIENT_DELIVERY_H

#include <Python.h>
#include <stdint.h>

#include "stop_iteration.h"

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
