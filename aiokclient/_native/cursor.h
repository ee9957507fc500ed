/* What consumer.pyx needs of C: a clock that costs nothing, slots of a type, StopIteration. */

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

/* Nanoseconds, right to a few milliseconds: reading an exact clock costs as much as all the rest of
handing out a record. */
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

/* What `anext` and `await` touch for each record. The references in it are the garbage collector's
business by `aiok_cursor_traverse`. */
typedef struct {
    PyObject *records; /* An iterator over those at hand. */
    PyObject *spare; /* An awaitable for the next `anext`, unless somebody else has it. */
    PyObject *stop; /* A StopIteration, likewise. */
    int64_t until; /* Of the coarse clock; the time to give way. */
    int exact; /* There is another clock. */
} AiokCursorState;

typedef struct {
    PyObject *cursor; /* NULL once it is awaited. */
    int driven; /* A coroutine answers it. */
} AiokAwaitableState;

/* Where these are in the objects that Cython lays out. */
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

/* `am_anext` */
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

/* The next record at hand, or NULL, perhaps with an exception. With a record the awaitable's reference
to the cursor goes to the caller. */
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

/* `am_send`, which Python 3.11 calls to await something. */
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

/* `tp_iternext`, which Python 3.12 and later call to await something. */
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

/* Cython enters a method of its own as `__anext__`, which subclasses in Python would look up and
call for each record. With the descriptor that a type in C has, they take over the slot itself. */
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

/* Puts the slots into the types that Cython has made; 0, or -1 with an exception. */
static int
aiok_cursor_types(PyTypeObject *cursors, Py_ssize_t cursor_at, PyTypeObject *awaitables,
                  Py_ssize_t awaitable_at, iternextfunc slow_next, sendfunc slow_send)
{
    if (cursors->tp_as_async == NULL || awaitables->tp_as_async == NULL
        || !PyType_IS_GC(cursors) || !PyType_IS_GC(awaitables)
        || PyType_HasFeature(cursors, Py_TPFLAGS_HEAPTYPE)
        || PyType_HasFeature(awaitables, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_ImportError, "the types of cursors have another layout");
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
