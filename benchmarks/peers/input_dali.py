#!/usr/bin/env python3
"""Images a second out of DALI on the CPU: TFRecords of ImageNet with their index files to random crops, mirrored, resized
with bilinear interpolation, in [-1, 1], as float batches.

usage: input_dali.py FOLDER BATCH SIDE THREADS SECONDS     prints one JSON line, as measured.py says
"""

import glob
import json
import os
import resource
import sys
import time

from nvidia.dali import fn, pipeline_def, tfrecord, types

from measured import WARM_UP_STEPS, seconds_since_start

FEATURES = {"image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}


@pipeline_def(device_id=None, prefetch_queue_depth=2)
def crops(files, indexes, side):
    records = fn.readers.tfrecord(path=files, index_path=indexes, features=FEATURES, random_shuffle=True, initial_fill=10000)
    images = fn.decoders.image_random_crop(records["image/encoded"], device="cpu", random_aspect_ratio=[0.75, 1.33],
                                           random_area=[0.05, 1.0], num_attempts=100)
    # Without antialiasing, as the others: it is the faster way.
    images = fn.resize(images, resize_x=side, resize_y=side, interp_type=types.INTERP_LINEAR, antialias=False)
    images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="HWC", mean=[127.5] * 3, std=[127.5] * 3,
                                      mirror=fn.random.coin_flip())
    return images, records["image/class/label"]


def main():
    folder, (batch, side, threads), seconds = sys.argv[1], map(int, sys.argv[2:5]), float(sys.argv[5])
    files = sorted(glob.glob(os.path.join(folder, "train-*-of-*")))
    indexes = [os.path.join(folder, "idx", f"{os.path.basename(file)}.idx") for file in files]
    pipeline = crops(files, indexes, side, batch_size=batch, num_threads=threads)
    pipeline.build()
    pipeline.run()
    first = seconds_since_start()
    for _ in range(WARM_UP_STEPS):
        pipeline.run()
    start, images = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        pipeline.run()
        images += batch
    print(json.dumps({"images_per_sec": images / (time.monotonic() - start),
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "first_step_done_s": first}), flush=True)


main()
