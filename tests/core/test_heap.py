"""Freed memory goes back to the operating system, where the C library has a way."""

import sys

import numpy as np
import psutil
import pytest

from fedivon_app.core import heap


def private() -> int:
    return psutil.Process().memory_full_info().uss


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_holes_in_the_heap_are_given_back():
    blocks = [np.ones(12_000) for _ in range(2000)]  # 96 kB each: below what glibc maps by itself
    full = private()
    last = blocks[-1]  # what stays at the top keeps the heap from shrinking by itself
    del blocks
    heap.give_back()
    assert full - private() > 150e6 and last.sum() == 12_000


def test_a_library_without_a_way_is_left_alone(monkeypatch):
    heap._trim.cache_clear()
    monkeypatch.setattr(heap.ctypes.util, "find_library", lambda name: None)
    heap.give_back()
    assert heap._trim() is None
    heap._trim.cache_clear()
