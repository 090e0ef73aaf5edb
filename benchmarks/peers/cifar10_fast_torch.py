#!/usr/bin/env python3
"""The network and the schedule of recipes/cifar10_fast.yaml (airbench94_muon's) in PyTorch on the CPU: seconds of a step, and
what a whole training takes by them; with --train the training itself, with accuracies by the epoch.

usage: cifar10_fast_torch.py CIFAR10_FOLDER [--threads=2] [--steps=6] [--bf16] [--compile] [--train] [--epochs=8] [--seed=0]

CIFAR10_FOLDER holds the data set as TFRecords of JPEGs. PyTorch keeps freed memory where it is told so (glibc's
MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_), which the script sets by starting itself again. Needs torch, pillow.
"""

import argparse
import glob
import io
import os
import sys
import time

KEPT = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "34359738368", "MALLOC_TOP_PAD_": "268435456"}
if any(os.environ.get(name) != value for name, value in KEPT.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})

import numpy
import torch
from PIL import Image
from torch.nn import functional

from fine_tune_data import photographs

BATCH, WIDTHS = 2000, (64, 256, 256)
MEAN = torch.tensor([125.307, 122.961, 113.8575]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([62.985, 62.0925, 66.708]).view(1, 3, 1, 1)


def load(pattern):
    """Normalized images [N, 3, 32, 32], and labels: CIFAR-10's classes are numbered by the alphabet."""
    pixels, names = [], []
    for name, jpeg in photographs(sorted(glob.glob(pattern))):
        pixels.append(numpy.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")))
        names.append(name)
    images = torch.from_numpy(numpy.stack(pixels)).permute(0, 3, 1, 2).float()
    classes = sorted(set(names))
    labels = torch.tensor([classes.index(name) for name in names])
    return ((images - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last), labels


class Network(torch.nn.Module):
    """Parameters by airbench's names with "_" for ".", and the forward pass."""

    def __init__(self, images):
        super().__init__()
        patches = images.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12).double()
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        components = (vectors / (values + 5e-4).sqrt()).T.float().reshape(12, 3, 2, 2)
        self.register_buffer("whiten", torch.cat([components, -components]))
        self.whiten_bias = torch.nn.Parameter(torch.empty(24).uniform_(-(12 ** -0.5), 12 ** -0.5))
        self.convolutions, self.norms = torch.nn.ParameterList(), torch.nn.ModuleList()
        channels = 24
        for width in WIDTHS:
            for inputs in (channels, width):
                weight = torch.empty(width, inputs, 3, 3)
                weight.uniform_(-((9 * inputs) ** -0.5), (9 * inputs) ** -0.5)
                torch.nn.init.dirac_(weight[:inputs])
                self.convolutions.append(torch.nn.Parameter(weight.contiguous(memory_format=torch.channels_last)))
                norm = torch.nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
                norm.weight.requires_grad = False
                self.norms.append(norm)
            channels = width
        head = torch.empty(10, channels).uniform_(-1, 1)
        self.head = torch.nn.Parameter(head / head.std())

    def forward(self, images, trains_whitening):
        bias = self.whiten_bias if trains_whitening else self.whiten_bias.detach()
        x = functional.gelu(functional.conv2d(images, self.whiten, bias))
        for i, (weight, norm) in enumerate(zip(self.convolutions, self.norms)):
            x = functional.conv2d(x, weight, padding=1)
            if i % 2 == 0:
                x = functional.max_pool2d(x, 2)
            x = functional.gelu(norm(x))
        return functional.linear(functional.max_pool2d(x, 3).flatten(1), self.head) / WIDTHS[-1]


def orthogonal(matrix):
    x = matrix / (matrix.norm() + 1e-7)
    turned = x.size(0) > x.size(1)
    x = x.T if turned else x
    for _ in range(3):
        product = x @ x.T
        x = 3.4445 * x + (-4.775 * product + 2.0315 * product @ product) @ x
    return x.T if turned else x


class Updates:
    """Muon of the convolutions, SGD with Nesterov's momentum of the others, with the sum of losses."""

    def __init__(self, network, epochs):
        self.network, self.steps, self.whitening_steps = network, 25 * epochs, 25 * 3
        biases = [network.whiten_bias] + [norm.bias for norm in network.norms]
        rates = [(parameter, 0.053) for parameter in biases] + [(network.head, 0.67)]
        self.sgd = torch.optim.SGD([{"params": [p], "lr": rate, "first": rate, "weight_decay": 2e-6 * BATCH / rate}
                                    for p, rate in rates], lr=0.1, momentum=0.85, nesterov=True)
        self.velocities = [torch.zeros_like(weight) for weight in network.convolutions]

    @torch.no_grad()
    def apply(self, step):
        rest = 1 - step / self.steps
        for i, group in enumerate(self.sgd.param_groups):
            group["lr"] = group["first"] * (rest if i > 0 else max(0.0, 1 - step / self.whitening_steps))
        self.sgd.step()
        for weight, velocity in zip(self.network.convolutions, self.velocities):
            velocity.mul_(0.6).add_(weight.grad)
            direction = weight.grad.add(velocity, alpha=0.6).reshape(len(weight), -1)
            weight.mul_(len(weight) ** 0.5 / weight.norm())
            weight.sub_(orthogonal(direction).view_as(weight), alpha=0.24 * rest)
        self.network.zero_grad(set_to_none=True)


def augmented(images, mirrored, epoch):
    """Alternating flips, then a shift by up to two pixels of the reflected image."""
    flip = (mirrored ^ (epoch % 2 == 1)).view(-1, 1, 1, 1)
    images = functional.pad(torch.where(flip, images.flip(3), images), (2, 2, 2, 2), "reflect")
    moved = torch.empty_like(images[:, :, :32, :32])
    shifts = torch.randint(0, 5, (2, len(images)))
    for y in range(5):
        for x in range(5):
            chosen = (shifts[0] == y) & (shifts[1] == x)
            moved[chosen] = images[chosen, :, y:y + 32, x:x + 32]
    return moved.contiguous(memory_format=torch.channels_last)


def six_views(network, images):
    def both(x):
        return (network(x, False) + network(x.flip(3), False)) / 2
    padded = functional.pad(images, (1, 1, 1, 1), "reflect")
    return both(images) / 2 + (both(padded[:, :, :32, :32]) + both(padded[:, :, 2:, 2:])) / 4


def accuracy(outputs_of, images, labels):
    with torch.no_grad():
        right = sum((outputs_of(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    return right / len(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    for name, value in (("--threads", 2), ("--steps", 6), ("--epochs", 8), ("--seed", 0)):
        parser.add_argument(name, type=int, default=value)
    for name in ("--bf16", "--compile", "--train"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    images, labels = load(os.path.join(options.data, "train-*"))
    network = Network(images[:5000]).to(memory_format=torch.channels_last)
    runs = torch.compile(network) if options.compile else network
    updates = Updates(network, options.epochs)
    test = load(os.path.join(options.data, "test-*")) if options.train else None
    mirrored = torch.rand(len(images)) < 0.5
    seconds, step = [], 0
    began = time.time()
    for epoch in range(options.epochs):
        order, total = torch.randperm(len(images)), 0.0
        network.train()
        for part in order[:len(images) // BATCH * BATCH].split(BATCH):
            start = time.time()
            batch = augmented(images[part], mirrored[part], epoch)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
                outputs = runs(batch, step < updates.whitening_steps)
            loss = functional.cross_entropy(outputs.float(), labels[part], label_smoothing=0.2, reduction="sum")
            loss.backward()
            updates.apply(step)
            step += 1
            total += loss.item() / BATCH
            seconds.append(time.time() - start)
            if not options.train and step == options.steps + 2:
                mean = sum(seconds[2:]) / options.steps
                print(f"{mean:.3f} s a step of {BATCH} images (mean of {options.steps} after 2), "
                      f"{mean * updates.steps / 60:.1f} minutes for {updates.steps} steps", flush=True)
                return
        if options.train:
            network.eval()
            plain = accuracy(lambda x: network(x, False), *test)
            print(f"epoch {epoch + 1}: loss {total / 25:.4f}, top-1 {plain:.4f}, {time.time() - began:.0f} s", flush=True)
    print(f"six views: top-1 {accuracy(lambda x: six_views(network, x), *test):.4f}", flush=True)


if __name__ == "__main__":
    main()
