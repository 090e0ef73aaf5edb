#!/usr/bin/env python3
"""Writes what tf_cnn_benchmarks' formulas make of two made-up outputs of ssd300, for detections_test.cpp:
detections.py > trainyard/train/testdata/detections.txt

numpy alone, in float as there: softmax, the box coder of TensorFlow's object detection with the scales 10, 10, 5, 5, and for each class
the suppression of coco_metric.py with its overlap, whose two areas are both taken between the better box's end and the other one's
start. Equal scores are taken in the order of the default boxes. A line: picture, label, score, ymin, xmin, ymax, xmax.
"""
import math

import numpy as np

CLASSES, MIN_SCORE, OVERLAP, MOST = 6, 0.05, 0.5, 200
MAPS = ((38, 8), (19, 16), (10, 32), (5, 64), (3, 100), (1, 300))  # cells a side, pixels from cell to cell
SCALES = (21, 45, 99, 153, 207, 261, 315)


def default_boxes():
    """[D, 4]: cy, cx, h, w"""
    boxes = []
    for number, (cells, step) in enumerate(MAPS):
        scale, following = SCALES[number] / 300, SCALES[number + 1] / 300
        sizes = [(scale, scale), (math.sqrt(scale * following),) * 2]
        for ratio in (2, 3) if 1 <= number <= 3 else (2,):
            wide, narrow = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            sizes += [(wide, narrow), (narrow, wide)]
        for width, height in sizes:
            for row in range(cells):
                for column in range(cells):
                    box = ((row + 0.5) * step / 300, (column + 0.5) * step / 300, height, width)
                    boxes.append([min(max(value, 0), 1) for value in box])
    cy, cx, h, w = np.array(boxes).T
    corners = np.stack([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2], 1).astype(np.float32)
    size = corners[:, 2:] - corners[:, :2]
    return np.concatenate([corners[:, :2] + size / 2, size], 1)


def made_output(picture):
    """[D, 4 + classes]: the same numbers as made_output() of detections_test.cpp"""
    index = np.arange(8732 * (4 + CLASSES), dtype=np.uint64) + np.uint64(picture * 1000003)
    mixed = (index * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(2**32)
    unit = (mixed / 2.0**32).reshape(8732, -1)
    output = np.empty_like(unit)
    output[:, :4] = unit[:, :4] * 2 - 1
    output[:, 4] = 5 + unit[:, 4]
    rare = mixed.reshape(8732, -1) // np.uint64(64) % np.uint64(64) == 0
    rare[:, 5] |= mixed.reshape(8732, -1)[:, 5] // np.uint64(64) % np.uint64(16) == 0
    output[:, 5:] = np.where(rare[:, 5:], 3 + 6 * unit[:, 5:], unit[:, 5:])
    return output.astype(np.float32)


def overlaps(best, others):
    shared = np.maximum(np.minimum(best[2:], others[:, 2:]) - np.maximum(best[:2], others[:, :2]), 0).prod(1)
    between = (best[2:] - others[:, :2]).prod(1)
    return shared / (between + between - shared)


def detections(output):
    defaults = default_boxes()
    offsets, logits = output[:, :4] / np.array([10, 10, 5, 5], np.float32), output[:, 4:]
    centers = offsets[:, :2] * defaults[:, 2:] + defaults[:, :2]
    half = np.exp(offsets[:, 2:]) * defaults[:, 2:] / 2
    boxes = np.concatenate([centers - half, centers + half], 1)
    scores = np.exp(logits - logits.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    found = []
    for label in range(1, CLASSES):
        above = np.flatnonzero(scores[:, label] > np.float32(MIN_SCORE))
        waiting = above[np.argsort(-scores[above, label], kind="stable")][:MOST]
        while len(waiting):
            best, rest = waiting[0], waiting[1:]
            found.append((scores[best, label], label, boxes[best]))
            waiting = rest[overlaps(boxes[best], boxes[rest]) < OVERLAP]
    return sorted(found, key=lambda each: -each[0])[:MOST]


print("# tools/golden/detections.py: picture, label, score, ymin, xmin, ymax, xmax")
for picture in range(2):
    for score, label, box in detections(made_output(picture)):
        print(picture, label, f"{score:.9g}", *(f"{value:.9g}" for value in box))
