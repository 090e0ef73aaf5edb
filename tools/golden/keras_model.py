#!/usr/bin/env python3
"""Writes a small model as Keras saves it in HDF5, images and what it gives for them, for keras_import_test.cpp:
keras_model.py trainyard/nn/testdata

Needs Keras 3 with TensorFlow or JAX. Images are [2, 10, 10, 3], probabilities [2, 4]; both as text.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(5)
images = keras.Input((10, 10, 3))
x = layers.Conv2D(6, 3, padding="same", activation="relu")(images)
x = layers.MaxPooling2D(3, 2, padding="same")(x)
y = layers.ZeroPadding2D(((0, 2), (1, 1)))(x)
y = layers.DepthwiseConv2D(3, use_bias=False)(y)
y = layers.BatchNormalization()(y)
y = layers.ReLU(6)(y)
x = layers.Add()([x, y])
x = layers.Concatenate()([x, layers.Conv2D(4, 1, groups=2, activation="silu")(x)])
x = layers.AveragePooling2D(2, 2, padding="same")(x)
x = layers.Flatten()(layers.Dropout(0.3)(x))
model = keras.Model(images, layers.Dense(4, activation="softmax")(x))
random = np.random.default_rng(3)
def start(weight):
    """Away from zero; variances positive."""
    signs = 1 if "variance" in weight.path else random.choice((1, -1), weight.shape)
    return signs * random.uniform(0.05, 0.4, weight.shape)


model.set_weights([start(weight) for weight in model.weights])
model.save(os.path.join(sys.argv[1], "keras_model.h5"))
batch = random.uniform(-1, 1, (2, 10, 10, 3)).astype("float32")
for name, values in (("images", batch), ("probabilities", model.predict(batch, verbose=0))):
    with open(os.path.join(sys.argv[1], f"keras_model_{name}.txt"), "w") as file:
        file.write("\n".join(" ".join(f"{value:.9g}" for value in row) for row in values.reshape(-1, values.shape[-1])) + "\n")
