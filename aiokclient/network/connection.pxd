"""The class and functions of these names in `aiokclient._native`, for compiled modules."""

from aiokclient._native.ground cimport PendingRequest, call_after_read, start_request
