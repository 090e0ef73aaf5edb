#!/usr/bin/env python3
"""Writes what PyTorch's ConvTranspose2d and Upsample compute, with gradients, for upsampling_layers_test.cpp:
upsampling_layers.py > trainyard/nn/testdata/upsampling_layers.txt

Needs torch (benchmarks/peers/requirements.txt). Each line: case, what it is, then its numbers.
"""
import torch
from torch.nn import ConvTranspose2d, Upsample

torch.set_default_dtype(torch.float64)

# By name: the image [C, H, W] and the layer, as in the test.
CASES = {
    "unet": ((4, 2, 3), ConvTranspose2d(4, 3, 2, stride=2)),
    "dcgan": ((3, 3, 2), ConvTranspose2d(3, 2, 4, stride=2, padding=1, bias=False)),
    "uneven": ((2, 3, 2), ConvTranspose2d(2, 3, (3, 2), stride=(3, 2), padding=(1, 0), output_padding=(2, 1))),
    "groups": ((4, 2, 3), ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)),
    "dilated": ((2, 3, 3), ConvTranspose2d(2, 2, 3, padding=(1, 2), dilation=(1, 2), bias=False)),
    "nearest": ((2, 2, 3), Upsample(scale_factor=2, mode="nearest")),
    "nearest3": ((1, 3, 2), Upsample(scale_factor=3, mode="nearest")),
    "bilinear": ((2, 3, 4), Upsample(scale_factor=2, mode="bilinear", align_corners=False)),
    "bilinear3": ((1, 2, 3), Upsample(scale_factor=3, mode="bilinear", align_corners=False)),
}
BATCH = 2


def wave(shape, step):
    """sin(step * i + 0.3) for element i, rows last."""
    return torch.sin(torch.arange(torch.Size(shape).numel()) * step + 0.3).reshape(shape)


def main():
    for name, (image, layer) in CASES.items():
        for variable, step in zip(layer.parameters(), (1.3, 2.1)):
            variable.data = wave(variable.shape, step)
        x = wave((BATCH, *image), 0.7).requires_grad_()
        y = layer(x)
        y.backward(wave(y.shape, 0.9))
        rows = {"output": y, "input": x.grad}
        rows.update((variable, value.grad) for variable, value in layer.named_parameters())
        for what, values in rows.items():
            print(name, what, *(f"{value:.15g}" for value in values.flatten().tolist()))


main()
