/* A record as read, as bytes in memory; the class around it is in ground_records.pxi.

What all records of a batch share (topic, partition, timestamp type, leader epoch) is one object,
`place`. So a record is 64 bytes, one line of cache, and making one touches few reference counts.

There are two types with this layout. Those that the decoder makes hold bytes, which refer to
nothing, so the garbage collector need not know them: the type has no GC flag. A record that the
program makes may hold anything; it is of a subtype that the collector does know. */

#ifndef AIOKCLIENT_RECORD_OBJECT_H
#define AIOKCLIENT_RECORD_OBJECT_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    PyObject_HEAD
    PyObject *place;
    PyObject *key;
    PyObject *value;
    PyObject *headers;
    long long offset;
    long long timestamp;
} AiokRecord;

/* Memory of records that are gone, for the next ones. Left out where every use of memory is to be
watched: -DAIOK_NO_SPARES. */
#ifdef AIOK_NO_SPARES
#define AIOK_SPARES 0
#else
#define AIOK_SPARES 8192
#endif

typedef struct {
    AiokRecord *first; /* The next one is in `place`. */
    int count;
} AiokSpares;

static inline AiokRecord *
aiok_record_memory(AiokSpares *spares)
{
    AiokRecord *record = spares->first;
    if (record != NULL) {
        spares->first = (AiokRecord *)record->place;
        spares->count--;
        return record;
    }
    record = (AiokRecord *)PyObject_Malloc(sizeof(AiokRecord));
    if (record == NULL) {
        PyErr_NoMemory();
    }
    return record;
}

/* A new record that holds bytes only. Takes over the references to key, value and headers, also
when it fails; any of them may be NULL, the sign of an error on the way. */
static inline PyObject *
aiok_record_new(AiokSpares *spares, PyTypeObject *type, PyObject *place, long long offset,
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
    Py_INCREF(place);
    record->place = place;
    record->key = key;
    record->value = value;
    record->headers = headers;
    record->offset = offset;
    record->timestamp = timestamp;
    return (PyObject *)record;
}

#endif
