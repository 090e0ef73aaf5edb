#!/usr/bin/env python3
"""Writes what Keras and the formulas in double make of a small network in 36 steps of the custom training loop of
NVIDIA DALI's TensorFlow ResNet-N example, for keras_steps_test.cpp:

    train_ctl.py > trainyard/frontends/testdata/train_ctl.txt

Needs TensorFlow, tf-keras and torch (benchmarks/peers/requirements.txt). "keras": tf_keras' layers, regularizers, loss
and SGD in float32, with the step and the schedule written anew from what the example documents of them. "double": the
same by definition, with PyTorch's derivatives. A step an epoch: the rate rises for 5 steps and falls behind step 30.

A line: source, name of a number, values. Images, labels and first weights come from the generator below, which the test
has, too.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf
import tf_keras
import torch
import torch.nn.functional as F

STEPS, BATCH, SIZE, CLASSES = 36, 8, 8, 5
RATE, MOMENTUM, L2 = 0.1, 0.9, 1e-4
# Convolutions: name, kernel, stride, channels in and out. Each has a norm behind it, "n" + name.
CONVOLUTIONS = {"a": (3, 1, 3, 4), "b": (3, 2, 4, 6), "s": (1, 2, 4, 6)}


def draw(seed, shape):
    """Whole numbers from 0 to 32767."""
    x, numbers = seed, []
    for _ in range(int(np.prod(shape))):
        x = (1103515245 * x + 12345) % 2**31
        numbers.append(x >> 16)
    return np.array(numbers).reshape(shape)


def batch(step):
    """[N, 3, H, W] in [0, 255], [N]."""
    return draw(1000 + step, (BATCH, 3, SIZE, SIZE)) % 256, draw(5000 + step, (BATCH,)) % CLASSES


def first_weights():
    """[out, in, kernel, kernel] and [out, in]."""
    shapes = {name: (out, into, kernel, kernel) for name, (kernel, _, into, out) in CONVOLUTIONS.items()}
    shapes["d"] = (CLASSES, 6)
    return {name: (draw(seed + 1, shape) / 32768 - 0.5) / 2 for seed, (name, shape) in enumerate(shapes.items())}


def rate(step):
    if step < 5:
        return RATE * step / 5
    return RATE if step <= 30 else 0.1 * RATE


def show(source, name, values):
    print(source, name, *(f"{v:.17g}" for v in np.asarray(values, dtype=np.float64).ravel()))


class Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        behind = tf.where(step <= 30.0, RATE, 0.1 * RATE)
        return tf.where(step < 5.0, RATE * (step / 5.0), behind)


def with_keras():
    layers, l2 = tf_keras.layers, tf_keras.regularizers.l2(L2)

    def convolution_norm(name, x):
        kernel, stride, _, out = CONVOLUTIONS[name]
        x = layers.Conv2D(out, kernel, strides=stride, padding="same", use_bias=False, kernel_regularizer=l2, name=name)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="n" + name)(x)

    images = layers.Input((SIZE, SIZE, 3))
    x = layers.Activation("relu")(convolution_norm("a", images))
    x = layers.Activation("relu")(layers.add([convolution_norm("b", x), convolution_norm("s", x)]))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(CLASSES, kernel_regularizer=l2, bias_regularizer=l2, name="d")(x)
    model = tf_keras.Model(images, layers.Activation("softmax")(x))
    weights = first_weights()
    for name in CONVOLUTIONS:
        model.get_layer(name).set_weights([weights[name].transpose(2, 3, 1, 0)])
    model.get_layer("d").set_weights([weights["d"].T, np.zeros(CLASSES)])
    loss_function = tf_keras.losses.SparseCategoricalCrossentropy()
    optimizer = tf_keras.optimizers.SGD(learning_rate=Schedule(), momentum=MOMENTUM)

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True)) + tf.reduce_sum(model.losses)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    losses = []
    for step in range(STEPS):
        images, labels = batch(step)
        losses.append(train(tf.constant(images.transpose(0, 2, 3, 1), tf.float32), tf.constant(labels)).numpy())
    show("keras", "loss", losses)
    for name in CONVOLUTIONS:
        show("keras", name + ".weight", model.get_layer(name).get_weights()[0].transpose(3, 2, 0, 1))
        for part, value in zip(("weight", "bias", "running_mean", "running_var"), model.get_layer("n" + name).get_weights()):
            show("keras", f"n{name}.{part}", value)
    kernel, bias = model.get_layer("d").get_weights()
    show("keras", "d.weight", kernel.T)
    show("keras", "d.bias", bias)


def same(x, kernel, stride, value=0.0):
    """TensorFlow's SAME padding: the odd row and column behind."""
    need = max((-(-x.shape[2] // stride) - 1) * stride + kernel - x.shape[2], 0)
    return F.pad(x, (need // 2, need - need // 2, need // 2, need - need // 2), value=value)


def in_double():
    p = {name + ".weight": torch.tensor(value, dtype=torch.float64) for name, value in first_weights().items()}
    p["d.bias"] = torch.zeros(CLASSES, dtype=torch.float64)
    statistics = {}
    for name, (_, _, _, out) in CONVOLUTIONS.items():
        p[f"n{name}.weight"], p[f"n{name}.bias"] = torch.ones(out).double(), torch.zeros(out).double()
        statistics[f"n{name}.running_mean"], statistics[f"n{name}.running_var"] = torch.zeros(out).double(), torch.ones(out).double()
    velocity = {name: torch.zeros_like(value) for name, value in p.items()}

    def convolution_norm(name, x):
        kernel, stride, _, _ = CONVOLUTIONS[name]
        x = F.conv2d(same(x, kernel, stride), p[name + ".weight"], stride=stride)
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        count = x.numel() / x.shape[1]
        for part, value in (("mean", mean), ("var", variance * count / (count - 1))):
            running = statistics[f"n{name}.running_{part}"]
            running += 0.1 * (value.detach() - running)
        x = (x - mean[:, None, None]) / torch.sqrt(variance + 1e-5)[:, None, None]
        return x * p[f"n{name}.weight"][:, None, None] + p[f"n{name}.bias"][:, None, None]

    losses = []
    for step in range(STEPS):
        images, labels = (torch.tensor(part) for part in batch(step))
        for value in p.values():
            value.requires_grad_(True)
            value.grad = None
        x = torch.relu(convolution_norm("a", images.double()))
        x = torch.relu(convolution_norm("b", x) + convolution_norm("s", x))
        x = F.max_pool2d(same(x, 3, 2, -float("inf")), 3, 2).mean((2, 3))
        logits = x @ p["d.weight"].T + p["d.bias"]
        loss = -torch.log_softmax(logits, 1)[torch.arange(BATCH), labels].mean()
        for name in ("a.weight", "b.weight", "s.weight", "d.weight", "d.bias"):
            loss = loss + L2 * (p[name] ** 2).sum()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for name, value in p.items():
                velocity[name].mul_(MOMENTUM).sub_(rate(step) * value.grad)
                value += velocity[name]
    show("double", "loss", losses)
    for name, value in (p | statistics).items():
        show("double", name, value.detach().numpy())


with_keras()
in_double()
