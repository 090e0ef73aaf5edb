#!/usr/bin/env python3
"""Writes what the originals of the input presets make of evaluation images of 200 random sizes, for
evaluation_preset_test.cpp: evaluation_presets.py trainyard/data/testdata/evaluation_presets.txt

Needs TensorFlow, torchvision, Pillow, OpenCV (opencv-python-headless) and DALI (its CPU operators do). Each line: preset,
height and width of the input, the size of the shorter side (0: the preset has none), height and width of the image; the
size that it is scaled to and the first row and column of the centre (central_crop: the part that is cut out, and where);
six values of the input, at PROBES, in the units that the model takes.
"""
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import cv2
import numpy as np
import tensorflow as tf
import torch
from nvidia.dali import fn, pipeline_def, types
from PIL import Image
from torchvision import transforms

COUNT = 200
# The sizes of inputs, with the shorter sides in the presets' ratio of 256 to 224.
TARGETS = [((224, 224), 256), ((224, 224), 256), ((56, 56), 64), ((96, 96), 110), ((160, 288), 329)]
KNOWN = [(375, 500), (427, 640), (500, 375), (333, 500), (163, 173), (256, 257), (224, 224), (1, 1), (7, 300), (640, 427)]


def probes(height, width):
    """(row, column, channel)"""
    return [(0, 0, 0), (height - 1, width - 1, 1), (height // 2, width // 3, 2), (height // 5, width - 1, 0),
            (height - 1, width // 7, 1), (3 * height // 4, width // 2, 2)]


def picture(height, width):
    """The image of the test: cells of 3 x 3 pixels of random colours."""
    y, x, c = np.meshgrid(*[np.arange(n, dtype=np.uint32) for n in (height, width, 3)], indexing="ij")
    v = (y // 3) * np.uint32(73856093) ^ (x // 3) * np.uint32(19349663) ^ c * np.uint32(83492791)
    v = (v ^ (v >> 13)) * np.uint32(0x5BD1E995)
    return ((v ^ (v >> 15)) >> 24).astype(np.uint8)


def places(height, width):
    """The place of each pixel as a number: a crop of it tells where it begins."""
    return np.arange(height * width, dtype=np.float64).reshape(height, width)


def slice_centre(image, height, width):
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top:top + height, left:left + width], (top, left)


def tf_cnn_benchmarks(image, target, shorter):
    """preprocessing.py's eval_image: sizes in float32."""
    height, width = (tf.cast(side, tf.float32) for side in image.shape[:2])
    ratio = tf.maximum(target[0] / height, target[1] / width)
    size = [int(tf.cast(side * ratio * 1.145, tf.int32)) for side in (height, width)]
    scaled = tf.compat.v1.image.resize_images(image, size, tf.image.ResizeMethod.BILINEAR).numpy()
    centre, begin = slice_centre(scaled, *target)
    return size, begin, centre / 127.5 - 1


def official_models(image, target, shorter):
    """imagenet_preprocessing.py's _smallest_size_at_least and _central_crop: sizes in float32."""
    height, width = (tf.cast(side, tf.float32) for side in image.shape[:2])
    ratio = tf.cast(shorter, tf.float32) / tf.minimum(height, width)
    size = [int(tf.cast(side * ratio, tf.int32)) for side in (height, width)]
    scaled = tf.compat.v1.image.resize(image, size, tf.image.ResizeMethod.BILINEAR).numpy()
    centre, begin = slice_centre(scaled, *target)
    return size, begin, centre - [123.68, 116.78, 103.94]


def resnet_n(image, target, shorter):
    """image_processing.py's _crop_and_resize_image."""
    part = tf.image.central_crop(image, 0.8)
    begin = int(tf.image.central_crop(places(*image.shape[:2])[..., None], 0.8)[0, 0, 0])
    scaled = tf.compat.v1.image.resize_images(part, target, tf.image.ResizeMethod.BILINEAR).numpy()
    return part.shape[:2], divmod(begin, image.shape[1]), scaled


def torchvision(image, target, shorter):
    scaled = transforms.Resize(shorter)(Image.fromarray(image))
    crop = transforms.CenterCrop(target)
    begin = int(crop(torch.from_numpy(places(scaled.height, scaled.width))[None])[0, 0, 0])
    tensor = transforms.Compose([crop, transforms.ToTensor(),
                                 transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])(scaled)
    return (scaled.height, scaled.width), divmod(begin, scaled.width), tensor.permute(1, 2, 0).numpy()


@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def dali_pipeline(source, target, shorter, mean, std):
    scaled = fn.resize(fn.external_source(source, layout="HWC"), resize_shorter=shorter, interp_type=types.INTERP_LINEAR)
    normalized = fn.crop_mirror_normalize(scaled, dtype=types.FLOAT, crop=target, mean=mean, std=std, output_layout="HWC")
    return scaled, normalized


@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def dali_crop(source, target):
    return fn.crop(fn.external_source(source, layout="HWC"), crop=target)


def dali(mean, std):
    box, pipelines = [None], {}

    def run(make, key, value):
        if key not in pipelines:
            pipelines[key] = make(lambda: [box[0]])
            pipelines[key].build()
        box[0] = value
        return [np.array(output[0]) for output in pipelines[key].run()]

    def evaluate(image, target, shorter):
        scaled, normalized = run(lambda source: dali_pipeline(source, target, shorter, mean, std, prefetch_queue_depth=1,
                                                              exec_async=False, exec_pipelined=False),
                                 (target, shorter), image)
        index = places(*scaled.shape[:2]).astype(np.int64)[..., None]
        begin = run(lambda source: dali_crop(source, target, prefetch_queue_depth=1, exec_async=False,
                                             exec_pipelined=False), target, index)[0][0, 0, 0]
        return scaled.shape[:2], divmod(int(begin), scaled.shape[1]), normalized

    return evaluate


def tensorpack(image, target, shorter):
    """imgaug's ResizeShortestEdge and CenterCrop with OpenCV's cubic, then ImageNetModel.image_preprocess."""
    height, width = image.shape[:2]
    scale = shorter * 1.0 / min(height, width)
    size = (shorter, int(scale * width + 0.5)) if height < width else (int(scale * height + 0.5), shorter)
    scaled = cv2.resize(image, size[::-1], interpolation=cv2.INTER_CUBIC)
    begin = [int((side - wanted) * 0.5) for side, wanted in zip(size, target)]
    centre = scaled[begin[0]:begin[0] + target[0], begin[1]:begin[1] + target[1]]
    mean, std = np.array([0.485, 0.456, 0.406]) * 255, np.array([0.229, 0.224, 0.225]) * 255
    return size, begin, (centre - mean) / std


IMAGENET = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]
PRESETS = {
    "default": tf_cnn_benchmarks,
    "official_models_imagenet": official_models,
    "resnet_n": resnet_n,
    "torchvision": torchvision,
    "dali": dali([123.68, 116.78, 103.94], [58.4, 57.12, 57.3]),
    "paddle": dali(*IMAGENET),
    "tensorpack": tensorpack,
}


def cases():
    """(target, shorter side, height, width), the same for all presets."""
    random = np.random.default_rng(45)
    for i in range(COUNT):
        target, shorter = TARGETS[i % len(TARGETS)] if i >= len(KNOWN) else TARGETS[0]
        if i == 4:
            target, shorter = (56, 56), 64
        height, width = (int(side) for side in np.exp(random.uniform(np.log(20), np.log(700), 2)))
        yield target, shorter, *(KNOWN[i] if i < len(KNOWN) else (height, width))


def main(path):
    with open(path, "w", encoding="utf-8") as out:
        for preset, evaluate in PRESETS.items():
            for target, shorter, height, width in cases():
                size, begin, result = evaluate(picture(height, width), target, shorter)
                values = [float(result[place]) for place in probes(*target)]
                used = 0 if preset in ("default", "resnet_n") else shorter
                print(preset, *target, used, height, width, *size, *begin, *(f"{value:.5g}" for value in values), file=out)


if __name__ == "__main__":
    main(sys.argv[1])
