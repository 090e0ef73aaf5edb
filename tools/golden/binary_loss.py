#!/usr/bin/env python3
"""timm's BinaryCrossEntropy and its gradient, in double.

    python3 tools/golden/binary_loss.py > trainyard/nn/testdata/binary_loss.txt

Needs timm. Logits of sample n and class c, 5 x 7, are 2 sin(7 n + 1.3 c); its label is 3 n mod 7, the other one
n + 1 mod 7 (both 6 for sample 4: an image is mixed with one of its class), the share of the first (n + 1) / 5. Class
weights are 0.5 + c / 4. A line: smoothing, threshold (-1: none), sum over classes, class weights, mixed, the loss, and
the gradient's 35 values.
"""
import itertools

import timm
import torch
from timm.loss import BinaryCrossEntropy

SAMPLES, CLASSES = 5, 7


def target_of(labels, others, shares, smoothing):
    """timm's mixup_target(), with a share for each sample."""
    off = smoothing / CLASSES
    on = 1 - smoothing + off
    first = one_hot(labels, CLASSES, on_value=on, off_value=off).double()
    second = one_hot(others, CLASSES, on_value=on, off_value=off).double()
    return first * shares[:, None] + second * (1 - shares[:, None])


def one_hot(labels, num_classes, on_value, off_value):
    """timm's one_hot(), which makes float32, in double."""
    rows = torch.full((len(labels), num_classes), off_value, dtype=torch.float64)
    return rows.scatter_(1, labels[:, None], on_value)


n, c = torch.arange(SAMPLES)[:, None], torch.arange(CLASSES)[None]
labels, others = 3 * n[:, 0] % 7, (n[:, 0] + 1) % 7
labels[4] = others[4] = 6
shares = (n[:, 0].double() + 1) / 5
print(f"# tools/golden/binary_loss.py: timm {timm.__version__}, PyTorch {torch.__version__}")
for smoothing, threshold, summed, weighted, mixed in itertools.product(
        (0.0, 0.1), (-1, 0.0, 0.2, 0.5), (False, True), (False, True), (False, True)):
    logits = (2 * torch.sin(7 * n.double() + 1.3 * c.double())).requires_grad_()
    loss_of = BinaryCrossEntropy(smoothing=smoothing, target_threshold=None if threshold < 0 else threshold,
                                 weight=0.5 + c[0].double() / 4 if weighted else None, sum_classes=summed)
    loss = loss_of(logits, target_of(labels, others, shares, smoothing) if mixed else labels)
    loss.backward()
    print(smoothing, threshold, int(summed), int(weighted), int(mixed), repr(loss.item()),
          *(repr(v) for v in logits.grad.flatten().tolist()))
