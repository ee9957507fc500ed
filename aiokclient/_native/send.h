/* The parts of producer_send.pxi that need C: the time, and faster calls. */

#ifndef AIOKCLIENT_SEND_H
#define AIOKCLIENT_SEND_H

#include <Python.h>
#include <stdint.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

/* Returns the milliseconds since the epoch. */
static inline int64_t
aiok_time_ms(void)
{
#ifdef _WIN32
    FILETIME now;
    GetSystemTimePreciseAsFileTime(&now);
    int64_t ticks = (int64_t)now.dwHighDateTime << 32 | now.dwLowDateTime;
    return ticks / 10000 - 11644473600000;
#else
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
#endif
}

/* Calls a function without arguments. A C function is called directly. */
static inline PyObject *
aiok_call(PyObject *function)
{
    if (PyCFunction_CheckExact(function) && PyCFunction_GET_FLAGS(function) == METH_NOARGS) {
        return PyCFunction_GET_FUNCTION(function)(PyCFunction_GET_SELF(function), NULL);
    }
    return PyObject_CallNoArgs(function);
}

/* `send(topic, value)` without argument parsing, which would take a third of its time. */
typedef PyObject *(*AiokSend)(PyObject *self, PyObject *topic, PyObject *value);
typedef PyObject *(*AiokFast)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

static AiokSend aiok_send_plain;
static AiokFast aiok_send_sorted;

/* Replaces the error of a call that has the arguments `names` if another client has one of them. */
static void
aiok_explain(PyObject *names)
{
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(names); index++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, index), "timestamp_ms") == 0) {
            PyErr_SetString(PyExc_TypeError,
                            "send() got an unexpected keyword argument 'timestamp_ms'. Write "
                            "timestamp=, in milliseconds since the epoch.");
        }
    }
}

static PyObject *
aiok_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count == 2 && names == NULL) {
        return aiok_send_plain(self, args[0], args[1]);
    }
    PyObject *delivery = aiok_send_sorted(self, args, count, names);
    if (delivery == NULL && names != NULL) {
        aiok_explain(names);
    }
    return delivery;
}

/* Makes the type's `send` use `aiok_send`. A method with an unexpected layout stays unchanged. */
static void
aiok_send_shortly(PyTypeObject *type, AiokSend plain)
{
    PyObject *found = PyDict_GetItemString(type->tp_dict, "send");
    if (found == NULL || !Py_IS_TYPE(found, &PyMethodDescr_Type)) {
        return;
    }
    PyMethodDef *method = ((PyMethodDescrObject *)found)->d_method;
    if (method->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
        aiok_send_plain = plain;
        aiok_send_sorted = (AiokFast)(void (*)(void))method->ml_meth;
        method->ml_meth = (PyCFunction)(void (*)(void))aiok_send;
    }
}

/* Gives a class its own descriptor of the method `send` that it inherits from `base`. */
static int
aiok_own_send(PyTypeObject *type, PyTypeObject *base)
{
    PyObject *found = PyDict_GetItemString(base->tp_dict, "send");
    if (found == NULL || !Py_IS_TYPE(found, &PyMethodDescr_Type)) {
        return 0;
    }
    PyObject *own = PyDescr_NewMethod(type, ((PyMethodDescrObject *)found)->d_method);
    int failed = own == NULL ? -1 : PyObject_SetAttrString((PyObject *)type, "send", own);
    Py_XDECREF(own);
    return failed;
}

#endif
