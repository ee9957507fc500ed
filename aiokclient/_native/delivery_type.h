/* The type slots of deliveries, and the function that makes the garbage collector track them. */

#ifndef AIOKCLIENT_DELIVERY_TYPE_H
#define AIOKCLIENT_DELIVERY_TYPE_H

#include "delivery_object.h"

static AiokDeliveries aiok_deliveries;

static inline void
aiok_delivery_unlink(AiokDelivery *delivery)
{
    delivery->before->after = delivery->after;
    delivery->after->before = delivery->before;
    delivery->before = delivery->after = NULL;
}

static void
aiok_delivery_dealloc(PyObject *self)
{
    AiokDelivery *delivery = (AiokDelivery *)self;
    if (delivery->before != NULL) {
        aiok_delivery_unlink(delivery);
    }
    else {
        PyObject_GC_UnTrack(self);
    }
    Py_XDECREF(delivery->batch);
    if (aiok_deliveries.spares < AIOK_DELIVERIES) {
        delivery->batch = (PyObject *)aiok_deliveries.spare;
        aiok_deliveries.spare = delivery;
        aiok_deliveries.spares++;
    }
    else {
        PyObject_GC_Del(self);
    }
}

static int
aiok_delivery_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((AiokDelivery *)self)->batch);
    return 0;
}

static int
aiok_delivery_clear(PyObject *self)
{
    AiokDelivery *delivery = (AiokDelivery *)self;
    PyObject *batch = delivery->batch;
    delivery->batch = Py_NewRef(Py_None);
    Py_XDECREF(batch);
    return 0;
}

static PyObject *
aiok_delivery_tp_new(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(args),
                     PyObject *Py_UNUSED(kwargs))
{
    return aiok_delivery_new(&aiok_deliveries, Py_None, 0, 0);
}

/* Makes the garbage collector track all existing deliveries. */
static void
aiok_know_deliveries(void)
{
    AiokDelivery *head = &aiok_deliveries.unknown;
    while (head->after != head) {
        AiokDelivery *delivery = head->after;
        aiok_delivery_unlink(delivery);
        PyObject_GC_Track((PyObject *)delivery);
    }
}

static int
aiok_delivery_type(PyTypeObject *type)
{
    if (type->tp_basicsize != sizeof(AiokDelivery)
        || PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)
        || PyType_HasFeature(type, Py_TPFLAGS_BASETYPE)
        || !PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC)) {
        PyErr_SetString(
            PyExc_ImportError, "The type of deliveries has an unexpected memory layout.");
        return -1;
    }
    aiok_deliveries.type = type;
    aiok_deliveries.unknown.before = aiok_deliveries.unknown.after = &aiok_deliveries.unknown;
    type->tp_new = aiok_delivery_tp_new;
    type->tp_dealloc = aiok_delivery_dealloc;
    type->tp_traverse = aiok_delivery_traverse;
    type->tp_clear = aiok_delivery_clear;
    PyType_Modified(type);
    return 0;
}

#endif
