/* The memory layout of a ConsumerRecord. The class is in ground_records.pxi.

The fields that all records of a batch share (topic, partition, timestamp type, leader epoch) are in
one object, `shared`. So a record has 64 bytes, one cache line, and creating one changes few
reference counts.

There are two types with this layout. The decoder's records contain only bytes, which refer to no
other objects, so the garbage collector does not track them: their type has no GC flag. A record
that the application creates may contain any object. Its type is a subtype, which the collector
tracks. */

#ifndef AIOKCLIENT_RECORD_OBJECT_H
#define AIOKCLIENT_RECORD_OBJECT_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    PyObject_HEAD
    PyObject *shared;
    PyObject *key;
    PyObject *value;
    PyObject *headers;
    long long offset;
    long long timestamp;
} AiokRecord;

/* The number of freed records whose memory is kept for reuse. -DAIOK_NO_SPARES disables it for the
sanitizers, which check every use of memory. */
#ifdef AIOK_NO_SPARES
#define AIOK_SPARES 0
#else
#define AIOK_SPARES 8192
#endif

typedef struct {
    AiokRecord *first; /* A linked list: `shared` is the next one. */
    int count;
} AiokSpares;

static inline AiokRecord *
aiok_record_memory(AiokSpares *spares)
{
    AiokRecord *record = spares->first;
    if (record != NULL) {
        spares->first = (AiokRecord *)record->shared;
        spares->count--;
        return record;
    }
    record = (AiokRecord *)PyObject_Malloc(sizeof(AiokRecord));
    if (record == NULL) {
        PyErr_NoMemory();
    }
    return record;
}

/* Returns a new record that contains only bytes. Takes over the references to key, value and
headers, also if it fails. If creating one of them has failed, it is NULL, and so is the result. */
static inline PyObject *
aiok_record_new(AiokSpares *spares, PyTypeObject *type, PyObject *shared, long long offset,
                long long timestamp, PyObject *key, PyObject *value, PyObject *headers)
{
    AiokRecord *record = NULL;
    if (key != NULL && value != NULL && headers != NULL) {
        record = aiok_record_memory(spares);
    }
    if (record == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        Py_XDECREF(headers);
        return NULL;
    }
    (void)PyObject_Init((PyObject *)record, type);
    Py_INCREF(shared);
    record->shared = shared;
    record->key = key;
    record->value = value;
    record->headers = headers;
    record->offset = offset;
    record->timestamp = timestamp;
    return (PyObject *)record;
}

#endif
