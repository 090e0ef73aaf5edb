"""What torchvision's models say of pictures, seen as torchvision sees them, for
trainyard/cli/published_input_test.cpp.

usage: torchvision_predictions.py FILE PICTURE...     (torch and torchvision; from the root of the tree)

Weights are those of drawn.py, the last layer's times a factor, so that probabilities are neither all alike nor 0 and 1. Images are
made by the transforms() of torchvision's own IMAGENET1K_V1 weights. A line of FILE is
  MODEL PICTURE CLASS PROBABILITY...     the five most probable classes
ResNet-18 sees all pictures, the others the first.
"""

import sys

import torch
import torchvision
from PIL import Image

import drawn

MODELS = {"resnet18": 0.4, "convnext_tiny": 1.0}  # factors of the last layer


def make(name):
    model = torchvision.models.get_model(name)
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(drawn.start(tensor_name, tuple(tensor.shape))))
        for tensor in list(model.parameters())[-2:]:
            tensor.mul_(MODELS[name])
    return model.eval()


def main():
    lines = []
    for name in MODELS:
        model = make(name)
        transforms = torchvision.models.get_model_weights(name).IMAGENET1K_V1.transforms()
        for path in sys.argv[2:] if name == "resnet18" else sys.argv[2:3]:
            image = transforms(Image.open(path).convert("RGB"))
            with torch.no_grad():
                probabilities = model(image[None]).softmax(1)[0]
            top = probabilities.topk(5)
            said = " ".join("%d %.6f" % (c, p) for c, p in zip(top.indices.tolist(), top.values.tolist()))
            lines.append("%s %s %s\n" % (name, path, said))
    with open(sys.argv[1], "w") as file:
        file.writelines(lines)


main()
