#!/usr/bin/env python3
"""Writes how TensorFlow's sample_distorted_bounding_box and torchvision's RandomResizedCrop distribute windows, for
crop_distribution_test.cpp: crop_distribution.py > trainyard/data/testdata/crop_distribution.txt

Needs TensorFlow, torch and torchvision (benchmarks/peers/requirements.txt); takes a minute. Each line: sampler, case,
statistic, then pairs of a value and the share of windows at or below it.
"""
import numpy as np
import tensorflow as tf
import torch
from torchvision.transforms import RandomResizedCrop

DRAWS = 20_000
# Height, width, boxes (ymin, xmin, ymax, xmax), least part of a box that is covered: as in the test.
CASES = [
    (375, 500, [], 0.1),
    (500, 333, [(0.2, 0.3, 0.9, 0.8)], 0.1),
    (400, 400, [(0.8, 0.8, 1.0, 1.0), (0.0, 0.0, 0.3, 0.2)], 0.1),
    (120, 700, [(0.1, 0.4, 0.9, 0.6)], 0.7),
]


def tensorflow(height, width, boxes, covered):
    array = tf.constant([boxes], dtype=tf.float32) if boxes else tf.zeros([1, 0, 4])

    @tf.function
    def draw(seed):
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.constant([height, width, 3]), array, seed, min_object_covered=covered, aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0), max_attempts=100, use_image_if_no_bounding_boxes=True)
        return tf.concat([begin[:2], size[:2]], 0)

    return np.array([draw(tf.constant([i, 1])).numpy() for i in range(DRAWS)])


def torchvision(height, width, _boxes, _covered):
    torch.manual_seed(1)
    image = torch.empty(3, height, width)
    return np.array([RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(DRAWS)])


def coverage(window, box, height, width):
    y0, x0, y1, x1 = int(box[0] * height), int(box[1] * width), int(box[2] * height), int(box[3] * width)
    y, x, h, w = window
    inside = max(min(y + h, y1) - max(y, y0), 0) * max(min(x + w, x1) - max(x, x0), 0)
    return inside / ((y1 - y0) * (x1 - x0))


for name, sample in (("tensorflow", tensorflow), ("torchvision", torchvision)):
    for number, (height, width, boxes, covered) in enumerate(CASES):
        windows = sample(height, width, boxes, covered)
        y, x, h, w = windows.T
        statistics = {"area": h * w / (height * width), "aspect": w / h, "top": y / height, "left": x / width}
        if boxes:
            statistics["covered"] = np.array([max(coverage(window, box, height, width) for box in boxes) for window in windows])
        for statistic, values in statistics.items():
            points = np.unique(np.quantile(values, np.linspace(0.02, 0.98, 25), method="inverted_cdf"))
            pairs = " ".join(f"{point:.9g} {np.mean(values <= point + 1e-9):.5f}" for point in points)
            print(name, number, statistic, pairs)
