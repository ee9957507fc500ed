"""The types of these names in `aiokclient._native`, as compiled modules know them."""

from aiokclient._native.record cimport RecordBatchBuilder, new_builder
