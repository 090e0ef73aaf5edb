#!/usr/bin/env python3
"""Writes JPEGs and what libjpeg-turbo makes of them at 1/2, 1/4 and 1/8 of their size, for jpeg_test.cpp:
scaled_decode.py trainyard/data/testdata

Needs Pillow (benchmarks/peers/requirements.txt), whose draft() asks libjpeg-turbo for a smaller inverse DCT. Each
golden file: uint8 [height, width, 3].
"""
import os
import sys

import numpy as np
from PIL import Image, features

folder = sys.argv[1]
HEIGHT, WIDTH = 97, 130
FORMS = {"420": {"subsampling": 2}, "444": {"subsampling": 0}, "progressive": {"subsampling": 2, "progressive": True}}

assert features.check_feature("libjpeg_turbo"), "Pillow was built with another libjpeg"
# Slopes, edges and a fine pattern, so that every coefficient matters.
y, x = np.mgrid[:HEIGHT, :WIDTH]
image = np.stack([x * 255 // WIDTH, y * 255 // HEIGHT, 255 * ((x // 9 + y // 7) % 2)], axis=2)
image[20:60, 30:90] = 40 * (x[20:60, 30:90, None] % 3) + 60
image = image.astype(np.uint8)


def write(name, pixels, **how):
    path = os.path.join(folder, f"scaled_{name}.jpg")
    Image.fromarray(pixels).save(path, quality=90, **how)
    for scale in (2, 4, 8):
        small = Image.open(path)
        small.draft(small.mode, (WIDTH // scale, HEIGHT // scale))
        assert small.size == (-(-WIDTH // scale), -(-HEIGHT // scale)), small.size
        np.save(os.path.join(folder, f"scaled_{name}_{scale}.npy"), np.asarray(small.convert("RGB")))


for form, how in FORMS.items():
    write(form, image, **how)
write("gray", image[:, :, 1])
