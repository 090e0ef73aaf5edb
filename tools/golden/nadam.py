#!/usr/bin/env python3
"""Writes what Keras', PyTorch's and tf.keras' Nadam make of a small bowl in 1,000 steps, for nadam_test.cpp:
nadam.py > trainyard/optim/testdata/nadam.txt

Needs Keras 3, torch and TensorFlow (benchmarks/peers/requirements.txt), and tf-keras==2.21.0. Keras and PyTorch
compute in double; Keras does so on top of torch, since on TensorFlow it rounds its constants to float first. tf.keras'
optimizer of up to 2.10 computes in float: in double it never moves its product of momenta (its cache is float32, and is
assigned for variables of that type only). A line: source, step, the seven values.
"""
import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf
import tf_keras
import torch

STEPS, SKIPPED, SHOWN = 1000, 300, (1, 2, 3, 10, 100, 299, 300, 301, 999)
BETA1, BETA2, EPSILON = 0.85, 0.99, 1e-5
# Two parameters: "body", with a weight decay of 0.02, and "head", whose group has 0.3.
START = (np.array([1.0, -2.0, 0.5, 3.0]), np.array([-0.25, 0.75, 2.0]))
DECAY = (0.02, 0.3)


def rate(step):
    return 0.02 / (1 + 0.01 * step)


def gradient(values, step, parameter):
    """Of the loss without weight decay: a bowl whose middle moves."""
    places = np.arange(len(values)) + 4.0 * parameter
    return (0.5 + 0.25 * places) * (values - np.sin(0.05 * step + places))


def line(source, step, values):
    print(source, step, *(repr(float(v)) for part in values for v in part))


def run(source, values, update):
    """values() -> the two parameters as they are; update(gradients with decay, rate)."""
    for step in range(STEPS):
        now = values()
        if step != SKIPPED:
            update([gradient(v.astype(np.float64), step, p) + DECAY[p] * v for p, v in enumerate(now)], rate(step))
        if step in SHOWN:
            line(source, step, values())


def keras_nadam():
    keras.config.set_floatx("float64")
    variables = [keras.Variable(v, dtype="float64") for v in START]
    optimizer = keras.optimizers.Nadam(0.1, beta_1=BETA1, beta_2=BETA2, epsilon=EPSILON)
    optimizer.build(variables)

    def update(gradients, learning_rate):
        optimizer.learning_rate = learning_rate
        optimizer.apply([torch.tensor(g, dtype=torch.float64) for g in gradients], variables)

    run("keras", lambda: [keras.ops.convert_to_numpy(v).copy() for v in variables], update)


def torch_nadam():
    torch.set_default_dtype(torch.float64)
    parameters = [torch.tensor(v, requires_grad=True) for v in START]
    groups = [{"params": [p], "weight_decay": d} for p, d in zip(parameters, DECAY)]
    optimizer = torch.optim.NAdam(groups, betas=(BETA1, BETA2), eps=EPSILON, momentum_decay=0.004)

    def values():
        return [p.detach().numpy().copy() for p in parameters]

    def update(gradients, learning_rate):
        for p, (parameter, value) in enumerate(zip(parameters, values())):
            parameter.grad = torch.tensor(gradients[p] - DECAY[p] * value)  # it adds its own
            optimizer.param_groups[p]["lr"] = learning_rate
        optimizer.step()

    run("torch", values, update)


def tf_keras_nadam():
    variables = [tf.Variable(v, dtype=tf.float32) for v in START]
    optimizer = tf_keras.optimizers.legacy.Nadam(0.1, beta_1=BETA1, beta_2=BETA2, epsilon=EPSILON)

    def update(gradients, learning_rate):
        optimizer.learning_rate = learning_rate
        optimizer.apply_gradients([(tf.constant(g, tf.float32), v) for g, v in zip(gradients, variables)])

    run("tf_keras", lambda: [v.numpy() for v in variables], update)


print(f"# tools/golden/nadam.py: keras {keras.__version__}, torch {torch.__version__}, tf_keras {tf_keras.__version__}")
keras_nadam()
torch_nadam()
tf_keras_nadam()
