#!/usr/bin/env python3
"""PyTorch's rounding to 8 bits in a training, and its straight-through gradients.

    python3 tools/golden/fake_quantize.py > trainyard/nn/testdata/fake_quantize.txt

Activation i of 48 is 3 sin(7 i + 0.3), float32; the gradient of its rounded value is 1 + i / 8. A line of an activation: scale, zero
point, the 48 rounded values, the 48 gradients. Weights are [4, 3, 2, 2], number i of channel c is (c + 1)^2 sin(5 i + c) / 2; the
gradient of rounded weight j, over all channels, is 1 - j / 32. Scales are max |w| / 127 of each output channel. The last line, of the
weights: the 4 scales, the 48 rounded values, the 48 gradients.
"""
import torch


def shown(values):
    return " ".join(repr(v) for v in values.flatten().tolist())


print(f"# tools/golden/fake_quantize.py: PyTorch {torch.__version__}")
i = torch.arange(48, dtype=torch.float64)
for scale, zero_point in ((0.0234375, 128), (0.01, 0), (0.015, 77), (0.02, 255), (0.5, 9)):
    x = (3 * torch.sin(7 * i + 0.3)).float().requires_grad_()
    y = torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255)
    y.backward((1 + i / 8).float())
    print(repr(float(torch.tensor(scale))), zero_point, shown(y.detach()), shown(x.grad))
c, k = torch.arange(4, dtype=torch.float64)[:, None], torch.arange(12, dtype=torch.float64)[None]
weight = ((c + 1) ** 2 * torch.sin(5 * k + c) / 2).float().view(4, 3, 2, 2).requires_grad_()
scales = (weight.detach().abs().amax((1, 2, 3)).double() / 127).float()
rounded = torch.fake_quantize_per_channel_affine(weight, scales, torch.zeros(4, dtype=torch.int32), 0, -127, 127)
rounded.backward((1 - i / 32).float().view(4, 3, 2, 2))
print(shown(scales), shown(rounded.detach()), shown(weight.grad))
