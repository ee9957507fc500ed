/* Describes columns by Arrow's C data interface, so that one call creates a table from them.

All structs of a table are in one piece of memory, which is freed when the last of its arrays is
released. Any thread may release an array, with or without the GIL. */

#ifndef AIOKCLIENT_RECORD_ARROW_EXPORT_H
#define AIOKCLIENT_RECORD_ARROW_EXPORT_H

#include "arrow.h"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

/* The table, its at most eight columns, the structs of the headers, and the two columns of these. */
#define AIOK_ARRAYS 12

typedef struct {
    PyObject *owner; /* Owns the memory of the buffers. */
    int held; /* Number of unreleased arrays, plus one during the export. The GIL guards it. */
    int count;
    struct ArrowArray arrays[AIOK_ARRAYS];
    struct ArrowArray *children[AIOK_ARRAYS]; /* Pointers to `arrays`. */
    struct ArrowArray *fields[AIOK_ARRAYS]; /* The columns of the table, in their order. */
    const void *buffers[AIOK_ARRAYS][3];
} AiokExport;

static void
aiok_let_go(AiokExport *table)
{
    if (--table->held == 0) {
        Py_DECREF(table->owner);
        PyMem_RawFree(table);
    }
}

static void
aiok_release(struct ArrowArray *array)
{
    AiokExport *table = (AiokExport *)array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    array->release = NULL;
    if (Py_IsInitialized()) { /* Otherwise the process ends, and nothing needs the memory. */
        PyGILState_STATE state = PyGILState_Ensure();
        aiok_let_go(table);
        PyGILState_Release(state);
    }
}

/* Returns the next array. Its children must follow it. */
static struct ArrowArray *
aiok_array(AiokExport *table, int64_t length, int64_t nulls, int buffers, const void *first,
           const void *second, const void *third)
{
    int at = table->count++;
    struct ArrowArray *array = &table->arrays[at];
    memset(array, 0, sizeof(*array));
    table->children[at] = array;
    table->buffers[at][0] = first;
    table->buffers[at][1] = second;
    table->buffers[at][2] = third;
    array->length = length;
    array->null_count = nulls;
    array->n_buffers = buffers;
    array->buffers = table->buffers[at];
    array->release = aiok_release;
    array->private_data = table;
    table->held++;
    return array;
}

static void
aiok_has_children(AiokExport *table, struct ArrowArray *array, int count)
{
    array->n_children = count;
    array->children = &table->children[table->count];
}

static void
aiok_binary_array(AiokExport *table, const AiokBinary *column)
{
    const void *content = column->content == NULL ? (const void *)"" : column->content;
    (void)aiok_array(table, column->count, column->nulls, 3, column->nulls ? column->valid : NULL,
                     column->ends, content);
}

/* The columns of a table, in the order of `arrow_schema`. */
enum {
    AIOK_TOPIC,
    AIOK_PARTITION,
    AIOK_OFFSET,
    AIOK_TIMESTAMP,
    AIOK_TIMESTAMP_TYPE,
    AIOK_KEY,
    AIOK_VALUE,
    AIOK_HEADER_LIST,
    AIOK_COLUMN_COUNT,
};

static void
aiok_headers_array(AiokExport *table, const AiokColumns *columns)
{
    struct ArrowArray *lists =
        aiok_array(table, columns->rows, 0, 2, NULL, columns->header_ends, NULL);
    aiok_has_children(table, lists, 1);
    struct ArrowArray *headers =
        aiok_array(table, columns->header_keys.count, 0, 1, NULL, NULL, NULL);
    aiok_has_children(table, headers, 2);
    aiok_binary_array(table, &columns->header_keys);
    aiok_binary_array(table, &columns->header_values);
}

/* Returns a table of `count` columns, whose numbers are in `fields`: those of the records, and the
given columns of topics and partitions. It keeps a reference to the owner. Returns NULL with an
exception if there is no memory. The caller must call `aiok_drop` afterwards. */
static AiokExport *
aiok_export(const AiokColumns *columns, PyObject *owner, const void *topic_ends,
            const void *topics, const int32_t *partitions, const int8_t *fields, int count)
{
    AiokExport *table = (AiokExport *)PyMem_RawMalloc(sizeof(AiokExport));
    if (table == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int64_t rows = columns->rows;
    table->owner = Py_NewRef(owner);
    table->held = 1;
    table->count = 0;
    struct ArrowArray *whole = aiok_array(table, rows, 0, 1, NULL, NULL, NULL);
    struct ArrowArray **children = table->fields;
    for (int i = 0; i < count; i++) {
        children[i] = &table->arrays[table->count];
        switch (fields[i]) {
        case AIOK_TOPIC:
            (void)aiok_array(table, rows, 0, 3, NULL, topic_ends, topics);
            break;
        case AIOK_PARTITION:
            (void)aiok_array(table, rows, 0, 2, NULL, partitions, NULL);
            break;
        case AIOK_OFFSET:
            (void)aiok_array(table, rows, 0, 2, NULL, columns->offsets, NULL);
            break;
        case AIOK_TIMESTAMP:
            (void)aiok_array(table, rows, columns->untimed, 2,
                             columns->untimed ? columns->timed : NULL, columns->timestamps, NULL);
            break;
        case AIOK_TIMESTAMP_TYPE:
            (void)aiok_array(table, rows, 0, 2, NULL, columns->kinds, NULL);
            break;
        case AIOK_KEY:
            aiok_binary_array(table, &columns->keys);
            break;
        case AIOK_VALUE:
            aiok_binary_array(table, &columns->values);
            break;
        default:
            aiok_headers_array(table, columns);
        }
    }
    whole->n_children = count;
    whole->children = children;
    return table;
}

/* Ends the export. Arrays that were not imported are released. */
static void
aiok_drop(AiokExport *table)
{
    if (table->arrays[0].release != NULL) {
        table->arrays[0].release(&table->arrays[0]);
    }
    aiok_let_go(table);
}

#endif
