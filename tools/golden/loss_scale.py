#!/usr/bin/env python3
"""Writes how torch.amp.GradScaler's scale moves, for loss_scaler_test.cpp:
loss_scale.py > trainyard/optim/testdata/loss_scale.txt

Needs torch (benchmarks/peers/requirements.txt). A line: the run's name, whether the gradients of the steps are infinite,
how many such steps there are, then the scale and the growth tracker behind the last of them, and whether the optimizer has
updated the weight in it.
"""
import random

import torch

print(f"# tools/golden/loss_scale.py: torch {torch.__version__}")


def run(name, steps, **numbers):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", **numbers)
    for bad, count in steps:
        for _ in range(count):
            before = weight.item()
            optimizer.zero_grad()
            scaler.scale(weight.sum()).backward()
            if bad:
                weight.grad.fill_(float("inf") if random.random() < 0.5 else float("nan"))
            scaler.step(optimizer)
            scaler.update()
        print(name, int(bad), count, repr(scaler.get_scale()), scaler._get_growth_tracker(), int(weight.item() != before))


def drawn(part_bad):
    return [(random.random() < part_bad, 1) for _ in range(200)]


random.seed(3)
# Its own numbers: 2^16, and twice that after 2,000 clean steps.
run("default", [(True, 1), (True, 2), (False, 1999), (False, 1), (True, 1), (False, 1999), (False, 1), (False, 1)])
run("random", drawn(0.2), init_scale=1024.0, growth_interval=4)
run("factors", drawn(0.15), init_scale=1000.0, growth_factor=1.7, backoff_factor=0.3, growth_interval=5)
run("huge", [(False, 1)] * 12, init_scale=2.0**125, growth_interval=1)
