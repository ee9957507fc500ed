/* The slots and members of the two types of records; see record_object.h and ground_records.pxi.

The members are descriptors that the interpreter reads without a call. */

#ifndef AIOKCLIENT_RECORD_TYPES_H
#define AIOKCLIENT_RECORD_TYPES_H

#include "record_object.h"
#include <structmember.h>

static PyMemberDef aiok_record_members[] = {
    {"offset", T_LONGLONG, offsetof(AiokRecord, offset), 0, NULL},
    {"timestamp", T_LONGLONG, offsetof(AiokRecord, timestamp), 0, NULL},
    {"key", T_OBJECT_EX, offsetof(AiokRecord, key), 0, NULL},
    {"value", T_OBJECT_EX, offsetof(AiokRecord, value), 0, NULL},
    {"headers", T_OBJECT_EX, offsetof(AiokRecord, headers), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject *aiok_record_type;
static PyTypeObject *aiok_tracked_type;
static AiokSpares aiok_spares[AIOK_SPARED];
static Py_ssize_t aiok_light_slots[2];

static int
aiok_record_traverse(PyObject *self, visitproc visit, void *arg)
{
    AiokRecord *record = (AiokRecord *)self;
    Py_VISIT(record->shared);
    Py_VISIT(record->key);
    Py_VISIT(record->value);
    Py_VISIT(record->headers);
    return 0;
}

static int
aiok_record_clear(PyObject *self)
{
    AiokRecord *record = (AiokRecord *)self;
    Py_CLEAR(record->shared);
    Py_CLEAR(record->key);
    Py_CLEAR(record->value);
    Py_CLEAR(record->headers);
    return 0;
}

static inline void
aiok_drop_fields(AiokRecord *record)
{
    Py_XDECREF(record->shared);
    Py_XDECREF(record->key);
    Py_XDECREF(record->value);
    Py_XDECREF(record->headers);
}

static void
aiok_record_dealloc(PyObject *self)
{
    aiok_drop_fields((AiokRecord *)self);
    if (Py_TYPE(self) != aiok_record_type
        || !aiok_keep_spare(&aiok_spares[AIOK_PLAIN], (AiokRecord *)self)) {
        Py_TYPE(self)->tp_free(self);
    }
}

static void
aiok_tracked_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, aiok_tracked_dealloc)
    aiok_record_dealloc(self);
    Py_TRASHCAN_END
}

static void
aiok_light_free(PyObject *self, int is_kept)
{
    PyTypeObject *type = Py_TYPE(self);
    if (*PyObject_GET_WEAKREFS_LISTPTR(self) != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    for (int slot = 0; slot < 2; slot++) {
        Py_XDECREF(*(PyObject **)((char *)self + aiok_light_slots[slot]));
    }
    aiok_drop_fields((AiokRecord *)self);
    if (!is_kept || type != aiok_spares[AIOK_LIGHT].type
        || !aiok_keep_spare(&aiok_spares[AIOK_LIGHT], (AiokRecord *)self)) {
        type->tp_free(self);
    }
    Py_DECREF(type);
}

/* Does what the interpreter's own function for classes in Python does, for about a third of its
instructions. */
static void
aiok_light_dealloc(PyObject *self)
{
    if (!PyObject_GC_IsTracked(self)) {
        aiok_light_free(self, 1); /* It contains only bytes, and its lock. */
        return;
    }
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, aiok_light_dealloc)
    aiok_light_free(self, 0);
    Py_TRASHCAN_END
}

/* Creates a tracked record, because the constructor cannot know what the record will contain. */
static PyObject *
aiok_record_tp_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    if (type == aiok_record_type) {
        type = aiok_tracked_type;
    }
    return type->tp_alloc(type, 0);
}

static PyObject *
aiok_record_vectorcall(PyObject *Py_UNUSED(type), PyObject *const *args, size_t nargsf,
                       PyObject *kwnames)
{
    PyObject *tracked = (PyObject *)aiok_tracked_type;
    return aiok_tracked_type->tp_vectorcall(tracked, args, nargsf, kwnames);
}

/* Returns the offset of a slot of a class in Python, or -1 with an exception. */
static Py_ssize_t
aiok_slot_offset(PyObject *descriptor)
{
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyErr_SetString(PyExc_TypeError, "The class has no slot for the lock.");
        return -1;
    }
    return ((PyMemberDescrObject *)descriptor)->d_member->offset;
}

