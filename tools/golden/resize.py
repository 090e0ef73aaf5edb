#!/usr/bin/env python3
"""Writes what TensorFlow and torchvision make of one image, for resize_test.cpp: resize.py trainyard/data/testdata

Needs TensorFlow, torch and torchvision (benchmarks/peers/requirements.txt). Each file: float32 [3, height, width].
"""
import os
import sys

import numpy as np
import tensorflow as tf
import torch
from torchvision.transforms.v2 import functional as vision

folder = sys.argv[1]
HEIGHT, WIDTH = 23, 31
SIZES = {"smaller": (10, 14), "larger": (37, 40)}

# The image of resize_test.cpp: a linear congruential generator's upper bits.
state, pixels = 1, []
for _ in range(HEIGHT * WIDTH * 3):
    state = (1664525 * state + 1013904223) % 2**32
    pixels.append(state >> 24)
image = np.array(pixels, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)

V1 = tf.compat.v1.image.ResizeMethod
METHODS = {"nearest": V1.NEAREST_NEIGHBOR, "bilinear": V1.BILINEAR, "bicubic": V1.BICUBIC, "area": V1.AREA}
HALF_PIXEL = {
    "nearest": tf.raw_ops.ResizeNearestNeighbor,
    "bilinear": tf.raw_ops.ResizeBilinear,
    "bicubic": tf.raw_ops.ResizeBicubic,
}
SMOOTH = {"bilinear": vision.InterpolationMode.BILINEAR, "bicubic": vision.InterpolationMode.BICUBIC}


def save(name, height_width_channel):
    planes = np.ascontiguousarray(np.moveaxis(np.asarray(height_width_channel, dtype=np.float32), 2, 0))
    np.save(os.path.join(folder, f"resize_{name}.npy"), planes)


for size_name, size in SIZES.items():
    for method, code in METHODS.items():
        save(f"tf1_{method}_{size_name}", tf.compat.v1.image.resize_images(image, size, method=code))
    for method, operation in HALF_PIXEL.items():
        resized = operation(images=image[None].astype(np.float32), size=size, half_pixel_centers=True)
        save(f"tf2_{method}_{size_name}", resized[0])
    for method in SMOOTH:
        save(f"tf2_antialias_{method}_{size_name}", tf.image.resize(image, size, method=method, antialias=True))
for method, mode in SMOOTH.items():
    planes = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)
    resized = vision.resize(planes, list(SIZES["smaller"]), interpolation=mode, antialias=True)
    save(f"torchvision_antialias_{method}_smaller", resized.permute(1, 2, 0))
