#!/usr/bin/env python3
"""Steps of gradient descent with gradients clipped by their norm, in double, as Keras, TensorFlow and PyTorch do it.

    python3 tools/golden/clipping.py > trainyard/optim/testdata/clipping.txt

Keras 3 with TensorFlow: SGD(clipnorm=) and SGD(global_clipnorm=), whose gradients hold the weight decay, as a
regularizer of the model puts it there. PyTorch: clip_grad_norm_() for each parameter and for all, then SGD(weight_decay=).
Adaptive clipping: the paper's code (Brock et al. 2021; deepmind-research, nfnets/agc_optax.py), by its definition on
torch tensors whose rows are outputs.

A line: case, parameter, the values after the last step.
"""
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import torch

SHAPES = {"body.1.weight": (3, 7), "body.2.weight": (3, 7), "head.weight": (3, 7), "head.bias": (5,)}
STEPS, RATE, DECAY = 40, 0.05, 0.1
NORM, GLOBAL_NORM, ADAPTIVE = 1.5, 2.5, 0.3


def start(index, shape):
    count = int(np.prod(shape))
    return np.sin(0.7 * np.arange(count) + index).reshape(shape)


def gradient(index, step, values):
    """Of the data's loss: large in some steps and small in others."""
    places = np.arange(values.size).reshape(values.shape)
    return (1 + np.cos(step)) * (0.8 * values + 0.5 * np.sin(0.3 * step + places + 2 * index))


def decays(name):
    return not name.endswith("bias")


def keras_steps(**clip):
    keras.config.set_floatx("float64")
    variables = [keras.Variable(start(i, s), dtype="float64") for i, s in enumerate(SHAPES.values())]
    optimizer = keras.optimizers.SGD(learning_rate=RATE, **clip)
    for step in range(STEPS):
        gradients = []
        for index, (name, variable) in enumerate(zip(SHAPES, variables)):
            values = variable.numpy()
            whole = gradient(index, step, values) + (DECAY * values if decays(name) else 0)
            gradients.append(keras.ops.convert_to_tensor(whole, dtype="float64"))
        optimizer.apply_gradients(zip(gradients, variables))
    return [variable.numpy() for variable in variables]


def torch_steps(clip):
    parameters = [torch.nn.Parameter(torch.tensor(start(i, s))) for i, s in enumerate(SHAPES.values())]
    groups = [{"params": [p], "weight_decay": DECAY if decays(n) else 0.0} for n, p in zip(SHAPES, parameters)]
    optimizer = torch.optim.SGD(groups, lr=RATE)
    for step in range(STEPS):
        for index, parameter in enumerate(parameters):
            parameter.grad = torch.tensor(gradient(index, step, parameter.detach().numpy()))
        clip(parameters)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def unit_norm(x):
    return x.norm() if x.dim() <= 1 else x.norm(dim=tuple(range(1, x.dim())), keepdim=True)


def adaptive(parameters):
    for name, parameter in zip(SHAPES, parameters):
        if name.startswith("head."):
            continue
        largest = unit_norm(parameter.detach()).clamp(min=1e-3) * ADAPTIVE
        norm = unit_norm(parameter.grad)
        clipped = parameter.grad * (largest / norm.clamp(min=1e-6))
        parameter.grad.copy_(torch.where(norm > largest, clipped, parameter.grad))


def main():
    print(f"# tools/golden/clipping.py: Keras {keras.__version__}, PyTorch {torch.__version__}")
    cases = {}
    cases["keras_norm"] = keras_steps(clipnorm=NORM)
    cases["keras_global_norm"] = keras_steps(global_clipnorm=GLOBAL_NORM)
    cases["torch_norm"] = torch_steps(lambda ps: [torch.nn.utils.clip_grad_norm_([p], NORM) for p in ps])
    cases["torch_global_norm"] = torch_steps(lambda ps: torch.nn.utils.clip_grad_norm_(ps, GLOBAL_NORM))
    cases["adaptive"] = torch_steps(adaptive)
    for case, results in cases.items():
        for name, values in zip(SHAPES, results):
            print(case, name, *(repr(float(v)) for v in np.asarray(values).reshape(-1)))


if __name__ == "__main__":
    main()