/* Makes the objects of a class cheap to create and to delete. It has two slots, and one for weak
references. Returns 0, or -1 with an exception. */
static int
aiok_light_class(PyTypeObject *type, Py_ssize_t first, Py_ssize_t second)
{
    if (aiok_spares[AIOK_LIGHT].type != NULL) {
        return 0; /* The module was imported again. */
    }
    if (type->tp_base != aiok_tracked_type || type->tp_weaklistoffset == 0
        || type->tp_dictoffset != 0 || type->tp_finalize != NULL) {
        PyErr_SetString(PyExc_TypeError, "The class cannot be made light.");
        return -1;
    }
    aiok_light_slots[0] = first;
    aiok_light_slots[1] = second;
    type->tp_dealloc = aiok_light_dealloc;
    aiok_spares[AIOK_LIGHT].type = (PyTypeObject *)Py_NewRef((PyObject *)type);
    return 0;
}

/* Returns a record of a subclass with the fields of `record`, and `lock` in the slot. Like `record`,
it is not tracked by the garbage collector if it contains only bytes: its lock forgets it when it is
final. */
static PyObject *
aiok_locked_record(PyTypeObject *type, PyObject *record, Py_ssize_t slot, PyObject *lock)
{
    AiokRecord *from = (AiokRecord *)record;
    AiokRecord *made = aiok_record_object(aiok_spares, type);
    if (made == NULL) {
        return NULL;
    }
    made->shared = Py_XNewRef(from->shared);
    made->key = Py_XNewRef(from->key);
    made->value = Py_XNewRef(from->value);
    made->headers = Py_XNewRef(from->headers);
    made->offset = from->offset;
    made->timestamp = from->timestamp;
    *(PyObject **)((char *)made + slot) = Py_NewRef(lock);
    if (Py_TYPE(record) != aiok_record_type) {
        PyObject_GC_Track(made);
    }
    return (PyObject *)made;
}

/* Sets the slot of a record. Returns 0, or -1 with an exception. */
static int
aiok_lock_record(PyTypeObject *type, PyObject *record, Py_ssize_t slot, PyObject *lock)
{
    PyObject **at = (PyObject **)((char *)record + slot);
    if (!Py_IS_TYPE(record, type)) {
        PyErr_SetString(PyExc_TypeError, "The record is of another class.");
        return -1;
    }
    Py_XSETREF(*at, Py_NewRef(lock));
    return 0;
}

/* Sets the slots and members of the types that Cython has created. Returns 0, or -1 with an
exception. */
static int
aiok_record_types(PyTypeObject *record, PyTypeObject *tracked)
{
    if (record->tp_basicsize != sizeof(AiokRecord) || tracked->tp_basicsize < (Py_ssize_t)sizeof(AiokRecord)
        || tracked->tp_base != record || PyType_HasFeature(record, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(
            PyExc_ImportError, "The types of records have an unexpected memory layout.");
        return -1;
    }
    for (PyMemberDef *member = aiok_record_members; member->name != NULL; member++) {
        PyObject *descriptor = PyDescr_NewMember(record, member);
        if (descriptor == NULL
            || PyDict_SetItemString(record->tp_dict, member->name, descriptor) < 0) {
            Py_XDECREF(descriptor);
            return -1;
        }
        Py_DECREF(descriptor);
    }
    aiok_record_type = aiok_spares[AIOK_PLAIN].type = record;
    aiok_tracked_type = tracked;
    record->tp_name = tracked->tp_name = "aiokclient.types.ConsumerRecord";
    record->tp_new = tracked->tp_new = aiok_record_tp_new;
    record->tp_vectorcall = tracked->tp_vectorcall == NULL ? NULL : aiok_record_vectorcall;
    record->tp_dealloc = aiok_record_dealloc;
    tracked->tp_dealloc = aiok_tracked_dealloc;
    /* Subclasses in Python look these up in the untracked type. */
    record->tp_traverse = tracked->tp_traverse = aiok_record_traverse;
    record->tp_clear = tracked->tp_clear = aiok_record_clear;
    tracked->tp_flags |= Py_TPFLAGS_HAVE_GC;
    tracked->tp_free = PyObject_GC_Del;
    PyType_Modified(record);
    PyType_Modified(tracked);
    return 0;
}

#endif
