"""The whitening of image patches by numpy, for trainyard/nn/execution/patch_whitening_test.cpp.

usage: patch_whitening.py FILE     (numpy)

The images are draw("images", [3, 3, 9, 7]) of drawn.py, half as large in each further channel, so that eigenvalues
differ. The first line has the covariance of 2x2 patches (12 numbers, 144 products), the second the sum over all 24
filters of their outer products, which no sign of an eigenvector changes, the third the eigenvalues, largest first.
"""
import sys

import numpy

import drawn

EPSILON = 5e-4
images = drawn.draw("images", (3, 3, 9, 7)) * numpy.array([1, 0.5, 0.25]).reshape(1, 3, 1, 1)
images = images.astype(numpy.float32).astype(numpy.float64)
patches = numpy.stack([images[n, :, y:y + 2, x:x + 2].reshape(-1) for n in range(3) for y in range(8) for x in range(6)])
covariance = patches.T @ patches / len(patches)
values, vectors = numpy.linalg.eigh(covariance)
filters = vectors.T / numpy.sqrt(values + EPSILON)[:, None]
filters = numpy.concatenate([filters, -filters])
with open(sys.argv[1], "w") as file:
    for numbers in (covariance, filters.T @ filters, values[::-1]):
        file.write(" ".join("%.12g" % x for x in numbers.flatten()) + "\n")
