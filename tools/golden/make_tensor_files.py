#!/usr/bin/env python3
"""Writes small files of tensors with torch.save and safetensors, for tensor_file_test.cpp:
make_tensor_files.py trainyard/formats/testdata

Needs torch and safetensors. All hold the same numbers under the same names: `expected` below.
"""
import collections
import os
import sys

import safetensors.torch
import torch

folder = sys.argv[1]
ramp = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 8 - 1
expected = {
    "float32": ramp,
    "float64": ramp.double(),
    "float16": ramp.half(),
    "bfloat16": ramp.bfloat16(),
    "int64": torch.arange(-3, 3),
    "int32": torch.arange(-3, 3, dtype=torch.int32),
    "int16": torch.arange(-3, 3, dtype=torch.int16),
    "int8": torch.arange(-3, 3, dtype=torch.int8),
    "uint8": torch.arange(250, 256, dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(7.5),
    "empty": torch.zeros(0, 4),
}
safetensors.torch.save_file(expected, os.path.join(folder, "tensors.safetensors"), metadata={"format": "pt", "made_by": "a test"})
# Views: another order of dimensions, and a part of what is saved.
views = dict(expected, transposed=ramp.permute(2, 0, 1), part=ramp.reshape(-1)[5:9])
torch.save(collections.OrderedDict(views), os.path.join(folder, "tensors.pth"))

# What training scripts save: the state dict of a data-parallel model beside other things.
model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
with torch.no_grad():
    for i, value in enumerate(model.state_dict().values()):
        value.fill_(i + 0.5) if value.is_floating_point() else value.fill_(9)
torch.save({"epoch": 3, "lr": 0.25, "best": -(2**40), "names": ["a", None, True],
            "state_dict": torch.nn.DataParallel(model).state_dict()}, os.path.join(folder, "checkpoint.pth"))
torch.save({"weight": torch.nn.Parameter(torch.tensor([1.0, 2.0]))}, os.path.join(folder, "parameter.pth"))
# Refused: tensors under a key that says nothing, code, and the format from before 1.6.
torch.save({"epoch": 3, "net": {"weight": torch.ones(2)}}, os.path.join(folder, "other_key.pth"))
torch.save(model, os.path.join(folder, "module.pth"))
torch.save({"weight": torch.ones(2)}, os.path.join(folder, "legacy.pth"), _use_new_zipfile_serialization=False)
