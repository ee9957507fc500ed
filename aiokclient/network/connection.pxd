"""What has these names in `aiokclient._native`, as compiled modules know it."""

from aiokclient._native.ground cimport PendingRequest, call_after_read, start_request
