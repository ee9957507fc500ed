/* What _send_cy.pyx needs of C: the time, and a short way to call. */

#ifndef AIOKCLIENT_SEND_H
#define AIOKCLIENT_SEND_H

#include <Python.h>
#include <stdint.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

/* Milliseconds since the epoch. */
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

/* Calls a function without arguments; one of C directly. */
static inline PyObject *
aiok_call(PyObject *function)
{
    if (PyCFunction_CheckExact(function) && PyCFunction_GET_FLAGS(function) == METH_NOARGS) {
        return PyCFunction_GET_FUNCTION(function)(PyCFunction_GET_SELF(function), NULL);
    }
    return PyObject_CallNoArgs(function);
}

#endif
