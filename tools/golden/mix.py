#!/usr/bin/env python3
"""Writes what torchvision's MixUp and CutMix make of given and of random draws, for mixing_test.cpp, and what PyTorch's
losses make of mixed labels and of a teacher, for loss_test.cpp: mix.py trainyard/data/testdata trainyard/nn/testdata

Needs torch and torchvision (benchmarks/peers/requirements.txt). Lines of mixing.txt:

  images PIXELS..                                    two images, [2, 3, 5, 4]; their labels are 2 and 0
  mixup SHARE TARGETS.. PIXELS..                     the two mixed; targets [2, 4]
  cutmix SHARE CENTRE_Y CENTRE_X TARGETS.. PIXELS..  the same two, and the box that a centre and a share make
  box HEIGHT WIDTH SHARE CENTRE_Y CENTRE_X  Y X HEIGHT WIDTH SHARE_LEFT
  mixup_quantiles ALPHA (PART VALUE)..               of shares: how many draws are at most VALUE
  cutmix_quantiles ALPHA NAME (PART VALUE)..         of the share that is left, the box's area, middle, width

Lines of losses.txt, in double: logits, teacher [6, 7], labels, other_labels, shares [6]; then of these
cross_entropy SMOOTHING LOSS GRADIENT.. and distillation WEIGHT TEMPERATURE SMOOTHING LOSS GRADIENT..
"""
import os
import sys
from unittest import mock

import numpy as np
import torch
import torchvision
from torchvision.transforms import v2

from drawn import draw

CLASSES, LABELS = 4, (2, 0)
data_folder, nn_folder = sys.argv[1:3]


def image(name, size=(3, 5, 4)):
    return torch.tensor(draw(name, size), dtype=torch.float32)


def numbers(values):
    return " ".join(repr(float(v)) for v in np.asarray(values).reshape(-1))


class Given:
    """Stands for a Beta distribution that draws what it is told."""

    def __init__(self, share):
        self.share = share

    def sample(self, _):
        return torch.tensor(self.share, dtype=torch.float64)


def cutmix_params(share, centre, height, width):
    transform = v2.CutMix(num_classes=CLASSES)
    transform._dist = Given(share)
    drawn = iter((torch.tensor([centre[1]]), torch.tensor([centre[0]])))  # the column first, as make_params does
    with mock.patch("torch.randint", lambda *_, **__: next(drawn)):
        return transform.make_params([torch.zeros(2, 3, height, width)])


def mixed(transform, params):
    images = torch.stack([image("mix/first"), image("mix/second")])
    labels = torch.tensor(LABELS)
    params = dict(params, labels=labels, batch_size=2)
    return transform.transform(images, params), transform.transform(labels, params)


with open(os.path.join(data_folder, "mixing.txt"), "w", encoding="utf-8") as out:
    print(f"# tools/golden/mix.py: torch {torch.__version__}, torchvision {torchvision.__version__}", file=out)
    print("images", numbers(torch.stack([image("mix/first"), image("mix/second")])), file=out)
    for share in (0.5, 0.3, 0.9, 0.123456789, 0.0, 1.0):
        pixels, targets = mixed(v2.MixUp(num_classes=CLASSES), {"lam": share})
        print("mixup", repr(share), numbers(targets), numbers(pixels), file=out)
    for share, centre in ((0.5, (2, 2)), (0.3, (0, 0)), (0.1, (4, 3)), (0.97, (2, 1)), (0.0, (1, 3))):
        params = cutmix_params(share, centre, 5, 4)
        pixels, targets = mixed(v2.CutMix(num_classes=CLASSES), params)
        print("cutmix", repr(share), *centre, numbers(targets), numbers(pixels), file=out)
    for height, width in ((224, 224), (32, 32), (160, 192), (7, 5)):
        for share in (0.01, 0.25, 0.5, 0.75, 0.999):
            for centre in ((0, 0), (height // 2, width // 3), (height - 1, width - 1)):
                params = cutmix_params(share, centre, height, width)
                left, top, right, bottom = params["box"]
                print("box", height, width, repr(share), *centre, top, left, bottom - top, right - left,
                      repr(params["lam_adjusted"]), file=out)

    def quantiles(kind, values, *names):
        values = np.sort(np.asarray(values, dtype=np.float64))
        points = sorted({float(np.quantile(values, q)) for q in (0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98)})
        parts = (f"{np.searchsorted(values, p, side='right') / len(values):.5f} {p!r}" for p in points)
        print(kind, *names, " ".join(parts), file=out)

    torch.manual_seed(17)
    draws, height, width = 100_000, 160, 224
    for alpha in (0.2, 0.4, 1.0, 3.0):
        transform = v2.MixUp(alpha=alpha, num_classes=CLASSES)
        quantiles("mixup_quantiles", [transform.make_params([])["lam"] for _ in range(draws)], alpha)
    for alpha in (0.3, 1.0):
        transform = v2.CutMix(alpha=alpha, num_classes=CLASSES)
        flat = [torch.zeros(2, 3, height, width)]
        params = [transform.make_params(flat) for _ in range(draws)]
        boxes = np.array([p["box"] for p in params], dtype=np.float64)
        quantiles("cutmix_quantiles", [p["lam_adjusted"] for p in params], alpha, "share")
        quantiles("cutmix_quantiles", boxes[:, 0] + boxes[:, 2], alpha, "middle")
        quantiles("cutmix_quantiles", boxes[:, 3] - boxes[:, 1], alpha, "height")
        quantiles("cutmix_quantiles", boxes[:, 2] - boxes[:, 0], alpha, "width")

N, C = 6, 7
logits = torch.tensor(4 * draw("mix/logits", (N, C)), dtype=torch.float64)
teacher = torch.tensor(5 * draw("mix/teacher", (N, C)), dtype=torch.float64)
labels = torch.tensor([0, 3, 6, 2, 2, 5])
other_labels = torch.tensor([4, 3, 1, 0, 2, 6])
shares = torch.tensor((draw("mix/shares", (N,)) + 1) / 2, dtype=torch.float64)
shares[0], shares[4] = 1.0, 0.0
one_hot = torch.nn.functional.one_hot
targets = shares[:, None] * one_hot(labels, C) + (1 - shares[:, None]) * one_hot(other_labels, C)

with open(os.path.join(nn_folder, "losses.txt"), "w", encoding="utf-8") as out:
    print(f"# tools/golden/mix.py: torch {torch.__version__}", file=out)
    for name, values in (("logits", logits), ("teacher", teacher), ("labels", labels), ("other_labels", other_labels),
                         ("shares", shares)):
        print(name, numbers(values), file=out)
    for smoothing in (0.0, 0.1, 0.7):
        z = logits.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(z, targets, label_smoothing=smoothing)
        loss.backward()
        print("cross_entropy", smoothing, repr(loss.item()), numbers(z.grad), file=out)
    for weight, temperature, smoothing in ((1.0, 1.0, 0.0), (1.0, 4.0, 0.0), (0.7, 3.0, 0.1)):
        z = logits.clone().requires_grad_()
        soft = torch.nn.functional.kl_div(torch.log_softmax(z / temperature, 1), torch.softmax(teacher / temperature, 1),
                                          reduction="batchmean")
        hard = torch.nn.functional.cross_entropy(z, targets, label_smoothing=smoothing)
        loss = (1 - weight) * hard + weight * temperature**2 * soft
        loss.backward()
        print("distillation", weight, temperature, smoothing, repr(loss.item()), numbers(z.grad), file=out)
