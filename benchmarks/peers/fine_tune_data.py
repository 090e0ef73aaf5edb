#!/usr/bin/env python3
"""Class folders for the comparison of fine-tuning (fine_tune): photographs of CIFAR-10 as they are in its TFRecords.

usage: fine_tune_data.py CIFAR10_FOLDER OUT [IMAGES_A_CLASS]

Writes OUT/animals (six classes, 2,500 + 100 images a class: what the network is trained on at first), OUT/vehicles (four other
classes: IMAGES_A_CLASS, 50 by default, to train on, as many for validation) and OUT/vehicles_test (1,000 images a class of the test
set, by which both programs are judged). Standard library only.
"""

import collections
import glob
import os
import struct
import sys

VEHICLES = ("airplane", "automobile", "ship", "truck")
PRETRAINING = {"train": 2500, "val": 100}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """The length-delimited fields of a protobuf message, as (number, bytes). CIFAR-10's records have numbers in such fields, too."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            _, at = varint(data, at)
            continue
        assert key & 7 == 2, f"wire type {key & 7} is not in these records"
        length, at = varint(data, at)
        yield key >> 3, data[at : at + length]
        at += length


def records(path):
    with open(path, "rb") as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            yield file.read(length)
            file.read(4)


def photographs(paths):
    """Yields (class, JPEG bytes) of tf.Examples: Example{1: Features{1: entry{1: name, 2: Feature{1: bytes_list{1: value}}}}}."""
    for path in paths:
        for record in records(path):
            texts = {}
            for _, features in fields(record):
                for _, entry in fields(features):
                    parts = dict(fields(entry))
                    for kind, values in fields(parts[2]):
                        if kind == 1:
                            texts[parts[1].decode()] = next(value for _, value in fields(values))
            yield texts["image/class/text"].decode(), texts["image/encoded"]


def write(out, wanted, images):
    """wanted: of each subset, how many images a class has; the first ones are the first subset's."""
    counts = collections.Counter()
    for name, encoded in images:
        number = counts[name]
        for subset, size in wanted.items():
            if number < size:
                folder = os.path.join(out, subset, name)
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, f"{counts[name]:05}.jpg"), "wb") as file:
                    file.write(encoded)
                break
            number -= size
        counts[name] += 1


def main():
    source, out = sys.argv[1:3]
    few = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    train = sorted(glob.glob(os.path.join(source, "train-*-of-*")))
    test = sorted(glob.glob(os.path.join(source, "test-*-of-*")))
    write(os.path.join(out, "animals"), PRETRAINING, (each for each in photographs(train) if each[0] not in VEHICLES))
    write(os.path.join(out, "vehicles"), {"train": few, "val": few}, (each for each in photographs(train) if each[0] in VEHICLES))
    write(os.path.join(out, "vehicles_test"), {"val": 1000}, (each for each in photographs(test) if each[0] in VEHICLES))


if __name__ == "__main__":
    main()
