/* The codec for engines that split KV by themselves. Structures and numbers change only with LYNX_ABI.
 *
 * Every function returns 0 or one of the codes below, and lynx_last_error() says in words what was wrong in this thread's last
 * failed call. Nothing throws, and nothing is kept of what is passed: memory stays the caller's, and is free again when a call
 * returns. A coder is used by one thread at a time; several coders may be used at once.
 */
#ifndef LYNX_H
#define LYNX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LYNX_ABI 2

enum {
    LYNX_OK = 0,
    LYNX_ABI_MISMATCH = 1, /* the library and the header are of different versions */
    LYNX_INVALID = 2,      /* an argument is impossible */
    LYNX_TOO_SMALL = 3,    /* the memory for segments is too small: see lynx_bounds */
    LYNX_DAMAGED = 4,      /* segments have another checksum, or aren't what a split makes */
    LYNX_DEVICE = 5,       /* the GPU or its driver refuses */
    LYNX_INTERNAL = 6      /* a mistake in the library; the coder must not be used any more */
};

enum { LYNX_K = 0, LYNX_V = 1 };
enum { LYNX_HOST = 0, LYNX_GPU = 1 };
enum { LYNX_BF16 = 0, LYNX_FP16 = 1 };

typedef struct lynx_coder lynx_coder;

typedef struct {
    uint32_t layers, kv_heads, head_dim;
} lynx_shape;

/* K or V of one layer over a range of tokens. Both sides must state the same. */
typedef struct {
    uint32_t layer, kind;
    uint32_t first_token, end_token; /* at most 512 tokens */
    uint32_t prompt_tokens;          /* of the whole prompt: its first and last tokens travel raw */
    uint32_t anchor_k_eighths;       /* K's mean width in the anchor, in eighths of a bit: 8 to 64 */
    uint32_t anchor_v_bits;          /* V's planes in the anchor: 1 to 8 */
} lynx_unit;

/* Values in pages. Strides are in elements; the channels of a (token, head) lie side by side. What is coded is BF16: FP16 is rounded to
 * that when read, and written as the nearest FP16 of it, so that it comes back with the BF16's eight bits of precision. */
typedef struct {
    uint32_t memory;          /* LYNX_HOST or LYNX_GPU */
    uint32_t page_tokens;     /* a power of two from 16 to 128 */
    void *base;               /* of page 0 */
    uint64_t page_stride;
    uint32_t token_stride, head_stride;
    const uint32_t *table;    /* numbers of pages, from the one with the unit's first token; in host memory */
    uint32_t pages;           /* how many the table has */
    uint32_t element;         /* LYNX_BF16 or LYNX_FP16 */
} lynx_values;

/* A piece of the memory for segments. They lie one after the other at multiples of 16, in the order head, steps, tail. */
typedef struct {
    uint64_t offset, bytes, checksum;
} lynx_segment;

uint32_t lynx_abi(void);

/* In this thread's last failed call; never null, and valid until the next one. */
const char *lynx_last_error(void);

/* `profile` is the profile's JSON, or null for uniform widths. With `gpu` set, LYNX_GPU values are taken, through the driver of this
 * process, with at most `pinned_bytes` of pinned memory; `kernels` is the folder of machine code, or null for the usual one. */
int32_t lynx_open(uint32_t abi, lynx_shape shape, const char *profile, uint32_t gpu, uint64_t pinned_bytes,
                  const char *kernels, lynx_coder **coder);

/* Gives everything back. Null is allowed. */
void lynx_close(lynx_coder *coder);

/* Pins memory that the caller has mapped, such as the file that the agent maps too: lynx_split of LYNX_GPU values then copies into it from
 * the GPU without a detour. It counts in `pinned_bytes`, which must leave room for a unit besides, and stays mapped until lynx_unregister
 * or lynx_close. A second call replaces the first. Where it is refused (LYNX_DEVICE: too large for the budget, pinned already by another
 * coder, a coder without a GPU, memory that can't be pinned) every lynx_split gives the same, by one copy more. */
int32_t lynx_register(lynx_coder *coder, void *memory, uint64_t bytes);
int32_t lynx_unregister(lynx_coder *coder);

/* How many segments a unit has, and how many bytes its segments take at most. */
int32_t lynx_bounds(const lynx_coder *coder, const lynx_unit *unit, uint32_t *segments, uint64_t *bytes);

/* Splits a unit into `to`, which may be shared with the agent: with its tail where `count` is the number of its segments, without where it
 * is one less. The values are read until it returns: they must be complete before, so on a GPU the caller waits for the event after
 * which they are. */
int32_t lynx_split(lynx_coder *coder, const lynx_unit *unit, const lynx_values *values, uint8_t *to, uint64_t capacity,
                   lynx_segment *segments, uint32_t count);

/* Writes an approximation: of the head and the first `steps` steps. On failure some values may have been written. */
int32_t lynx_merge(lynx_coder *coder, const lynx_unit *unit, const uint8_t *from, uint64_t length,
                   const lynx_segment *segments, uint32_t count, uint32_t steps, const lynx_values *values);

/* Writes the very values that were split, from all segments; of FP16 those that were coded. */
int32_t lynx_restore(lynx_coder *coder, const lynx_unit *unit, const uint8_t *from, uint64_t length,
                     const lynx_segment *segments, uint32_t count, const lynx_values *values);

/* The values as they are, in BF16 in the order [token][head][channel]; and the other way. */
int32_t lynx_read(lynx_coder *coder, const lynx_unit *unit, const lynx_values *values, uint8_t *to, uint64_t capacity);
int32_t lynx_write(lynx_coder *coder, const lynx_unit *unit, const uint8_t *from, uint64_t length,
                   const lynx_values *values);

#ifdef __cplusplus
}
#endif
#endif
