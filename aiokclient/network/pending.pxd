"""The types of this name in `aiokclient._native`, as compiled modules know them."""

from aiokclient._native.ground cimport PendingRequest
