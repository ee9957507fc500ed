"""The functions of this name in `aiokclient._native`, as compiled modules know them."""

from aiokclient._native.ground cimport new_request
