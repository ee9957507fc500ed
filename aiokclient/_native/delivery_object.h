/* A delivery as bytes in memory; the class around it is in producer_delivery.pxi.

One is made for each record that is sent, and to have the garbage collector know each of them would
cost as much as all the rest of it. Yet a cycle may well go through one: a failure's traceback, a
frame, its variable, the delivery, its batch, the failure. So those that the collector does not know
stand in a list, and are made known to it when it is about to look at everything there is. */

#ifndef AIOKCLIENT_DELIVERY_OBJECT_H
#define AIOKCLIENT_DELIVERY_OBJECT_H

#include <Python.h>
#include <stdint.h>

typedef struct AiokDelivery {
    PyObject_HEAD
    PyObject *batch;
    Py_ssize_t index;
    int64_t timestamp;
    struct AiokDelivery *before; /* NULL in those that the collector knows. */
    struct AiokDelivery *after;
} AiokDelivery;

/* Memory of deliveries that are gone, for the next ones. Left out where every use of memory is to
be watched: -DAIOK_NO_SPARES. */
#ifdef AIOK_NO_SPARES
#define AIOK_DELIVERIES 0
#else
#define AIOK_DELIVERIES 16384
#endif

typedef struct {
    PyTypeObject *type;
    AiokDelivery *spare; /* The next one is in `batch`. */
    int spares;
    AiokDelivery unknown; /* The list's head, no delivery itself. */
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
