#!/usr/bin/env python3
"""Writes what TensorFlow makes of one image's colours, and whole evaluation and training inputs made by TensorFlow and
torchvision, for transform_golden_test.cpp: transforms.py trainyard/data/testdata

Needs TensorFlow, torch, torchvision (benchmarks/peers/requirements.txt). Each file: float32 [cases, 3, height, width].
"""
import math
import os
import sys

import numpy as np
import tensorflow as tf
import torch
from torchvision.transforms import functional as vision

folder = sys.argv[1]


def generated(height, width):
    """The image of the tests: a linear congruential generator's upper bits, [height, width, 3]."""
    state, pixels = 1, []
    for _ in range(height * width * 3):
        state = (1664525 * state + 1013904223) % 2**32
        pixels.append(state >> 24)
    return np.array(pixels, dtype=np.uint8).reshape(height, width, 3)


def planes(image):
    return np.moveaxis(np.asarray(image, dtype=np.float32), -1, 0)


def save(name, cases):
    np.save(os.path.join(folder, f"{name}.npy"), np.stack([planes(case) for case in cases]))


# The operations of tf_cnn_benchmarks' distort_color, values 0 to 1. YIQ is by tf.image.rgb_to_yiq: TensorFlow 1's
# adjust_hsv_in_yiq, which TensorFlow 2 has no more, turned and scaled the chroma of that space.
def in_yiq(image, angle, factor):
    yiq = np.array(tf.image.rgb_to_yiq(image))
    y, i, q = yiq[..., 0], yiq[..., 1], yiq[..., 2]
    c, s = factor * math.cos(angle), factor * math.sin(angle)
    return tf.image.yiq_to_rgb(np.stack([y, c * i - s * q, s * i + c * q], -1).astype(np.float32)).numpy()


small = generated(9, 13).astype(np.float32) / 255
brightness = lambda image: tf.image.adjust_brightness(image, 0.1)
saturation = lambda image: tf.image.adjust_saturation(image, 1.4)
hue = lambda image: tf.image.adjust_hue(image, -0.15)
contrast = lambda image: tf.image.adjust_contrast(image, 0.6)
yiq = lambda image: in_yiq(image, 0.15 * math.pi, 1.4)
clip = lambda image: tf.clip_by_value(image, 0.0, 1.0)


def chain(*steps):
    image = tf.constant(small)
    for step in steps:
        image = step(image)
    return image


save("color", [chain(brightness), chain(saturation), chain(hue), chain(contrast), chain(yiq),
               chain(brightness, saturation, hue, contrast, clip), chain(brightness, contrast, saturation, hue, clip),
               chain(brightness, yiq, contrast, clip), chain(brightness, contrast, yiq, clip)])

# Whole inputs, 24 x 24 from 60 x 45 (height x width).
image = generated(60, 45)
V1 = tf.compat.v1.image


def evaluation(height, width, method):
    resized = V1.resize_images(image, [height, width], method=method)
    top, left = (height - 24) // 2, (width - 24) // 2
    return resized[top:top + 24, left:left + 24].numpy()


ratio = np.float32(24) / np.float32(45)
scaled = [int(np.float32(side) * ratio * np.float32(1.145)) for side in (60, 45)]
cases = [evaluation(*scaled, V1.ResizeMethod.BILINEAR) / 127.5 - 1, evaluation(*scaled, V1.ResizeMethod.BICUBIC) / 127.5 - 1]
# The official models: shorter side 28 (for 256 of 224), minus the channel means.
cases.append(evaluation(int(60 * 28 / 45), 28, V1.ResizeMethod.BILINEAR) - [123.68, 116.78, 103.94])
# torchvision: Resize(28), CenterCrop(24), normalize; antialias and half-pixel centres.
tensor = torch.from_numpy(image).permute(2, 0, 1).float() / 255
tensor = vision.center_crop(vision.resize(tensor, 28, antialias=True), 24)
tensor = vision.normalize(tensor, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
cases.append(tensor.permute(1, 2, 0).numpy())
cases.append(tf.image.resize_with_crop_or_pad(image, 24, 24).numpy() / 127.5 - 1)
# DALI's ResNet-N example without DALI: the centre, 0.8 of both sides, then both to the target.
cases.append(V1.resize_images(tf.image.central_crop(image, 0.8), [24, 24], method=V1.ResizeMethod.BILINEAR).numpy())
save("input_evaluation", cases)

# Training, with what Trainyard draws for samples 0 to 7 of epoch 0 under seed 1 (the test checks that it does): window
# (y, x, height, width), mirrored, brightness, saturation, hue, contrast. A sample's place in the batch is its number.
DRAWS = [
    ((5, 6, 32, 33), True, 0.0217308998, 1.45241618, 0.181597218, 1.05798483),
    ((20, 22, 17, 20), False, -0.0699757636, 1.48493934, 0.0198609084, 0.832493007),
    ((11, 0, 36, 45), True, -0.0183993056, 1.34670663, 0.194805488, 0.702982426),
    ((3, 0, 37, 45), True, -0.0457360223, 1.05669415, 0.0694484562, 0.949631929),
    ((14, 9, 34, 35), False, -0.0911671668, 0.567837059, -0.187736437, 1.03922057),
    ((1, 1, 30, 39), True, -0.0599602684, 1.06920528, -0.0872932002, 1.02728677),
    ((1, 4, 28, 34), True, -0.00467714667, 0.712885141, 0.00254353881, 0.862334073),
    ((3, 17, 29, 24), False, 0.0106404871, 1.11382794, 0.0311527699, 0.800656676),
]
ROUND_ROBIN = [V1.ResizeMethod.NEAREST_NEIGHBOR, V1.ResizeMethod.BILINEAR, V1.ResizeMethod.BICUBIC, V1.ResizeMethod.AREA]


def training(place, in_yiq_space, contrast_last):
    (y, x, height, width), mirrored, bright, saturate, turn, contrast_factor = DRAWS[place]
    part = image[y:y + height, x:x + width]
    part = part[:, ::-1] if mirrored else part
    out = np.asarray(V1.resize_images(part, [24, 24], method=ROUND_ROBIN[place % 4]), dtype=np.float32) / 255
    steps = [lambda v: tf.image.adjust_contrast(v, contrast_factor)]
    if in_yiq_space:
        steps.insert(0, lambda v: in_yiq(v, turn * math.pi, saturate))
    else:
        steps.insert(0, lambda v: tf.image.adjust_hue(tf.image.adjust_saturation(v, saturate), turn))
    out = tf.image.adjust_brightness(out, bright)
    for step in steps if contrast_last else reversed(steps):
        out = step(out)
    return np.asarray(clip(out)) * 255 / 127.5 - 1


cases = [training(place, space, place % 2 == 0) for space in (True, False) for place in range(8)]
# Contrast last at an odd place. Factors are drawn in the order of use: what was contrast's is saturation's now, and so on.
window, mirrored, bright, saturate, turn, contrast_factor = DRAWS[1]
DRAWS[1] = (window, mirrored, bright, contrast_factor, (2 * (saturate - 0.5) - 1) * 0.2, 0.5 + (turn / 0.2 + 1) / 2)
cases.append(training(1, False, True))
save("input_training", cases)
