#!/usr/bin/env python3
"""Trains a network of tf.keras.applications, alexnet or resnet20 of CIFAR-10 on synthetic images with TensorFlow; prints
one JSON line (measured.py).

usage: train_tensorflow.py MODEL BATCH fp32|bf16 graph STEPS        MODEL as torchvision names it
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, which reads it

import keras
import tensorflow as tf
from keras import layers

from measured import measure

# Keras' ResNet50 has its strides in the first 1x1 convolutions: 7.7 GFLOP an image where torchvision's has 8.2.
APPLICATIONS = {
    "resnet50": "ResNet50",
    "vgg16": "VGG16",
    "inception_v3": "InceptionV3",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_large": "MobileNetV3Large",
    "densenet121": "DenseNet121",
    "efficientnet_b0": "EfficientNetB0",
    "convnext_tiny": "ConvNeXtTiny",
}


def alexnet():
    """torchvision's: Krizhevsky 2014 (arXiv:1404.5997)"""

    def convolution(filters, size, stride, padding):
        return [layers.ZeroPadding2D(padding), layers.Conv2D(filters, size, stride, activation="relu")]

    return keras.Sequential([
        keras.Input((224, 224, 3)),
        *convolution(64, 11, 4, 2), layers.MaxPool2D(3, 2),
        *convolution(192, 5, 1, 2), layers.MaxPool2D(3, 2),
        *convolution(384, 3, 1, 1), *convolution(256, 3, 1, 1), *convolution(256, 3, 1, 1), layers.MaxPool2D(3, 2),
        layers.Flatten(),
        layers.Dropout(0.5), layers.Dense(4096, activation="relu"),
        layers.Dropout(0.5), layers.Dense(4096, activation="relu"),
        layers.Dense(1000),
    ])


def resnet20():
    """The same network as train_torchvision's."""

    def unit(maps, filters, stride=1):
        maps = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(maps)
        return layers.BatchNormalization()(maps)

    images = keras.Input((32, 32, 3))
    maps = unit(images, 16)
    for filters, first_stride in ((16, 1), (32, 2), (64, 2)):
        for number in range(3):
            stride = first_stride if number == 0 else 1
            shortcut = maps
            if stride == 2:  # every other pixel, and zeros for the new channels
                zeros = filters // 4
                shortcut = keras.ops.pad(maps[:, ::2, ::2, :], ((0, 0), (0, 0), (0, 0), (zeros, zeros)))
            branch = unit(layers.ReLU()(unit(maps, filters, stride)), filters)
            maps = layers.ReLU()(layers.Add()([branch, shortcut]))
    return keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(maps)))


def build(name):
    if name == "alexnet":
        return alexnet()
    if name == "resnet20":
        return resnet20()
    if name not in APPLICATIONS:
        sys.exit(f"keras.applications has no {name}")
    # Pixels come in already scaled, as for the others.
    own_scaling = {"include_preprocessing": False} if name.startswith(("mobilenet_v3", "convnext")) else {}
    size = 299 if name == "inception_v3" else 224
    return getattr(keras.applications, APPLICATIONS[name])(
        weights=None, input_shape=(size, size, 3), classifier_activation=None, **own_scaling)


def main(name, batch, dtype, steps):
    if dtype == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = build(name)
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9, weight_decay=1e-4)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images = tf.random.normal((batch, *model.input_shape[1:]))
    labels = tf.random.uniform((batch,), 0, model.output_shape[-1], dtype=tf.int32)

    @tf.function
    def graph():
        with tf.GradientTape() as tape:
            loss = loss_of(labels, tf.cast(model(images, training=True), tf.float32))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    measure(batch, steps, lambda: float(graph()))


if __name__ == "__main__":
    if len(sys.argv) != 6 or sys.argv[3] not in ("fp32", "bf16") or sys.argv[4] != "graph":
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[5]))
