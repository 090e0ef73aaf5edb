#!/usr/bin/env python
"""Writes small CIFAR-10 batches for cifar_test.cpp: make_cifar_pickle.py NAME trainyard/formats/testdata

Python 2 and 3 with NumPy. NAME is put in the file names; the committed ones are made by
    python2.7 (numpy 1.16)  make_cifar_pickle.py python2    # as the published batches were: protocol 2
    python3.11 (numpy 2.4)  make_cifar_pickle.py python3    # protocols 2 to 5, and the binary batch

Two images; byte j of image i is (7 i + j / 16) % 256, labels 3 and 9.
"""
import io
import os
import pickle
import sys

import numpy as np

IMAGES = 2
BYTES = 3072
LABELS = [3, 9]

name, folder = sys.argv[1:]
data = np.array([[(7 * i + j // 16) % 256 for j in range(BYTES)] for i in range(IMAGES)], dtype=np.uint8)


def write(file_name, content):
    with io.open(os.path.join(folder, file_name), "wb") as file:
        file.write(content)


def batch(text):
    """The dictionary of a published batch; `text` makes its strings."""
    return {
        text("batch_label"): text("training batch 1 of 5"),
        text("labels"): LABELS,
        text("data"): data,
        text("filenames"): [text("leptodactylus_pentadactylus_s_000004.png"), text("camion_s_000148.png")],
    }


if sys.version_info[0] == 2:
    write("cifar_%s_protocol2.pickle" % name, pickle.dumps(batch(str), 2))
else:
    for protocol in range(2, 6):
        # Bytes as pickle.load(..., encoding="bytes") gives them, text as encoding="latin1" does.
        text = (lambda s: s.encode()) if protocol % 2 else str
        write("cifar_%s_protocol%d.pickle" % (name, protocol), pickle.dumps(batch(text), protocol))
    write("cifar_binary.bin", b"".join(bytes([label]) + image.tobytes() for label, image in zip(LABELS, data)))
