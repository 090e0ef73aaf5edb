#!/usr/bin/env python3
"""Trains a torchvision network, resnet20 of CIFAR-10 or ssd300 of COCO on synthetic images with PyTorch; prints one JSON line
(measured.py).

usage: train_torchvision.py MODEL BATCH fp32|bf16 eager|compile|autotune STEPS
"""

import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional

import ssd300_torch
from measured import measure


class CifarBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.stride, self.added = stride, outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, images):
        shortcut = images
        if self.added:  # the paper's option A: every other pixel, and zeros for the new channels
            shortcut = functional.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        out = functional.relu(self.norm1(self.conv1(images)), inplace=True)
        return functional.relu(self.norm2(self.conv2(out)) + shortcut, inplace=True)


def resnet20():
    """He et al. 2016 (arXiv:1512.03385), section 4.2, n = 3, without a ReLU after the first convolution, as in
    tf_cnn_benchmarks and so in ours."""
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)], 16
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        for number in range(3):
            layers.append(CifarBlock(inputs, outputs, stride if number == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def build(name):
    """(network, side of its images, number of classes)"""
    if name == "resnet20":
        return resnet20(), 32, 10
    if name == "ssd300":
        return ssd300_torch.Ssd300(), 300, ssd300_torch.CLASSES
    if name == "inception_v3":  # our network has no auxiliary classifier in training either
        return torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False), 299, 1000
    return torchvision.models.get_model(name, weights=None), 224, 1000


def main(name, batch, dtype, mode, steps):
    network, size, classes = build(name)
    network = network.to(memory_format=torch.channels_last).train()
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    boxes = ssd300_torch.targets(batch) if name == "ssd300" else None
    labels = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, weight_decay=1e-4)
    modes = {"compile": "default", "autotune": "max-autotune"}
    run = torch.compile(network, mode=modes[mode]) if mode in modes else network

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            outputs = run(images)
        loss = ssd300_torch.loss_of(*outputs, *boxes) if boxes else functional.cross_entropy(outputs.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    measure(batch, steps, step)


if __name__ == "__main__":
    if len(sys.argv) != 6 or sys.argv[3] not in ("fp32", "bf16") or sys.argv[4] not in ("eager", "compile", "autotune"):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
