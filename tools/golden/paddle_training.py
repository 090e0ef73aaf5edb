#!/usr/bin/env python3
"""Writes what Paddle computes, for loss_scale_rule_test.cpp and the tests of schedules:
paddle_training.py loss_scale > trainyard/optim/testdata/paddle_loss_scale.txt
paddle_training.py schedules > trainyard/optim/testdata/paddle_schedules.txt

Needs paddlepaddle==3.3.1 (a wheel of PyPI). loss_scale runs the operator update_loss_scaling, which is that of
paddle.static.amp. A line: the run's name, whether the step's gradient is infinite, then the scale and the counts of good
and bad steps behind it. schedules: the schedule's name, the step, the rate.
"""
import random
import sys

import paddle
from paddle.optimizer import lr


def loss_scale(name, bad_steps, start, every=1000, decr_every=2, incr_ratio=2.0, decr_ratio=0.8):
    scale = paddle.to_tensor([start], dtype="float32")
    good, bad = (paddle.to_tensor([0], dtype="int32") for _ in range(2))
    gradient = paddle.ones([2], dtype="float32")
    for infinite in bad_steps:
        paddle._C_ops.update_loss_scaling_([gradient], paddle.to_tensor([infinite]), scale, good, bad, every, decr_every,
                                           incr_ratio, decr_ratio, False)
        print(name, int(infinite), repr(scale.item()), good.item(), bad.item())


def schedule(name, steps, scheduler):
    for step in range(steps):
        print(name, step, repr(float(scheduler())))
        scheduler.step()


print(f"# tools/golden/paddle_training.py: paddle {paddle.__version__}")
random.seed(11)
if sys.argv[1] == "loss_scale":
    loss_scale("falls", [True] * 40, 3.0)
    loss_scale("below_one", [True, False, True, True, True, True], 0.25)
    loss_scale("random", [random.random() < 0.45 for _ in range(300)], 32768.0, every=4)
    loss_scale("factors", [random.random() < 0.4 for _ in range(200)], 1000.0, every=3, decr_every=3, incr_ratio=1.7,
               decr_ratio=0.55)
    loss_scale("huge", [False] * 12, 2.0**125, every=1)
else:
    # NVIDIA DALI's example of a ResNet: 5 epochs of 7 steps from warmup_start_lr, then a cosine over 6 epochs.
    schedule("paddle_warmup_cosine", 78, lr.LinearWarmup(
        lr.CosineAnnealingDecay(0.256, T_max=42), warmup_steps=35, start_lr=0.016, end_lr=0.256))
    schedule("paddle_warmup_step", 40, lr.LinearWarmup(
        lr.StepDecay(0.256, step_size=9, gamma=0.3), warmup_steps=6, start_lr=0.0, end_lr=0.256))
    schedule("paddle_polynomial", 40, lr.PolynomialDecay(0.4, decay_steps=15, end_lr=0.01, power=1.5, cycle=True))
    schedule("paddle_piecewise", 60, lr.PiecewiseDecay([13, 26, 39], [0.1, 0.01, 0.001, 0.0001]))
