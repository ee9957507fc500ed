"""Native twins of the modules in `record`, for reading, writing, hashing, and Arrow columns.

All parts are in one extension module, so that they can call each other's C functions.
"""

from aiokclient.errors import CorruptRecordError, KafkaError
from aiokclient.record.compression import DEFAULT_LIMIT, Compression, ContentLimitError, decompress
from aiokclient.record.crc import crc32c

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from aiokclient._native.ground cimport (
    ConsumerRecord,
    SharedFields,
    Tracked,
    block_start,
    new_block,
    read_only_view,
    record_spares,
    shared_fields,
)

__all__ = ["Columns", "RecordBatch", "RecordBatchBuilder", "murmur2", "span", "walk"]

include "record_decode.pxi"
include "record_batch.pxi"
include "record_builder.pxi"
include "record_murmur2.pxi"
include "record_arrow.pxi"
