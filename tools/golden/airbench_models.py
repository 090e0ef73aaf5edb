"""What airbench's networks compute, for trainyard/models/airbench/airbench_test.cpp.

usage: airbench_models.py SCRIPTS FOLDER     (torch)

SCRIPTS holds airbench94_muon.py and airbench96.py of airbench's repository (the latter from its folder legacy). Their
network classes are taken from the scripts themselves, without what trains them: FOLDER/<model>.txt has the lines that
torchvision_models.py explains, for the same formula of weights and images, in double. The scales of batch norms are
ones, as the scripts keep them.
"""

import ast
import os
import sys

import torch
from torch import nn

import drawn

CLASSES, BATCH, SIZE = 10, 2, 32
SCRIPTS = {"airbench94": ("airbench94_muon.py", {"BatchNorm", "Conv", "ConvGroup", "CifarNet"}),
           "airbench96": ("airbench96.py", {"hyp", "Flatten", "Mul", "BatchNorm", "Conv", "ConvGroup", "make_net"})}


def definitions(path, wanted):
    """The script's classes, functions and constants of those names."""
    with open(path) as file:
        tree = ast.parse(file.read())
    def name_of(statement):
        return getattr(statement, "name", None) or (
            statement.targets[0].id if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) else None)
    tree.body = [statement for statement in tree.body if name_of(statement) in wanted]
    names = {"torch": torch, "nn": nn, "F": nn.functional}
    exec(compile(tree, path, "exec"), names)
    return names


def write(scripts, folder, model_name):
    script, wanted = SCRIPTS[model_name]
    names = definitions(os.path.join(scripts, script), wanted)
    nn.Module.cuda = lambda self: self  # the networks are built on a GPU there
    model = (names["CifarNet"] if "CifarNet" in names else names["make_net"])().double()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            scale = "norm" in name and name.endswith("weight")
            if tensor.is_floating_point() and not scale:
                tensor.copy_(torch.from_numpy(drawn.start(name, tuple(tensor.shape))))
    images = torch.from_numpy(drawn.draw("images", (BATCH, 3, SIZE, SIZE)))
    with torch.no_grad():
        logits = model.eval()(images)
    trained = [(name, p) for name, p in model.named_parameters() if not ("norm" in name and name.endswith("weight"))]
    for _, parameter in trained:
        parameter.requires_grad = True
    lines = ["parameters %d" % sum(p.numel() for _, p in trained), "size %d" % SIZE] + drawn.output_lines(logits.numpy())
    outputs = model.train()(images)
    (outputs * torch.from_numpy(drawn.draw("cotangent", tuple(outputs.shape)))).mean().backward()
    for name, parameter in trained:
        shape = tuple(parameter.shape)
        probe = (parameter.grad * torch.from_numpy(drawn.draw("probe " + name, shape))).sum().item()
        lines.append("gradient %s [%s] %.6g %.6g" % (name, ", ".join(map(str, shape)), parameter.grad.norm().item(), probe))
    with open("%s/%s.txt" % (folder, model_name), "w") as file:
        file.write("\n".join(lines) + "\n")


for network in SCRIPTS:
    write(sys.argv[1], sys.argv[2], network)
