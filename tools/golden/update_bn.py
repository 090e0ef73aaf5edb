#!/usr/bin/env python3
"""Batch norm statistics after torch.optim.swa_utils.update_bn, in double.

    python3 tools/golden/update_bn.py > trainyard/train/testdata/update_bn.txt

The network: convolution 2 -> 4, 3x3, batch norm, ReLU, convolution 4 -> 3, 3x3 with stride 2, batch norm, mean, linear.
Element i of parameter p, in the order of its modules, is sin(0.37 i + p); pixel i of batch b is 2 cos(0.11 i + b) + b.
A line: buffer, its values.
"""
import torch

BATCHES = 3


def network():
    model = torch.nn.Sequential()
    model.add_module("conv1", torch.nn.Conv2d(2, 4, 3, padding=1, bias=False))
    model.add_module("bn1", torch.nn.BatchNorm2d(4))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("conv2", torch.nn.Conv2d(4, 3, 3, stride=2, padding=1, bias=False))
    model.add_module("bn2", torch.nn.BatchNorm2d(3))
    model.add_module("pool", torch.nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", torch.nn.Flatten())
    model.add_module("fc", torch.nn.Linear(3, 5))
    model.double()
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            values = torch.sin(0.37 * torch.arange(parameter.numel(), dtype=torch.float64) + place)
            parameter.copy_(values.view_as(parameter))
    return model


def batches():
    for batch in range(BATCHES):
        pixels = torch.arange(4 * 2 * 6 * 6, dtype=torch.float64)
        yield (2 * torch.cos(0.11 * pixels + batch) + batch).view(4, 2, 6, 6)


def main():
    print(f"# tools/golden/update_bn.py: PyTorch {torch.__version__}")
    model = network()
    torch.optim.swa_utils.update_bn(batches(), model)
    for name, buffer in model.named_buffers():
        if not name.endswith("num_batches_tracked"):
            print(name, *(repr(float(v)) for v in buffer))


if __name__ == "__main__":
    main()
