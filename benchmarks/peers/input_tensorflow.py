#!/usr/bin/env python3
"""Images a second out of tf.data: TFRecords of ImageNet to random crops, mirrored, resized, in [-1, 1], as float batches.

usage: input_tensorflow.py FOLDER BATCH SIDE THREADS SECONDS     prints one JSON line, as measured.py says
"""

import glob
import json
import os
import resource
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

from measured import WARM_UP_STEPS, seconds_since_start

FEATURES = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/class/label": tf.io.FixedLenFeature([], tf.int64)}


def main():
    folder, (batch, side, threads), seconds = sys.argv[1], map(int, sys.argv[2:5]), float(sys.argv[5])

    def prepare(record):
        parsed = tf.io.parse_single_example(record, FEATURES)
        encoded = parsed["image/encoded"]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded), tf.zeros([1, 0, 4]), min_object_covered=0.1, aspect_ratio_range=(0.75, 1.33),
            area_range=(0.05, 1.0), max_attempts=100, use_image_if_no_bounding_boxes=True)
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.random_flip_left_right(tf.io.decode_and_crop_jpeg(encoded, window, channels=3))
        return tf.image.resize(image, [side, side]) / 127.5 - 1, parsed["image/class/label"]

    records = tf.data.TFRecordDataset(sorted(glob.glob(os.path.join(folder, "train-*-of-*"))))
    batches = iter(records.shuffle(10000).repeat().map(prepare, num_parallel_calls=threads).batch(batch).prefetch(2))
    next(batches)
    first = seconds_since_start()
    for _ in range(WARM_UP_STEPS):
        next(batches)
    start, images = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        next(batches)
        images += batch
    print(json.dumps({"images_per_sec": images / (time.monotonic() - start),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "first_step_done_s": first}), flush=True)


main()
