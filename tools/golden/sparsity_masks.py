#!/usr/bin/env python3
"""Writes the 2:4 masks that PaddlePaddle's ASP makes of a few weights, for sparsity_masks_test.cpp:
sparsity_masks.py > trainyard/optim/testdata/sparsity_masks.txt

Needs paddlepaddle. A line "patterns" has the 90 patterns of mask_2d_best in the order in which Paddle tries them, each as
16 bits, bit 4 * row + column. Each other line: algorithm, numbers, shape, mask. Shapes are those of PyTorch, [out, in,
height, width] or [out, in]; the mask has one bit an element, in the order of memory, four to a hexadecimal digit, the
first one the highest.

Numbers "drawn" are those of a linear congruential generator, with no two of one magnitude in a block; "ties" are small
whole numbers, zeros among them. Among equal numbers NumPy's argsort, on which two of the algorithms rest, has another
order on processors with AVX-512. The one without vector instructions is stable; it is taken here.

Paddle's mask_2d_best adds up weights with their signs. "mask_2d_best_signed" is what it makes of the weights,
"mask_2d_best" what it makes of their magnitudes.
"""
import os

os.environ["NPY_DISABLE_CPU_FEATURES"] = "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
import numpy as np
import paddle
from paddle.incubate.asp import MaskAlgo, utils
from paddle.incubate.asp.supported_layer_list import _default_pruning

SHAPES = [
    (64, 3, 7, 7),  # fewer than four inputs: dense
    (16, 8, 1, 1),
    (8, 8, 3, 3),
    (6, 5, 3, 3),  # rests of inputs, and of rows, whose fours go across pixels
    (5, 6, 3, 2),
    (7, 9, 1, 1),
    (8, 1, 3, 3),  # a depthwise convolution: dense
    (8, 4, 3, 3),  # a grouped one
    (10, 64),
    (7, 6),
    (3, 4),
    (5, 3),
]
ALGORITHMS = [
    ("mask_1d", MaskAlgo.MASK_1D, False),
    ("mask_2d_greedy", MaskAlgo.MASK_2D_GREEDY, False),
    ("mask_2d_best", MaskAlgo.MASK_2D_BEST, True),
    ("mask_2d_best_signed", MaskAlgo.MASK_2D_BEST, False),
]


def drawn(count):
    state, values = 1, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values.append((state >> 12) - 262144.25)
    return np.array(values, np.float32)


def ties(count):
    return (np.floor(drawn(count) / 65536)).astype(np.float32)


def mask_of(weight, algorithm):
    if weight.ndim == 2:  # Paddle's linear weight is [in, out]
        return mask_of_paddle(weight.T, algorithm).T
    return mask_of_paddle(weight, algorithm)


def mask_of_paddle(weight, algorithm):
    return _default_pruning(np.ascontiguousarray(weight), 4, 2, algorithm, "weight")[1]


def hexadecimal(mask):
    bits = "".join("1" if bit else "0" for bit in np.ascontiguousarray(mask).reshape(-1))
    bits += "0" * (-len(bits) % 4)
    return "".join("%x" % int(bits[i : i + 4], 2) for i in range(0, len(bits), 4))


def main():
    print(f"# tools/golden/sparsity_masks.py: paddle {paddle.__version__}, numpy {np.__version__}")
    patterns = utils._compute_valid_2d_patterns(2, 4).reshape(-1, 16)
    print("patterns", *(sum(int(bit) << place for place, bit in enumerate(p)) for p in patterns))
    for name, algorithm, magnitudes in ALGORITHMS:
        for kind, numbers in (("drawn", drawn), ("ties", ties)):
            for shape in SHAPES:
                weight = numbers(int(np.prod(shape))).reshape(shape)
                mask = mask_of(np.abs(weight) if magnitudes else weight, algorithm)
                print(name, kind, "x".join(map(str, shape)), hexadecimal(mask))


main()
