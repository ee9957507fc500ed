"""The functions of this name in `aiokclient._native`, as compiled modules know them."""

from aiokclient._native.ground cimport call_after_read, start_request
