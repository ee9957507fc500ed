/* The parts of consumer.pyx that need C: a fast clock, type slots, and StopIteration. */

#ifndef AIOKCLIENT_CURSOR_H
#define AIOKCLIENT_CURSOR_H

#include <Python.h>
#include <stdint.h>

#include "stop_iteration.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

/* Returns nanoseconds with a resolution of a few milliseconds. Reading an exact clock would cost as
much as the rest of the delivery of a record. */
static inline int64_t
aiok_coarse_time(void)
{
#ifdef _WIN32
    return (int64_t)GetTickCount64() * 1000000;
#elif defined(__APPLE__)
    return (int64_t)clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX);
#else
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
}

/* The state that `anext` and `await` use for each record. `aiok_cursor_traverse` shows its
references to the garbage collector. */
typedef struct {
    PyObject *records; /* An iterator over the exposed records. */
    PyObject *spare; /* The awaitable that `anext` reuses if no other object refers to it. */
    PyObject *stop; /* The StopIteration that is reused in the same way. */
    int64_t until; /* The time to yield to the event loop, by the coarse clock. */
    int exact; /* Whether the cursor uses another clock. */
} AiokCursorState;

typedef struct {
    PyObject *cursor; /* NULL after it was awaited. */
    int driven; /* Whether it drives the coroutine of `_advance`. */
} AiokAwaitableState;

/* The offsets of these structs in the objects, whose layout Cython determines. */
static Py_ssize_t aiok_cursor_at, aiok_awaitable_at;
static PyTypeObject *aiok_awaitables;
static iternextfunc aiok_slow_next;
static sendfunc aiok_slow_send;

static inline AiokCursorState *
aiok_cursor_state(PyObject *cursor)
{
    return (AiokCursorState *)((char *)cursor + aiok_cursor_at);
}

static inline AiokAwaitableState *
aiok_awaitable_state(PyObject *awaitable)
{
    return (AiokAwaitableState *)((char *)awaitable + aiok_awaitable_at);
}

/* The slot `am_anext`. */
static PyObject *
aiok_anext(PyObject *cursor)
{
    AiokCursorState *state = aiok_cursor_state(cursor);
    PyObject *awaitable = state->spare;
    if (awaitable == NULL || Py_REFCNT(awaitable) != 1) {
        PyObject *nothing = PyTuple_New(0);
        if (nothing == NULL) {
            return NULL;
        }
        awaitable = aiok_awaitables->tp_new(aiok_awaitables, nothing, NULL);
        Py_DECREF(nothing);
        if (awaitable == NULL) {
            return NULL;
        }
        Py_XSETREF(state->spare, awaitable);
    }
    if (aiok_awaitable_state(awaitable)->cursor == NULL) {
        aiok_awaitable_state(awaitable)->cursor = Py_NewRef(cursor);
    }
    return Py_NewRef(awaitable);
}

/* Returns the next exposed record, or NULL with or without an exception. With a record, the caller
takes over the awaitable's reference to the cursor. */
static inline PyObject *
aiok_take(PyObject *awaitable, PyObject **cursor)
{
    AiokAwaitableState *waiting = aiok_awaitable_state(awaitable);
    *cursor = waiting->cursor;
    if (*cursor == NULL || waiting->driven) {
        return NULL;
    }
    AiokCursorState *state = aiok_cursor_state(*cursor);
    if (state->exact || state->records == NULL || aiok_coarse_time() >= state->until) {
        return NULL;
    }
    PyObject *record = Py_TYPE(state->records)->tp_iternext(state->records);
    if (record != NULL) {
        waiting->cursor = NULL;
    } else if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        PyErr_Clear();
    }
    return record;
}

/* The slot `am_send`, which Python 3.11 calls for an await. */
static PySendResult
aiok_send(PyObject *awaitable, PyObject *value, PyObject **result)
{
    PyObject *cursor;
    *result = aiok_take(awaitable, &cursor);
    if (*result != NULL) {
        Py_DECREF(cursor);
        return PYGEN_RETURN;
    }
    if (PyErr_Occurred()) {
        return PYGEN_ERROR;
    }
    return aiok_slow_send(awaitable, value, result);
}

/* The slot `tp_iternext`, which Python 3.12 and later call for an await. */
static PyObject *
aiok_next_of_awaitable(PyObject *awaitable)
{
    PyObject *cursor, *record = aiok_take(awaitable, &cursor);
    if (record == NULL) {
        return PyErr_Occurred() ? NULL : aiok_slow_next(awaitable);
    }
    aiok_stop_iteration(&aiok_cursor_state(cursor)->stop, record);
    Py_DECREF(cursor);
    return NULL;
}

