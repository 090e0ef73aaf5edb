"""The range of least Kullback-Leibler divergence, for trainyard/nn/quantization/value_histogram_test.cpp.

usage: entropy_range.py FILE     (numpy; with onnxruntime also prints what its calibrator takes)

Written after the pseudocode of "8-bit inference with TensorRT" (Migacz, 2017), with numpy's digitize instead of whole
bins a level, so that levels need not divide the bins. A line has the histogram's number, its levels, and how many of
its 2048 bins are kept.
"""
import sys

import numpy

BINS = 2048


def histogram(number):
    i = numpy.arange(BINS, dtype=numpy.float64)
    if number == 0:    # Laplace
        counts = 1e6 * numpy.exp(-i / 60)
    elif number == 1:  # half a Gaussian
        counts = 1e6 * numpy.exp(-0.5 * (i / 500) ** 2)
    elif number == 2:  # a Gaussian near zero, and a few values far away
        counts = 1e6 * numpy.exp(-0.5 * (i / 150) ** 2) + (i > 2000) * 3
    else:              # uniform: all of it is needed
        counts = numpy.full(BINS, 1000.0)
    if number == 4:    # values of a ReLU: mostly zeros
        counts = 1e5 * numpy.exp(-i / 200)
        counts[0] = 1e8
    return numpy.floor(counts + 0.5)


def divergence(counts, kept, levels):
    inside = counts[:kept]
    step = numpy.digitize(range(kept), numpy.linspace(0, kept, levels + 1)) - 1
    expanded = numpy.zeros(kept)
    for level in range(levels):
        members = (step == level) & (inside != 0)
        if members.any():
            expanded[members] = inside[members].sum() / members.sum()
    reference = inside.copy()
    reference[-1] += counts[kept:].sum()
    p, q = reference / reference.sum(), expanded / expanded.sum()
    if numpy.any((p > 0) & (q == 0)):
        return numpy.inf
    where = p > 0
    return numpy.sum(p[where] * numpy.log(p[where] / q[where]))


def threshold(counts, levels):
    counts = counts.copy()
    counts[0] = counts[1]
    kept = numpy.arange(levels, BINS + 1)
    divergences = numpy.array([divergence(counts, k, levels) for k in kept])
    return kept[len(kept) - 1 - numpy.argmin(divergences[::-1])]


with open(sys.argv[1], "w") as file:
    for number in range(5):
        for levels in (128, 256):
            file.write(f"{number} {levels} {threshold(histogram(number), levels)}\n")

try:
    from onnxruntime.quantization.calibrate import HistogramCollector
except ImportError:
    sys.exit()
collector = HistogramCollector("entropy", False, 2 * BINS, 128, 99.99, "same")
for number in range(3):
    half = histogram(number)
    both = numpy.concatenate([half[::-1], half]).astype(numpy.int64)
    edges = numpy.arange(-BINS, BINS + 1).astype(numpy.float32)
    low, high = collector.get_entropy_threshold((both, edges, edges[0], edges[-1]), 128)
    print(f"onnxruntime, histogram {number}, 128 levels on both sides: {high}")
