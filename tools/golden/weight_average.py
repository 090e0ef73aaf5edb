#!/usr/bin/env python3
"""What TensorFlow's and PyTorch's averages of weights make of the same sequence of weights, in double.

    python3 tools/golden/weight_average.py > trainyard/optim/testdata/weight_average.txt

tf.train.ExponentialMovingAverage with num_updates and without, torch.optim.swa_utils.AveragedModel with get_ema_avg_fn
and with its default, the equal average. The weights of step s (from 0) are sin(0.3 s + i) + 0.01 s; those before the
first step are those of step -1. A line: case, steps, the five values.

TensorFlow rounds its decay to float32, also for variables of float64: the constant one here is exact in it, and with
num_updates it is off by 6e-8.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import torch

STEPS, SHOWN = 200, (1, 2, 3, 10, 50, 199, 200)


def weights(step):
    return np.sin(0.3 * step + np.arange(5)) + 0.01 * step


def show(case, done, values):
    print(case, done, *(repr(float(v)) for v in values))


def tensorflow(case, decay, warmup):
    variable = tf.Variable(weights(-1), dtype=tf.float64)
    count = tf.Variable(0, dtype=tf.int64)
    average = tf.train.ExponentialMovingAverage(decay, num_updates=count if warmup else None)
    average.apply([variable])  # makes the average, which begins as the variable, and moves it towards itself
    for step in range(STEPS):
        variable.assign(weights(step))
        count.assign(step + 1)
        average.apply([variable])
        if step + 1 in SHOWN:
            show(case, step + 1, average.average(variable).numpy())


def pytorch(case, first, every, **options):
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.tensor(weights(-1)))
    average = torch.optim.swa_utils.AveragedModel(module, **options)
    for step in range(STEPS):
        with torch.no_grad():
            module.w.copy_(torch.tensor(weights(step)))
        if step >= first and (step - first + 1) % every == 0:
            average.update_parameters(module)
        if step + 1 in SHOWN and step >= first + every:
            show(case, step + 1, average.module.w.detach().numpy())


def main():
    print(f"# tools/golden/weight_average.py: TensorFlow {tf.__version__}, PyTorch {torch.__version__}")
    tensorflow("tf_constant", 0.9375, False)
    tensorflow("tf_warmup", 0.95, True)
    pytorch("torch_equal", 0, 1)
    pytorch("torch_equal_late", 20, 7)
    # PyTorch's exponential average begins with the weights after the first step.
    pytorch("torch_exponential", 0, 1, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.9))


if __name__ == "__main__":
    main()
