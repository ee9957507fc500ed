/* The type of the tuples in plain_tuple.h. Only one module includes this file. */

#ifndef AIOKCLIENT_PLAIN_TUPLE_TYPE_H
#define AIOKCLIENT_PLAIN_TUPLE_TYPE_H

#include "plain_tuple.h"

static AiokTuples aiok_tuples;
static PyTypeObject *aiok_plain_type;

static void
aiok_plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_ssize_t size = PyTuple_GET_SIZE(self);
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_XDECREF(PyTuple_GET_ITEM(self, i));
    }
    /* An instance of a subclass may have another size. */
    if (type == aiok_plain_type && size == AIOK_FIELDS && aiok_tuples.count < AIOK_TUPLES) {
        PyTuple_SET_ITEM(self, 0, aiok_tuples.first);
        aiok_tuples.first = self;
        aiok_tuples.count++;
    }
    else {
        type->tp_free(self);
        Py_DECREF(type);
    }
}

/* Creates an instance. tuple.__new__ cannot, because it requires a type with GC support. */
static PyObject *
aiok_plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", "offset", "timestamp", NULL};
    PyObject *items[AIOK_FIELDS];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO:RecordMetadata", names, &items[0],
                                     &items[1], &items[2], &items[3])) {
        return NULL;
    }
    int exact = type == aiok_plain_type;
    PyObject *made = exact ? aiok_plain_memory(type) : type->tp_alloc(type, AIOK_FIELDS);
    if (made == NULL) {
        return NULL;
    }
    if (exact) {
        memset(aiok_answer_at(made), 0, sizeof(long long));
    }
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)made)->ob_hash = -1;
#endif
    for (int i = 0; i < AIOK_FIELDS; i++) {
        PyTuple_SET_ITEM(made, i, Py_NewRef(items[i]));
    }
    return made;
}

static PyObject *
aiok_get_answer(PyObject *self, void *Py_UNUSED(closure))
{
    long long answer = 0;
    if (Py_TYPE(self) == aiok_plain_type) {
        memcpy(&answer, aiok_answer_at(self), sizeof answer);
    }
    return PyLong_FromLongLong(answer);
}

/* A tuple of a subclass keeps no answer. */
static int
aiok_set_answer(PyObject *self, PyObject *content, void *Py_UNUSED(closure))
{
    long long answer = content == NULL ? 0 : PyLong_AsLongLong(content);
    if (answer == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (Py_TYPE(self) == aiok_plain_type) {
        memcpy(aiok_answer_at(self), &answer, sizeof answer);
    }
    return 0;
}

static PyGetSetDef aiok_plain_getset[] = {
    {"_answer", aiok_get_answer, aiok_set_answer, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* The traverse function of subclasses, whose instances the garbage collector tracks. */
static int
aiok_plain_traverse(PyObject *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = PyTuple_GET_SIZE(self); --i >= 0;) {
        Py_VISIT(PyTuple_GET_ITEM(self, i));
    }
    return 0;
}

/* Creates RecordMetadata without its methods. Because the type has a tp_traverse of its own, it
does not inherit GC support from tuple. A `class` statement cannot create such a type. */
static PyObject *
aiok_plain_tuple_type(void)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, aiok_plain_dealloc},
        {Py_tp_traverse, aiok_plain_traverse},
        {Py_tp_free, PyObject_Free},
        {Py_tp_new, aiok_plain_new},
        {Py_tp_getset, aiok_plain_getset},
        {Py_tp_doc, "RecordMetadata(topic, partition, offset, timestamp)\n--\n\n"},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = "aiokclient.types.RecordMetadata",
        .basicsize = (int)PyTuple_Type.tp_basicsize,
        .itemsize = (int)PyTuple_Type.tp_itemsize,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    PyObject *bases = PyTuple_Pack(1, (PyObject *)&PyTuple_Type);
    if (bases == NULL) {
        return NULL;
    }
    PyObject *type = PyType_FromSpecWithBases(&spec, bases);
    Py_DECREF(bases);
    if (type != NULL && PyType_HasFeature((PyTypeObject *)type, Py_TPFLAGS_HAVE_GC)) {
        PyErr_SetString(
            PyExc_ImportError, "In this Python, the garbage collector tracks every tuple.");
        Py_CLEAR(type);
    }
    aiok_plain_type = (PyTypeObject *)type;
    return type;
}

#endif
