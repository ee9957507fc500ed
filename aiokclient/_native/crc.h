/* CRC-32C of short buffers, by the processor's CRC instruction; see `crc.py`.

For large buffers, the crc32c package is faster, because it computes several streams at a time. For
short buffers, calling the package takes longer than the computation. `aiok_crc_here` returns
whether the processor has the instruction. */

#ifndef AIOKCLIENT_RECORD_CRC_H
#define AIOKCLIENT_RECORD_CRC_H

#include <stdint.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)

static inline int
aiok_crc_here(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t
aiok_crc32c(const uint8_t *at, size_t size)
{
    uint64_t crc = 0xFFFFFFFFu, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    uint32_t low = (uint32_t)crc;
    for (; size > 0; at++, size--) {
        low = __builtin_ia32_crc32qi(low, *at);
    }
    return ~low;
}

#else

static inline int
aiok_crc_here(void)
{
    return 0;
}

static uint32_t
aiok_crc32c(const uint8_t *at, size_t size)
{
    (void)at;
    (void)size;
    return 0;
}

#endif
#endif
