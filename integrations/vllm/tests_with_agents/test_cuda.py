"""The driver's functions as they are called, by a library that checks each call and has the processor for a GPU."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from lynx_vllm.cuda import CudaError, Driver

#: Where integrations/vllm/test has put it.
LIBRARY = "LYNX_FAKE_CUDA"


@pytest.fixture
def driver() -> Driver:
    return Driver(0, (os.environ[LIBRARY],))


def test_memory_is_seen_through_its_descriptor_and_given_back(driver: Driver) -> None:
    assert driver.uuid() == b"Lynx's fake GPU."
    memory = driver.allocate(3 << 20)
    # In whole units.
    assert memory.size == 4 << 20
    assert os.fstat(memory.descriptor).st_size == memory.size
    ctypes.memmove(memory.address + (3 << 20), b"kv", 2)
    with mmap.mmap(memory.descriptor, memory.size) as other:
        assert other[3 << 20 : (3 << 20) + 2] == b"kv"
        other[:2] = b"vk"
        assert ctypes.string_at(memory.address, 2) == b"vk"
        kept = os.dup(memory.descriptor)
        memory.free()
    assert os.fstat(kept).st_size == 4 << 20
    os.close(kept)
    # The library ends the process where something outlives its context.
    driver.close()


def test_an_array_of_it_has_elements_of_two_bytes(driver: Driver) -> None:
    memory = driver.allocate(1)
    said = memory.array((2, 8))
    assert (said["shape"], said["typestr"], said["data"]) == ((2, 8), "<i2", (memory.address, False))
    memory.free()
    driver.close()


def test_a_machine_without_a_driver_or_with_an_old_one_is_told_so() -> None:
    with pytest.raises(CudaError, match=r"libnothing\.so can be loaded"):
        Driver(0, ("libnothing.so",))
    with pytest.raises(CudaError, match="has no cuInit"):
        Driver(0, ("libm.so.6",))


def test_a_call_that_is_refused_is_named(driver: Driver) -> None:
    with pytest.raises(CudaError, match="refuses cuDeviceGet: error"):
        Driver(1, (os.environ[LIBRARY],))
    driver.close()
