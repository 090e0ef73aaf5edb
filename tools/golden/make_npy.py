#!/usr/bin/env python3
"""Writes the small .npy files that npy_test.cpp reads: make_npy.py trainyard/formats/testdata

Needs: pip install numpy.
"""
import os
import sys

import numpy as np

folder = sys.argv[1]


def path(name):
    return os.path.join(folder, name + ".npy")


np.save(path("float32_2x3"), np.arange(6, dtype=np.float32).reshape(2, 3) / 4)
np.save(path("float64_scalar"), np.float64(2.5))
np.save(path("int64_3"), np.array([1, -2, 3], dtype=np.int64))
np.save(path("uint8_empty_0x4"), np.zeros((0, 4), dtype=np.uint8))
np.save(path("fortran_2x3"), np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
np.save(path("big_endian_2"), np.array([1, 2], dtype=">f4"))
with open(path("version_2_float32_2"), "wb") as file:
    np.lib.format.write_array(file, np.array([1, 2], dtype=np.float32), version=(2, 0))
