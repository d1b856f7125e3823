// Transpositions in registers: between codes, a byte an element, and planes, a bit an element.
//
// A ballot for each plane would say the same, and cost six times the arithmetic that memory leaves time for.
#pragma once
#include "device.cuh"

// Eight bytes as an 8 x 8 matrix of bits, transposed: bit p of byte i against bit i of byte p. Bytes 0 to 3 are x, 4 to 7 are y.
LYNX_DEVICE void transpose_bits(u32 &x, u32 &y) {
    u32 t;
    t = lop3<LYNX_XOR_AND>(x, x >> 7, 0x00aa00aau);
    x = lop3<LYNX_XOR3>(x, t, t << 7);
    t = lop3<LYNX_XOR_AND>(y, y >> 7, 0x00aa00aau);
    y = lop3<LYNX_XOR3>(y, t, t << 7);
    t = lop3<LYNX_XOR_AND>(x, x >> 14, 0x0000ccccu);
    x = lop3<LYNX_XOR3>(x, t, t << 14);
    t = lop3<LYNX_XOR_AND>(y, y >> 14, 0x0000ccccu);
    y = lop3<LYNX_XOR3>(y, t, t << 14);
    u32 low = lop3<LYNX_SELECT>(x, y << 4, 0x0f0f0f0fu);
    y = lop3<LYNX_SELECT>(x >> 4, y, 0x0f0f0f0fu);
    x = low;
}

// Four lanes' words as a 4 x 4 matrix of bytes, transposed: byte k of lane q against byte q of lane k.
struct Quad {
    u32 first, second;

    LYNX_DEVICE explicit Quad(u32 lane)
        : first(lane & 1 ? 0x3715u : 0x6240u), second(lane & 2 ? 0x3276u : 0x5410u) {}

    LYNX_DEVICE u32 transpose(u32 x) const {
        x = __byte_perm(x, __shfl_xor_sync(LYNX_ALL_LANES, x, 1), first);
        return __byte_perm(x, __shfl_xor_sync(LYNX_ALL_LANES, x, 2), second);
    }
};
