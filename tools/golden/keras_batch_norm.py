#!/usr/bin/env python3
"""Writes the running statistics that Keras 3's BatchNormalization has after each of some batches, for
models/keras/keras_test.cpp: keras_batch_norm.py > trainyard/models/testdata/keras_batch_norm.txt

Needs the tests' Python (tests/requirements.txt). Lines: "images STEP numbers" of a batch [2, 3, 2, 4] (N, H, W, C), then
"mean STEP numbers" and "variance STEP numbers" of the four channels behind it.
"""
import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

layer = keras.layers.BatchNormalization(momentum=0.75, epsilon=1e-3)
layer.build((None, 3, 2, 4))
rng = np.random.default_rng(3)
print(f"# tools/golden/keras_batch_norm.py: keras {keras.__version__}")


def show(name, step, values):
    print(name, step, *(repr(float(value)) for value in np.asarray(values).flatten()))


for step in range(3):
    images = rng.normal(1.5, 2, (2, 3, 2, 4)).astype(np.float32)
    layer(images, training=True)
    show("images", step, images)
    show("mean", step, layer.moving_mean)
    show("variance", step, layer.moving_variance)
