"""Splits and restores a unit through ctypes, as an engine's connector would."""

import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

U32, U64 = c_uint32, c_uint64


def structure(name, **fields):
    return type(name, (Structure,), {"_fields_": list(fields.items())})


Shape = structure("Shape", layers=U32, kv_heads=U32, head_dim=U32)
Unit = structure(
    "Unit", layer=U32, kind=U32, first=U32, end=U32, prompt=U32, anchor_k_eighths=U32, anchor_v_bits=U32
)
Values = structure(
    "Values",
    memory=U32,
    page_tokens=U32,
    base=c_void_p,
    page_stride=U64,
    token_stride=U32,
    head_stride=U32,
    table=POINTER(U32),
    pages=U32,
    element=U32,
)
Segment = structure("Segment", offset=U64, bytes=U64, checksum=U64)

lynx = ctypes.CDLL(sys.argv[1])
lynx.lynx_last_error.restype = c_char_p
lynx.lynx_open.argtypes = [U32, Shape, c_char_p, U32, U64, c_char_p, POINTER(c_void_p)]
lynx.lynx_close.argtypes = [c_void_p]
for name in ("bounds", "split", "restore"):
    getattr(lynx, f"lynx_{name}").restype = c_int32


def check(code):
    assert code == 0, lynx.lynx_last_error().decode()


coder = c_void_p()
check(lynx.lynx_open(lynx.lynx_abi(), Shape(1, 1, 64), None, 0, 0, None, byref(coder)))
unit = Unit(0, 0, 0, 100, 100, 32, 4)
count, most = U32(), U64()
check(lynx.lynx_bounds(coder, byref(unit), byref(count), byref(most)))

TOKENS, PAGE = 100, 16
pages = -(-TOKENS // PAGE)
Elements = c_uint16 * (pages * PAGE * 64)
source = Elements(*[0x3F80 + i * 37 % 251 for i in range(pages * PAGE * 64)])
sink = Elements()
table = (U32 * pages)(*range(pages))


def values(of):
    return Values(0, PAGE, ctypes.addressof(of), PAGE * 64, 64, 64, table, pages, 0)


memory = (c_uint8 * most.value)()
segments = (Segment * count.value)()
check(lynx.lynx_split(coder, byref(unit), byref(values(source)), memory, most, segments, count))
check(lynx.lynx_restore(coder, byref(unit), memory, most, segments, count, byref(values(sink))))
assert source[: TOKENS * 64] == sink[: TOKENS * 64]
# Text instead of a crash.
assert lynx.lynx_split(coder, None, byref(values(source)), memory, most, segments, count) == 2
assert b"unit" in lynx.lynx_last_error()
lynx.lynx_close(coder)
print("all well")
