"""Weights, statistics and images as a formula, for scripts that compute golden values and tests that compute the same:

  draw(name, i) = SplitMix64's finaliser of (FNV-1a(name) + i * golden ratio), its upper 24 bits as a number in [-1, 1),
  for i < PERIOD; then it repeats
"""
import numpy

GOLDEN = numpy.uint64(0x9E3779B97F4A7C15)
PERIOD = 1000003


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return numpy.uint64(value)


def draw(name, shape):
    """[-1, 1), exact in float."""
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = fnv1a(name) + numpy.arange(min(count, PERIOD), dtype=numpy.uint64) * GOLDEN
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return numpy.resize((z >> numpy.uint64(40)).astype(numpy.float64) / 2**23 - 1, shape)


def start(name, shape):
    """What the parameter or buffer of that name is set to, as a float holds it."""
    numbers = draw(name, shape)
    if len(shape) > 1:
        numbers = numbers * numpy.sqrt(6.0 / float(numpy.prod(shape[1:])))
    elif name.endswith("weight"):
        numbers = 1 + 0.5 * numbers
    elif name.endswith("running_var"):
        numbers = 1.5 + 0.5 * numbers
    else:
        numbers = 0.25 * numbers
    return numbers.astype(numpy.float32).astype(numpy.float64)


EVERY = 997  # a prime, so that all columns of the rows come up


def output_lines(outputs):
    """The lines of a network's outputs, [batch, ...]: all of them or, for a detector, the batch, every so manyth, and the
    norm and the product with draw("probe outputs") of all."""
    flat = outputs.flatten()
    if outputs.ndim == 2:
        return ["logits " + " ".join("%.7g" % x for x in flat)]
    return ["batch %d" % len(outputs), "every %d" % EVERY, "logits " + " ".join("%.7g" % x for x in flat[::EVERY]),
            "outputs %.9g %.9g" % (numpy.linalg.norm(flat), (flat * draw("probe outputs", flat.shape)).sum())]
