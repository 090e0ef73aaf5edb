#!/usr/bin/env python3
"""SSD's default boxes, matches and encodings, for trainyard/data/detection/default_boxes_test.cpp:
ssd_boxes.py TF_CNN_BENCHMARKS OBJECT_DETECTION > trainyard/data/testdata/ssd_boxes.txt
ssd_boxes.py torchvision >> trainyard/data/testdata/ssd_boxes.txt

The first needs tensorflow, the folder of tf_cnn_benchmarks.py and one that holds TensorFlow's package object_detection (the
package tf-models-research-object-detection, unpacked); modules that these import and do not use here may be missing. It runs
their DefaultBoxes and Encoder. The second needs torchvision and runs its DefaultBoxGenerator and BoxCoder. (TensorFlow and
PyTorch do not load into one process.) The lines, all numbers in float:
  box SET NUMBER YMIN XMIN YMAX XMAX       some of the boxes
  sum SET S0 S1 S2 S3                      of all boxes, by column, times 1 + (number modulo 251)
  case SET NUMBER_OF_MATCHES BOX... LABEL...  four numbers a box, then one label a box
  match SET BOX_NUMBER LABEL OFFSET...      of the case before, in the model's order
The first also compares the boxes with those of MLPerf's reference (dboxes300_coco), by its formulas.
"""
import importlib.abc
import importlib.machinery
import itertools
import math
import os
import sys
import types

import numpy

SHOWN, WEIGHTS = 61, 251


def numbers(values):
    return " ".join(repr(float(f"{float(value):.9g}")) for value in numpy.asarray(values).ravel())


def cases():
    """Boxes and labels: few and many, tiny ones, the whole image, the same box twice, two boxes with one best default box."""
    random = numpy.random.default_rng(41)
    made = []
    for count in (1, 2, 5, 9):
        low = random.uniform(0, 0.7, (count, 2))
        size = random.uniform(0.05, 0.3, (count, 2))
        made.append((numpy.concatenate([low, low + size], 1), random.integers(1, 81, count)))
    made.append((numpy.array([[0.5, 0.5, 0.503, 0.502], [0.1, 0.9, 0.104, 0.905]]), numpy.array([3, 80])))
    made.append((numpy.array([[0.0, 0.0, 1.0, 1.0]]), numpy.array([17])))
    made.append((numpy.array([[0.2, 0.3, 0.6, 0.7], [0.2, 0.3, 0.6, 0.7]]), numpy.array([5, 6])))
    made.append((numpy.array([[0.41, 0.41, 0.62, 0.6], [0.42, 0.4, 0.63, 0.61], [0.3, 0.35, 0.5, 0.52]]), numpy.array([7, 8, 9])))
    return [(boxes.astype(numpy.float32), labels) for boxes, labels in made]


def print_boxes(name, corners):
    assert corners.shape == (8732, 4)
    for number in range(0, len(corners), SHOWN):
        print("box", name, number, numbers(corners[number]))
    weights = 1 + numpy.arange(len(corners)) % WEIGHTS
    print("sum", name, numbers((corners.astype(numpy.float64) * weights[:, None]).sum(0)))


def print_case(name, boxes, labels, matched, classes, offsets):
    print("case", name, matched, numbers(boxes), *labels)
    for number in numpy.flatnonzero(classes):
        print("match", name, number, int(classes[number]), numbers(offsets[number]))


class Missing(types.ModuleType):
    """What modules that are not installed hold: anything, which does nothing."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name)

    def __call__(self, *values, **named):
        return self


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Missing(spec.name)

    def exec_module(self, module):
        pass


def mlperf_boxes():
    """DefaultBoxes of MLPerf's single_stage_detector, cx, cy, w, h."""
    steps, scales = [8, 16, 32, 64, 100, 300], [21, 45, 99, 153, 207, 261, 315]
    boxes = []
    for idx, cells in enumerate([38, 19, 10, 5, 3, 1]):
        sk1, sk2 = scales[idx] / 300, scales[idx + 1] / 300
        sk3 = math.sqrt(sk1 * sk2)
        sizes = [(sk1, sk1), (sk3, sk3)]
        for alpha in [[2], [2, 3], [2, 3], [2, 3], [2], [2]][idx]:
            w, h = sk1 * math.sqrt(alpha), sk1 / math.sqrt(alpha)
            sizes += [(w, h), (h, w)]
        for w, h in sizes:
            for i, j in itertools.product(range(cells), repeat=2):
                boxes.append(((j + 0.5) * steps[idx] / 300, (i + 0.5) * steps[idx] / 300, w, h))
    return numpy.clip(numpy.array(boxes), 0, 1)


def original(tf_cnn_benchmarks, object_detection):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()  # in graphs, Python's numbers become floats
    sys.path[:0] = [object_detection, tf_cnn_benchmarks]
    sys.modules["mlperf"] = Missing("mlperf")
    finder = MissingFinder()
    sys.meta_path.append(finder)
    import ssd_dataloader
    sys.meta_path.remove(finder)
    session = tf.Session()
    corners = session.run(tf.convert_to_tensor(ssd_dataloader.DefaultBoxes()("ltrb")))
    assert corners.dtype == numpy.float32
    cx, cy, w, h = mlperf_boxes().T
    published = numpy.stack([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2], 1)
    assert numpy.abs(published - corners).max() < 1e-6
    print("# Made by tools/golden/ssd_boxes.py, which says what the lines are.")
    print_boxes("ssd300", corners)
    encoder = ssd_dataloader.Encoder()
    for boxes, labels in cases():
        encoded = encoder.encode_labels(tf.constant(boxes), tf.constant(labels[:, None], tf.float32))
        classes, offsets, matched = session.run(encoded)
        print_case("ssd300", boxes, labels, int(matched), classes[:, 0], offsets)


def torchvision():
    import torch
    from torchvision.models.detection import _utils, anchor_utils, image_list
    generator = anchor_utils.DefaultBoxGenerator([[2], [2, 3], [2, 3], [2, 3], [2], [2]],
                                                 scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05], steps=[8, 16, 32, 64, 100, 300])
    maps = [torch.zeros(1, 1, cells, cells) for cells in (38, 19, 10, 5, 3, 1)]
    pixels = generator(image_list.ImageList(torch.zeros(1, 3, 300, 300), [(300, 300)]), maps)[0]
    corners = (pixels / 300).numpy()[:, [1, 0, 3, 2]]
    print_boxes("ssd300_vgg16", corners)
    coder = _utils.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
    for boxes, labels in cases()[:4]:
        truth = torch.tensor(boxes[:, [1, 0, 3, 2]]) * 300
        matches = _utils.SSDMatcher(0.5)(torch.from_numpy(box_iou(truth.numpy(), pixels.numpy())))
        offsets = coder.encode_single(truth[matches.clamp(min=0)], pixels).numpy()
        classes = numpy.where(matches.numpy() >= 0, labels[matches.clamp(min=0).numpy()], 0)
        print_case("ssd300_vgg16", boxes, labels, int((matches >= 0).sum()), classes, offsets)


def box_iou(a, b):
    import torch
    from torchvision.ops import boxes
    return boxes.box_iou(torch.from_numpy(a), torch.from_numpy(b)).numpy()


if sys.argv[1:] == ["torchvision"]:
    torchvision()
else:
    original(*sys.argv[1:])
