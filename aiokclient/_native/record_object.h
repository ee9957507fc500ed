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
#include <string.h>

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
    PyTypeObject *type; /* NULL if there is no such type yet. */
} AiokSpares;

/* Each of `ConsumerRecord`, and of the subclass in Python that `light_class` has changed. */
enum { AIOK_PLAIN, AIOK_LIGHT, AIOK_SPARED };

static inline AiokRecord *
aiok_take_spare(AiokSpares *spares)
{
    AiokRecord *record = spares->first;
    if (record != NULL) {
        spares->first = (AiokRecord *)record->shared;
        spares->count--;
        (void)PyObject_Init((PyObject *)record, spares->type);
    }
    return record;
}

/* Returns whether the memory of a record is kept. */
static inline int
aiok_keep_spare(AiokSpares *spares, AiokRecord *record)
{
    if (spares->count >= AIOK_SPARES) {
        return 0;
    }
    record->shared = (PyObject *)spares->first;
    spares->first = record;
    spares->count++;
    return 1;
}

/* Returns a new record whose fields are not set, and which the garbage collector does not track. The
slots that a subclass in Python adds are empty. Returns NULL with an exception if there is no memory. */
static inline AiokRecord *
aiok_record_object(AiokSpares *spares, PyTypeObject *type)
{
    AiokRecord *record = NULL;
    if (type == spares[AIOK_PLAIN].type) {
        record = aiok_take_spare(&spares[AIOK_PLAIN]);
        return record != NULL ? record : PyObject_New(AiokRecord, type);
    }
    if (type == spares[AIOK_LIGHT].type) {
        record = aiok_take_spare(&spares[AIOK_LIGHT]);
    }
    if (record == NULL) {
        record = PyObject_GC_New(AiokRecord, type);
    }
    if (record != NULL) {
        memset(record + 1, 0, type->tp_basicsize - sizeof(AiokRecord));
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
        record = aiok_record_object(spares, type);
    }
    if (record == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        Py_XDECREF(headers);
        return NULL;
    }
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
