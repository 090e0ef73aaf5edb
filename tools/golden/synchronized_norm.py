#!/usr/bin/env python3
"""Writes what PyTorch's batch norm makes of the joined batch of three replicas, and autograd's gradients of it, for
synchronized_norm_test.cpp: synchronized_norm.py > trainyard/parallel/testdata/synchronized_norm.txt

Needs torch (benchmarks/peers/requirements.txt). torch.nn.SyncBatchNorm itself runs on GPUs only: it is defined as the
batch norm of the joined batch, with the gradients of scale and shift that are each replica's own part.

Each line: case, replica, what it is, then its numbers.
"""
import torch
from torch.nn.functional import batch_norm

torch.set_default_dtype(torch.float64)

BATCHES, CHANNELS, IMAGE = (2, 1, 3), 5, (2, 3)
# By name: epsilon, momentum of the running statistics, whether there is a scale, and whether an addition and a ReLU
# follow.
CASES = {"torch": (1e-5, 0.1, True, True), "keras": (1e-3, 0.01, False, False)}


def wave(shape, step):
    """sin(step * i + 0.3) for element i, rows last."""
    return torch.sin(torch.arange(torch.Size(shape).numel()) * step + 0.3).reshape(shape)


def main():
    for name, (epsilon, momentum, scale, fused) in CASES.items():
        shapes = [(batch, CHANNELS, *IMAGE) for batch in BATCHES]
        # Replicas whose values lie apart: their own statistics would be others.
        xs = [(wave(shape, 0.7 + r) * (r + 1) + 0.5 * r).requires_grad_() for r, shape in enumerate(shapes)]
        added = [wave(shape, 1.7 + r).requires_grad_() for r, shape in enumerate(shapes)]
        # A leaf a replica, so that each has its own part of the gradient.
        weights = [(1 + 0.5 * wave((CHANNELS,), 1.3)).requires_grad_() for _ in BATCHES]
        biases = [wave((CHANNELS,), 2.1).requires_grad_() for _ in BATCHES]
        mean, variance = torch.full((CHANNELS,), 0.25), torch.full((CHANNELS,), 2.0)
        joined = batch_norm(torch.cat(xs), mean, variance, training=True, momentum=momentum, eps=epsilon)
        cost, ys = 0, []
        for r, normal in enumerate(joined.split(BATCHES)):
            y = normal + biases[r].reshape(1, -1, 1, 1)
            if scale:
                y = normal * weights[r].reshape(1, -1, 1, 1) + biases[r].reshape(1, -1, 1, 1)
            if fused:
                y = torch.relu(y + added[r])
            ys.append(y)
            cost = cost + (y * wave(y.shape, 0.9 + r)).sum()
        cost.backward()
        for r in range(len(BATCHES)):
            rows = {"output": ys[r], "input": xs[r].grad, "bias": biases[r].grad, "mean": mean, "variance": variance}
            if scale:
                rows["weight"] = weights[r].grad
            if fused:
                rows["added"] = added[r].grad
            for what, values in rows.items():
                print(name, r, what, *(f"{value:.15g}" for value in values.flatten().tolist()))


main()