static traverseproc aiok_cursor_rest;
static inquiry aiok_cursor_clear_rest;
static traverseproc aiok_awaitable_rest;
static inquiry aiok_awaitable_clear_rest;

static int
aiok_cursor_traverse(PyObject *cursor, visitproc visit, void *arg)
{
    AiokCursorState *state = aiok_cursor_state(cursor);
    Py_VISIT(state->records);
    Py_VISIT(state->spare);
    Py_VISIT(state->stop);
    return aiok_cursor_rest(cursor, visit, arg);
}

static int
aiok_cursor_drop(PyObject *cursor)
{
    AiokCursorState *state = aiok_cursor_state(cursor);
    Py_CLEAR(state->records);
    Py_CLEAR(state->spare);
    Py_CLEAR(state->stop);
    return 0;
}

static int
aiok_cursor_clear(PyObject *cursor)
{
    (void)aiok_cursor_drop(cursor);
    return aiok_cursor_clear_rest(cursor);
}

static int
aiok_awaitable_traverse(PyObject *awaitable, visitproc visit, void *arg)
{
    Py_VISIT(aiok_awaitable_state(awaitable)->cursor);
    return aiok_awaitable_rest(awaitable, visit, arg);
}

static int
aiok_awaitable_clear(PyObject *awaitable)
{
    Py_CLEAR(aiok_awaitable_state(awaitable)->cursor);
    return aiok_awaitable_clear_rest(awaitable);
}

/* Gives the type a slot wrapper as `__anext__`, so that subclasses in Python inherit the slot. The
`__anext__` of Cython is a method, which subclasses would look up and call for each record. */
static int
aiok_anext_slot(PyTypeObject *type)
{
    PyObject *there = PyObject_GetAttrString((PyObject *)&PyAsyncGen_Type, "__anext__");
    if (there == NULL) {
        return -1;
    }
    type->tp_as_async->am_anext = aiok_anext;
    if (!Py_IS_TYPE(there, &PyWrapperDescr_Type)) {
        Py_DECREF(there);
        return 0;
    }
    PyObject *ours = PyDescr_NewWrapper(type, ((PyWrapperDescrObject *)there)->d_base,
                                        (void *)aiok_anext);
    Py_DECREF(there);
    if (ours == NULL || PyDict_SetItemString(type->tp_dict, "__anext__", ours) < 0) {
        Py_XDECREF(ours);
        return -1;
    }
    Py_DECREF(ours);
    return 0;
}

/* Sets the slots of the types that Cython has created. Returns 0, or -1 with an exception. */
static int
aiok_cursor_types(PyTypeObject *cursors, Py_ssize_t cursor_at, PyTypeObject *awaitables,
                  Py_ssize_t awaitable_at, iternextfunc slow_next, sendfunc slow_send)
{
    if (cursors->tp_as_async == NULL || awaitables->tp_as_async == NULL
        || !PyType_IS_GC(cursors) || !PyType_IS_GC(awaitables)
        || PyType_HasFeature(cursors, Py_TPFLAGS_HEAPTYPE)
        || PyType_HasFeature(awaitables, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(
            PyExc_ImportError, "The types of cursors have an unexpected memory layout.");
        return -1;
    }
    aiok_cursor_at = cursor_at;
    aiok_awaitable_at = awaitable_at;
    aiok_awaitables = awaitables;
    aiok_slow_next = slow_next;
    aiok_slow_send = slow_send;
    aiok_cursor_rest = cursors->tp_traverse;
    aiok_cursor_clear_rest = cursors->tp_clear;
    aiok_awaitable_rest = awaitables->tp_traverse;
    aiok_awaitable_clear_rest = awaitables->tp_clear;
    cursors->tp_traverse = aiok_cursor_traverse;
    cursors->tp_clear = aiok_cursor_clear;
    awaitables->tp_traverse = aiok_awaitable_traverse;
    awaitables->tp_clear = aiok_awaitable_clear;
    awaitables->tp_as_async->am_send = aiok_send;
    awaitables->tp_iternext = aiok_next_of_awaitable;
    if (aiok_anext_slot(cursors) < 0) {
        return -1;
    }
    PyType_Modified(cursors);
    PyType_Modified(awaitables);
    return 0;
}

#endif
