#!/usr/bin/env python3
"""Writes what torchvision's augmentation operations make of one image, and the magnitudes that its policies draw, for
augment_ops_test.cpp and auto_augment_test.cpp: augment.py trainyard/data/testdata

Needs torch and torchvision (benchmarks/peers/requirements.txt). augment_ops.npy: uint8 [cases, 3, height, width];
augment_ops.txt: operation, magnitude, sampling and fill of each case; augment_rotations.npy: uint8, one case of ROTATIONS
behind the other; augment_magnitudes.txt: policy, operation, bin, magnitude for images of 200 x 224; augment_pairs.txt: policy, pair, operation,
probability, magnitude for images of 200 x 224.
"""
import os
import sys

import numpy as np
import torch
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment, TrivialAugmentWide
from torchvision.transforms.autoaugment import _apply_op

folder = sys.argv[1]
HEIGHT, WIDTH = 32, 44


def generated(height, width):
    """The image of augment_ops_test.cpp: a linear congruential generator's upper bits, of little contrast."""
    state, pixels = 1, []
    for _ in range(3 * height * width):
        state = (1664525 * state + 1013904223) % 2**32
        pixels.append(30 + (state >> 24) * 190 // 256)
    return torch.tensor(pixels, dtype=torch.uint8).reshape(3, height, width)


image = generated(HEIGHT, WIDTH)

# No magnitude at which a place falls on the middle between two pixels: there torch rounds as its errors fall, which
# ROTATIONS compare.
GEOMETRY = {"ShearX": [0.17, -0.3], "ShearY": [0.17, -0.3], "TranslateX": [7.9, -12], "TranslateY": [5, -32],
            "Rotate": [11, -30, 135]}
CASES = [(op, m, sampling, 0) for op, ms in GEOMETRY.items() for m in ms for sampling in ("nearest", "bilinear")]
CASES += [("Rotate", 25, "nearest", 123), ("ShearX", 0.99, "nearest", 200)]
CASES += [(op, m, "nearest", 0) for op in ("Brightness", "Color", "Contrast", "Sharpness") for m in (0.27, 0.9, -0.99)]
CASES += [("Posterize", m, "nearest", 0) for m in (2, 4, 7, 8)] + [("Solarize", m, "nearest", 0) for m in (0, 110.5, 255)]
CASES += [(op, 0, "nearest", 0) for op in ("Identity", "AutoContrast", "Equalize", "Invert")]

results = [_apply_op(image, op, float(m), InterpolationMode(sampling), [float(fill)] * 3 if fill else None)
           for op, m, sampling, fill in CASES]
np.save(os.path.join(folder, "augment_ops.npy"), torch.stack(results).numpy())
with open(os.path.join(folder, "augment_ops.txt"), "w", encoding="utf-8") as out:
    for op, m, sampling, fill in CASES:
        print(op, m, sampling, fill, file=out)

# A quarter of a turn of sides whose sum is odd: each place is between two pixels, and torch's rounding decides.
ROTATIONS = [(90, 7, 10), (-90, 7, 10), (90, 10, 7), (90, 2, 5), (-90, 31, 44), (90, 45, 32), (90, 20, 20), (180, 9, 14)]
np.save(os.path.join(folder, "augment_rotations.npy"), np.concatenate(
    [_apply_op(generated(height, width), "Rotate", float(degrees), InterpolationMode.NEAREST, None).numpy().ravel()
     for degrees, height, width in ROTATIONS]))

SPACES = {"rand": RandAugment()._augmentation_space(31, (200, 224)), "trivial": TrivialAugmentWide()._augmentation_space(31)}
with open(os.path.join(folder, "augment_magnitudes.txt"), "w", encoding="utf-8") as out:
    for policy, space in SPACES.items():
        for op, (magnitudes, signed) in space.items():
            for i in (0, 1, 9, 15, 22, 30):
                print(policy, op, i, float(magnitudes[i]) if magnitudes.ndim else 0.0, int(signed), file=out)

with open(os.path.join(folder, "augment_pairs.txt"), "w", encoding="utf-8") as out:
    for policy in AutoAugmentPolicy:
        drawing = AutoAugment(policy)
        space = drawing._augmentation_space(10, (200, 224))
        for i, pair in enumerate(drawing.policies):
            for op, probability, magnitude in pair:
                magnitudes, _ = space[op]
                print(policy.value, i, op, probability, float(magnitudes[magnitude]) if magnitude is not None else 0.0, file=out)
