// Splits, merges and restores a unit in host memory, and makes mistakes.
#include "lynx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            printf("line %d: %s: %s\n", __LINE__, #condition, lynx_last_error());          \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

enum { TOKENS = 150, PAGE = 64, PAGES = 3, HEADS = 2, CHANNELS = 64, SLOTS = 6 };

static uint16_t source[SLOTS * PAGE * HEADS * CHANNELS], sink[SLOTS * PAGE * HEADS * CHANNELS];

// FP16 is coded as its BF16, and comes back as that: to code it again gives the same.
static void fp16(lynx_coder *coder, lynx_values values, uint32_t kind) {
    const lynx_unit unit = {0, kind, 0, TOKENS, TOKENS, 32, 4};
    uint32_t count;
    uint64_t most;
    lynx_segment told[10], again[10];
    CHECK(lynx_bounds(coder, &unit, &count, &most) == LYNX_OK);
    uint8_t *first = malloc(most), *second = malloc(most);
    values.element = LYNX_FP16, values.base = source;
    CHECK(lynx_split(coder, &unit, &values, first, most, told, count) == LYNX_OK);
    values.base = sink;
    CHECK(lynx_restore(coder, &unit, first, most, told, count, &values) == LYNX_OK);
    CHECK(lynx_split(coder, &unit, &values, second, most, again, count) == LYNX_OK);
    CHECK(memcmp(told, again, count * sizeof *told) == 0);
    const size_t at = values.table[0] * PAGE * HEADS * CHANNELS;
    for (size_t i = at; i < at + PAGE * HEADS * CHANNELS; i++) {
        // Of ten bits of mantissa seven are left.
        CHECK((sink[i] & 7) == 0 && abs((sink[i] & 0x7fff) - (source[i] & 0x7fff)) <= 4);
    }
    uint16_t bits;
    CHECK(lynx_read(coder, &unit, &values, second, most) == LYNX_OK);
    memcpy(&bits, second, 2);
    CHECK(bits == ((sink[at] & 0x8000) | (((sink[at] & 0x7fff) >> 3) + 0x3800)));
    values.element = 2;
    CHECK(lynx_split(coder, &unit, &values, first, most, told, count) == LYNX_INVALID);
    free(first), free(second);
}

int main(void) {
    const uint32_t table[PAGES] = {4, 1, 3};
    const lynx_shape shape = {2, HEADS, CHANNELS};
    lynx_coder *coder = NULL;
    CHECK(lynx_abi() == LYNX_ABI);
    CHECK(lynx_open(LYNX_ABI + 1, shape, NULL, 0, 0, NULL, &coder) == LYNX_ABI_MISMATCH);
    CHECK(strstr(lynx_last_error(), "version"));
    CHECK(lynx_open(LYNX_ABI, shape, "{}", 0, 0, NULL, &coder) == LYNX_INVALID);
    CHECK(lynx_open(LYNX_ABI, shape, NULL, 0, 0, NULL, &coder) == LYNX_OK);

    uint32_t state = 1;
    for (size_t i = 0; i < sizeof source / 2; i++) {
        state = state * 1664525 + 1013904223;
        source[i] = (uint16_t)(0x3c00 + (state >> 22)) ^ (uint16_t)(state & 0x8000);
    }
    for (uint32_t kind = LYNX_K; kind <= LYNX_V; kind++) {
        const lynx_unit unit = {1, kind, 0, TOKENS, TOKENS, 28, 4};
        lynx_values values = {LYNX_HOST, PAGE, source, PAGE * HEADS * CHANNELS, HEADS * CHANNELS, CHANNELS, table, PAGES, 0};
        uint32_t count;
        uint64_t most;
        CHECK(lynx_bounds(coder, &unit, &count, &most) == LYNX_OK);
        uint8_t *segments = malloc(most);
        lynx_segment told[10];
        CHECK(count <= 10);
        CHECK(lynx_split(coder, &unit, &values, segments, 100, told, count) == LYNX_TOO_SMALL);
        CHECK(lynx_split(coder, &unit, &values, segments, most, told, count) == LYNX_OK);

        values.base = sink;
        CHECK(lynx_merge(coder, &unit, segments, most, told, count, 1, &values) == LYNX_OK);
        CHECK(lynx_merge(coder, &unit, segments, most, told, count, 9, &values) == LYNX_INVALID);
        memset(sink, 0, sizeof sink);
        CHECK(lynx_restore(coder, &unit, segments, most, told, count, &values) == LYNX_OK);
        for (uint32_t token = 0; token < TOKENS; token++) {
            size_t at = (table[token / PAGE] * PAGE + token % PAGE) * HEADS * CHANNELS;
            CHECK(memcmp(source + at, sink + at, HEADS * CHANNELS * 2) == 0);
        }
        uint8_t *bits = malloc(TOKENS * HEADS * CHANNELS * 2);
        CHECK(lynx_read(coder, &unit, &values, bits, 100) == LYNX_TOO_SMALL);
        CHECK(lynx_read(coder, &unit, &values, bits, TOKENS * HEADS * CHANNELS * 2) == LYNX_OK);
        CHECK(memcmp(bits, source + table[0] * PAGE * HEADS * CHANNELS, PAGE * HEADS * CHANNELS * 2) == 0);
        memset(sink, 0, sizeof sink);
        CHECK(lynx_write(coder, &unit, bits, 10, &values) == LYNX_INVALID);
        CHECK(lynx_write(coder, &unit, bits, TOKENS * HEADS * CHANNELS * 2, &values) == LYNX_OK);
        CHECK(memcmp(sink + table[0] * PAGE * HEADS * CHANNELS, bits, PAGE * HEADS * CHANNELS * 2) == 0);
        free(bits);

        // Without its tail: the same segments but for the last.
        lynx_segment brief[9];
        uint8_t *rest = malloc(most);
        values.base = source;
        CHECK(lynx_split(coder, &unit, &values, rest, most, brief, count - 1) == LYNX_OK);
        CHECK(memcmp(brief, told, (count - 1) * sizeof *brief) == 0);
        CHECK(lynx_split(coder, &unit, &values, rest, most, brief, count - 2) == LYNX_INVALID);
        values.base = sink;
        free(rest);
        segments[told[1].offset + 5] ^= 1;
        CHECK(lynx_merge(coder, &unit, segments, most, told, count, 1, &values) == LYNX_DAMAGED);
        CHECK(strstr(lynx_last_error(), "segment 1"));
        values.memory = LYNX_GPU;
        CHECK(lynx_merge(coder, &unit, segments, most, told, count, 1, &values) == LYNX_DEVICE);
        CHECK(lynx_register(coder, segments, most) == LYNX_DEVICE);
        CHECK(lynx_unregister(coder) == LYNX_OK);
        values.memory = LYNX_HOST;
        fp16(coder, values, kind);
        values.pages = 2;
        CHECK(lynx_split(coder, &unit, &values, segments, most, told, count) == LYNX_INVALID);
        CHECK(lynx_split(NULL, &unit, &values, segments, most, told, count) == LYNX_INVALID);
        free(segments);
    }
    lynx_close(coder);
    lynx_close(NULL);
    puts("all well");
}
