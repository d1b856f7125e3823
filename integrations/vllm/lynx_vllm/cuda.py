"""Memory of a GPU that another process can be given: a few functions of the CUDA driver, called as C.

Not PyTorch's allocator, whose memory can't be handed over as a descriptor. Memory behind a descriptor lives until the last
process lets go of it: neither an agent nor a vLLM that is killed pulls it away under the other.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

#: What the driver's library is called.
LIBRARIES = ("libcuda.so.1", "libcuda.so")

_PINNED = 1
_DEVICE = 1
_DESCRIPTOR = 1
_READ_AND_WRITE = 3


class CudaError(RuntimeError):
    """There is no driver, or it refuses."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class Driver:
    """The driver, with a GPU's own context current: the one that PyTorch uses."""

    def __init__(self, ordinal: int, libraries: tuple[str, ...] = LIBRARIES) -> None:
        self._library = _load(libraries)
        self._call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self._device = device
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def uuid(self) -> bytes:
        """The GPU's name in any container."""
        found = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(found), self._device)
        return bytes(found)

    def allocate(self, size: int) -> Memory:
        """At least so many bytes, with anything in them."""
        self._enter()
        properties = _Properties(_PINNED, _DESCRIPTOR, self._location())
        unit = ctypes.c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(properties), ctypes.c_int(0))
        size = -(-size // unit.value) * unit.value
        handle, address, length = ctypes.c_ulonglong(), ctypes.c_ulonglong(), ctypes.c_size_t(size)
        self._call("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(properties), ctypes.c_ulonglong(0))
        nothing = ctypes.c_size_t(0)
        zero = ctypes.c_ulonglong(0)
        self._call("cuMemAddressReserve", ctypes.byref(address), length, nothing, zero, zero)
        self._call("cuMemMap", address, length, nothing, handle, zero)
        access = _Access(self._location(), _READ_AND_WRITE)
        self._call("cuMemSetAccess", address, length, ctypes.byref(access), ctypes.c_size_t(1))
        descriptor = ctypes.c_int(-1)
        self._call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, ctypes.c_int(_DESCRIPTOR), zero)
        return Memory(self, handle.value, address.value, size, descriptor.value)

    def free(self, memory: Memory) -> None:
        """Lets go of it. Whoever has its descriptor keeps what it is of."""
        self._enter()
        os.close(memory.descriptor)
        address, length = ctypes.c_ulonglong(memory.address), ctypes.c_size_t(memory.size)
        self._call("cuMemUnmap", address, length)
        self._call("cuMemAddressFree", address, length)
        self._call("cuMemRelease", ctypes.c_ulonglong(memory.handle))

    def close(self) -> None:
        """Lets go of the context."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _enter(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def _location(self) -> _Location:
        return _Location(_DEVICE, self._device.value)

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise CudaError(f"the CUDA driver has no {name}: Lynx needs a driver for CUDA 12 or later")
        code = function(*arguments)
        if code:
            raise CudaError(f"the CUDA driver refuses {name}: error {code}")


class Memory:
    """Memory of a GPU, mapped in this process."""

    def __init__(self, driver: Driver, handle: int, address: int, size: int, descriptor: int) -> None:
        self._driver = driver
        self.handle = handle
        self.address = address
        self.size = size
        #: What another process opens it by; this one's own.
        self.descriptor = descriptor

    def array(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """What `__cuda_array_interface__` says of it as elements of two bytes."""
        return {"shape": shape, "typestr": "<i2", "data": (self.address, False), "strides": None, "version": 3}

    def free(self) -> None:
        """Lets go of it."""
        self._driver.free(self)


def _load(libraries: tuple[str, ...]) -> ctypes.CDLL:
    for name in libraries:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(f"there is no CUDA driver here: none of {', '.join(libraries)} can be loaded")
