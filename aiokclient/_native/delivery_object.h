/* The memory layout of a delivery. The class is in producer_delivery.pxi.

A delivery is created for each record that is sent. If the garbage collector tracked each of them,
that would cost as much as the rest of its creation. But a reference cycle can contain a delivery: a
failure's traceback, a frame, its variable, the delivery, its batch, the failure. So untracked
deliveries are in a linked list, and all of them become tracked before a full collection. */

#ifndef AIOKCLIENT_DELIVERY_OBJECT_H
#define AIOKCLIENT_DELIVERY_OBJECT_H

#include <Python.h>
#include <stdint.h>

typedef struct AiokDelivery {
    PyObject_HEAD
    PyObject *batch;
    Py_ssize_t index;
    int64_t timestamp;
    struct AiokDelivery *before; /* NULL if the garbage collector tracks the delivery. */
    struct AiokDelivery *after;
} AiokDelivery;

/* The number of freed deliveries whose memory is kept for reuse. -DAIOK_NO_SPARES disables it for
the sanitizers, which check every use of memory. */
#ifdef AIOK_NO_SPARES
#define AIOK_DELIVERIES 0
#else
#define AIOK_DELIVERIES 16384
#endif

typedef struct {
    PyTypeObject *type;
    AiokDelivery *spare; /* A linked list: `batch` is the next one. */
    int spares;
    AiokDelivery unknown; /* The head of the list of untracked deliveries. It is not a delivery. */
} AiokDeliveries;

static inline PyObject *
aiok_delivery_new(AiokDeliveries *all, PyObject *batch, Py_ssize_t index, int64_t timestamp)
{
    AiokDelivery *delivery = all->spare;
    if (delivery != NULL) {
        all->spare = (AiokDelivery *)delivery->batch;
        all->spares--;
        _Py_NewReference((PyObject *)delivery);
    }
    else {
        delivery = PyObject_GC_New(AiokDelivery, all->type);
        if (delivery == NULL) {
            return NULL;
        }
    }
    delivery->batch = Py_NewRef(batch);
    delivery->index = index;
    delivery->timestamp = timestamp;
    AiokDelivery *last = all->unknown.before;
    delivery->before = last;
    delivery->after = &all->unknown;
    last->after = delivery;
    all->unknown.before = delivery;
    return (PyObject *)delivery;
}

#endif
