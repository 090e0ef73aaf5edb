#!/usr/bin/env python3
"""Writes what torch.optim.Muon and airbench's Muon make of a small bowl of matrices in 1,000 steps, for muon_test.cpp:
muon.py airbench94_muon.py > trainyard/optim/testdata/muon.txt

Needs torch 2.9 or later, and the file airbench94_muon.py of the repository KellerJordan/cifar10-airbench. Both originals
iterate in bfloat16: here their own sources are run with float64 in its place. The lines of "bfloat16" are those of
torch.optim.Muon as it is, for the first 101 steps.

Before the lines of a source there is one, "<source>: <our optimizer> <number> <value> ...", by which the test makes
ours. The others: source, step, all values after it, parameter by parameter.
"""
import inspect
import sys

import numpy as np
import torch
from torch.optim import _muon

STEPS, SKIPPED, SHOWN = 1000, 300, (0, 1, 2, 10, 100, 299, 300, 301, 999)
MOMENTUM, BETA1, BETA2, EPSILON, DECAY = 0.8, 0.85, 0.99, 1e-5, 0.02
# Name, shape, whether muon takes it as a matrix.
PARAMETERS = (("wide", (3, 7), True), ("tall", (5, 2), True), ("filters", (2, 1, 2, 2), True), ("head", (2, 3), False),
              ("bias", (3,), False))


def start(parameter, shape):
    return np.cos(1.7 * np.arange(np.prod(shape)) + parameter).reshape(shape)


def rate(step):
    return 0.02 / (1 + 0.01 * step)


def gradient(values, step, parameter):
    """Of the loss without weight decay: a bowl whose middle moves, and whose sides differ in steepness."""
    places = np.arange(values.size).reshape(values.shape) + 4.0 * parameter
    return (0.5 + 0.25 * np.cos(places)) * (values - np.sin(0.05 * step + places))


def in_double(source, former):
    assert former in source
    return source.replace(former, "torch.float64")


ORIGINAL = _muon._zeropower_via_newtonschulz


def torch_muon(patched):
    names = dict(vars(_muon))
    exec(in_double(inspect.getsource(ORIGINAL), "torch.bfloat16"), names)
    _muon._zeropower_via_newtonschulz = names["_zeropower_via_newtonschulz"] if patched else ORIGINAL
    return torch.optim.Muon


def airbench_muon(path):
    text = open(path).read()
    begin, end = text.index("def zeropower_via_newtonschulz5"), text.index("#############################################\n#                DataLoader")
    names = {"torch": torch}
    exec(text[begin:end].replace("G.bfloat16()", "G.double()"), names)
    return names["Muon"]


class Parameter:
    def __init__(self, values, make):
        self.shape = values.shape
        values = values.reshape(len(values), -1) if values.ndim > 2 else values  # torch's takes matrices alone
        self.tensor = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        self.optimizer = make([self.tensor])

    def value(self):
        return self.tensor.detach().numpy().reshape(self.shape).copy()

    def update(self, gradient, learning_rate):
        self.tensor.grad = torch.tensor(gradient.reshape(self.tensor.shape), dtype=torch.float64)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()


def run(source, ours, matrix, other, steps=STEPS):
    print(f"{source}: {ours}")
    parameters = [Parameter(start(p, shape), matrix if is_matrix else other)
                  for p, (_, shape, is_matrix) in enumerate(PARAMETERS)]
    for step in range(steps):
        for p, parameter in enumerate(parameters):
            if step != SKIPPED:
                parameter.update(gradient(parameter.value(), step, p), rate(step))
        if step in SHOWN:
            print(source, step, *(repr(float(v)) for parameter in parameters for v in parameter.value().ravel()))


def of(make, **options):
    return lambda parameters: make(parameters, lr=0.1, **options)


def run_all():
    sgd = of(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=DECAY)
    adamw = of(torch.optim.AdamW, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=DECAY)
    numbers = f"muon_momentum {MOMENTUM} weight_decay {DECAY}"
    means = f"beta1 {BETA1} beta2 {BETA2} epsilon {EPSILON}"
    muon = torch_muon(patched=True)
    for rate_name, index in (("original", 1), ("match_rms_adamw", 2), ("spectral_unclamped", 3)):
        run(f"torch_{rate_name}", f"muon_sgd {numbers} muon_rate {index}",
            of(muon, momentum=MOMENTUM, weight_decay=DECAY, adjust_lr_fn=rate_name), sgd)
    run("torch_with_adamw", f"muon_adamw {numbers} {means} muon_steps 4 muon_rate 1",
        of(muon, momentum=MOMENTUM, weight_decay=DECAY, ns_steps=4), adamw)
    airbench = airbench_muon(sys.argv[1])
    run("airbench", "muon_sgd muon_momentum 0.6 muon_steps 3 normalize_weights 1 muon_rate 0",
        of(airbench, momentum=0.6, nesterov=True), of(torch.optim.SGD, momentum=0.9, nesterov=True))
    run("bfloat16", f"muon_sgd {numbers} muon_rate 1",
        of(torch_muon(patched=False), momentum=MOMENTUM, weight_decay=DECAY), sgd, steps=101)


print(f"# tools/golden/muon.py: torch {torch.__version__}")
run_all()
