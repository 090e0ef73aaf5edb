#!/usr/bin/env python3
"""Writes learning rates of PyTorch's and Keras' schedules, for decay_test.cpp and learning_rate_test.cpp:
schedules.py > trainyard/optim/testdata/schedules.txt

Needs torch and Keras 3 (benchmarks/peers/requirements.txt). Keras computes in double on top of torch. A line: the
schedule's name, the step, the rate.
"""
import os
import warnings

os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch
from torch.optim import lr_scheduler

warnings.filterwarnings("ignore")
keras.config.set_floatx("float64")
print(f"# tools/golden/schedules.py: torch {torch.__version__}, keras {keras.__version__}")


def sgd(rate, momentum=0.9):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate, momentum=momentum)


def from_torch(name, steps, make, rate=0.4, with_momentum=False):
    optimizer = sgd(rate)
    scheduler = make(optimizer)
    for step in range(steps):
        print(name, step, repr(optimizer.param_groups[0]["lr"]))
        if with_momentum:
            print(name + "_momentum", step, repr(optimizer.param_groups[0]["momentum"]))
        optimizer.step()
        scheduler.step()


def from_keras(name, steps, schedule):
    for step in steps:
        print(name, step, repr(float(schedule(step))))


from_torch("torch_cosine", 21, lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=20, eta_min=0.05))
for factor in 1, 2, 3:
    from_torch(f"torch_restarts_{factor}", 70,
               lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=7, T_mult=factor, eta_min=0.02))
from_torch("torch_polynomial", 25, lambda o: lr_scheduler.PolynomialLR(o, total_iters=20, power=1.7))
from_torch("torch_exponential", 20, lambda o: lr_scheduler.ExponentialLR(o, gamma=0.93))
from_torch("torch_step", 20, lambda o: lr_scheduler.StepLR(o, step_size=6, gamma=0.3))
for shape, full in ("cos", "cos"), ("linear", "linear"):
    from_torch(f"torch_one_cycle_{shape}", 40,
               lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.4, total_steps=41, anneal_strategy=full), with_momentum=True)
    from_torch(f"torch_three_phases_{shape}", 40, lambda o: lr_scheduler.OneCycleLR(
        o, max_lr=0.4, total_steps=41, pct_start=0.45, anneal_strategy=full, three_phase=True, div_factor=10,
        final_div_factor=50, base_momentum=0.8, max_momentum=0.97), with_momentum=True)
# A warm-up in front of a schedule, and one that is a factor of it.
from_torch("torch_warmup_then_cosine", 26, lambda o: lr_scheduler.SequentialLR(o, [
    lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=5), lr_scheduler.CosineAnnealingLR(o, T_max=20)], milestones=[5]))
from_torch("torch_warmup_times_step", 20, lambda o: lr_scheduler.ChainedScheduler(
    [lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=8), lr_scheduler.StepLR(o, step_size=6, gamma=0.3)]))

schedules = keras.optimizers.schedules
from_keras("keras_restarts", range(0, 90),
           schedules.CosineDecayRestarts(0.4, first_decay_steps=8, t_mul=1.5, m_mul=0.7, alpha=0.1))
from_keras("keras_restarts_even", range(0, 40), schedules.CosineDecayRestarts(0.4, 8, t_mul=1.0, m_mul=0.5))
from_keras("keras_cosine", range(0, 40), schedules.CosineDecay(0.4, decay_steps=30, alpha=0.05))
from_keras("keras_warmup_then_cosine", range(0, 40),
           schedules.CosineDecay(0.03, decay_steps=30, warmup_target=0.4, warmup_steps=6))
from_keras("keras_polynomial", range(0, 40), schedules.PolynomialDecay(0.4, 15, end_learning_rate=0.01, power=2.5))
from_keras("keras_polynomial_cycle", range(0, 50),
           schedules.PolynomialDecay(0.4, 15, end_learning_rate=0.01, power=0.5, cycle=True))
from_keras("keras_exponential", range(0, 40), schedules.ExponentialDecay(0.4, 12, 0.6))
from_keras("keras_staircase", range(0, 40), schedules.ExponentialDecay(0.4, 12, 0.6, staircase=True))
# NVIDIA DALI's example of a ResNet in TensorFlow: boundaries in epochs of 13 steps.
from_keras("keras_piecewise", range(0, 1100, 3), schedules.PiecewiseConstantDecay(
    [13.0 * 30, 13.0 * 60, 13.0 * 80], [0.1, 0.01, 0.001, 0.0001]))
from_keras("keras_piecewise", [389, 390, 391, 780, 781, 1040, 1041], schedules.PiecewiseConstantDecay(
    [13.0 * 30, 13.0 * 60, 13.0 * 80], [0.1, 0.01, 0.001, 0.0001]))
