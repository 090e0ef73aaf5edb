#!/usr/bin/env python3
"""Writes what timm's RandAugment makes of one image at fixed levels, for pillow_ops_test.cpp and
timm_rand_augment_test.cpp: pillow_ops.py trainyard/data/testdata

Needs Pillow, numpy and an installed timm, of which only data/auto_augment.py is loaded. pillow_ops.npy: uint8 [cases, 3,
height, width]; pillow_ops.txt: operation, increasing, level, negated, sampling and argument of each case. Written with timm
1.0.31 and Pillow 13.0.
"""
import importlib.util
import os
import sys

import numpy as np
from PIL import Image

timm = importlib.util.find_spec("timm").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("auto_augment", os.path.join(timm, "data", "auto_augment.py"))
auto_augment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(auto_augment)

folder = sys.argv[1]
HEIGHT, WIDTH = 19, 26
FILL = (124, 116, 104)
SAMPLINGS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
GEOMETRY = ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
FACTORS = ("Color", "Contrast", "Brightness", "Sharpness")


def generated(height, width):
    """The image of augment.py and augment_ops_test.cpp."""
    state, pixels = 1, []
    for _ in range(3 * height * width):
        state = (1664525 * state + 1013904223) % 2**32
        pixels.append(30 + (state >> 24) * 190 // 256)
    return np.array(pixels, dtype=np.uint8).reshape(3, height, width)


def cases():
    """Operation without its suffix, increasing, level, negated, sampling."""
    for level in (0, 3.3, 9, 10):
        for op in GEOMETRY:
            for negated in (False, True):
                for sampling in SAMPLINGS:
                    yield op, True, level, negated, sampling
        for op in FACTORS:
            yield op, False, level, False, "bicubic"
            for negated in (False, True):
                yield op, True, level, negated, "bicubic"
        for op in ("Posterize", "Solarize"):
            for increasing in (False, True):
                yield op, increasing, level, False, "bicubic"
        yield "SolarizeAdd", True, level, False, "bicubic"
    for op in ("AutoContrast", "Equalize", "Invert"):
        yield op, True, 9, False, "bicubic"


image = Image.fromarray(generated(HEIGHT, WIDTH).transpose(1, 2, 0))
results = []
with open(os.path.join(folder, "pillow_ops.txt"), "w", encoding="utf-8") as out:
    for op, increasing, level, negated, sampling in cases():
        name = op + ("Increasing" if increasing and op in FACTORS + ("Posterize", "Solarize") else "")
        choices = auto_augment.rand_augment_choices("", increasing=increasing)
        assert name in choices and len(choices) == 15, name
        operation = auto_augment.AugmentOp(name, prob=1.0, magnitude=level,
                                           hparams={"img_mean": FILL, "interpolation": SAMPLINGS[sampling]})
        auto_augment.random.random = lambda negated=negated: 1.0 if negated else 0.0  # draws nothing but the sign
        argument = operation.level_fn(level, operation.hparams)[0] if operation.level_fn else 0
        if op == "Posterize" and argument == 0:
            continue  # black in older Pillows, an error in 13.0
        results.append(np.asarray(operation(image)).transpose(2, 0, 1))
        print(op.removesuffix("Rel"), int(increasing), level, int(negated), sampling, repr(float(argument)), file=out)
np.save(os.path.join(folder, "pillow_ops.npy"), np.stack(results))
