#!/usr/bin/env python3
"""Carries weights between torchvision and the program, both ways, and compares logits:
check_torchvision_weights.py build/trainyard [MODEL...]

Needs torch, torchvision and safetensors. Each model gets random weights and random statistics; torchvision's .pth and
safetensors go into `trainyard predict`, `trainyard export` of either goes into torchvision with strict=True. Ends with 1
when logits differ by more than 1e-4 of the largest.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import torchvision

DEFAULT = ["resnet18", "mobilenet_v2", "densenet121", "squeezenet1_1", "efficientnet_b0", "vgg11_bn", "shufflenet_v2_x1_0", "alexnet",
           "convnext_tiny", "vit_b_16", "swin_t", "googlenet", "inception_v3", "ssd300_vgg16"]
DETECTOR = "ssd300_vgg16"


def randomize(network):
    generator = torch.Generator().manual_seed(7)
    for name, value in network.state_dict().items():
        if name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        elif name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=generator) / 10)
        elif value.is_floating_point() and value.min() == value.max():
            # Zeros would hide what they are multiplied with, ones and layer scales near zero that they are left out.
            value.add_(torch.randn(value.shape, generator=generator) / 10)


def make(model, **options):
    """With auxiliary classifiers, as files have them, or `aux_logits=False`."""
    if model == DETECTOR:
        return torchvision.models.detection.ssd300_vgg16(weights=None, weights_backbone=None).eval()
    if model in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    else:
        options.clear()
    return torchvision.models.get_model(model, weights=None, **options).eval()


def outputs_of(network, model, images):
    """The logits; of a detector the rows that its heads predict: offsets, then scores."""
    if model != DETECTOR:
        return network(images)
    heads = network.head(list(network.backbone(images).values()))
    return torch.cat([heads["bbox_regression"], heads["cls_logits"]], 2)


def main(program, models):
    worst = 0
    for model in models:
        network = make(model)
        randomize(network)
        size = {"inception_v3": 299, DETECTOR: 300}.get(model, 224)
        flags = ["--num_classes=91"] if model == DETECTOR else []
        images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            expected = outputs_of(network, model, images).numpy()
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)
            np.save(path("x.npy"), images.numpy())
            torch.save(network.state_dict(), path("w.pth"))
            safetensors.torch.save_file(network.state_dict(), path("w.safetensors"))
            for weights in ("w.pth", "w.safetensors"):
                subprocess.run([program, "predict", f"--model=torchvision/{model}", f"--weights={path(weights)}",
                                f"--input={path('x.npy')}", f"--output={path('y.npy')}", *flags], check=True, stdout=subprocess.DEVNULL)
                error = np.abs(np.load(path("y.npy")) - expected).max() / np.abs(expected).max()
                worst = max(worst, error)
                print(f"{model:20} {weights:14} error {error:.1e} of the largest logit")
            subprocess.run([program, "export", f"--model=torchvision/{model}", f"--weights={path('w.pth')}",
                            f"--output={path('back.safetensors')}", *flags], check=True, stdout=subprocess.DEVNULL)
            back = make(model, aux_logits=False)
            back.load_state_dict(safetensors.torch.load_file(path("back.safetensors")), strict=True)
            with torch.no_grad():
                assert torch.equal(outputs_of(back, model, images), torch.from_numpy(expected)), f"{model}: other logits after the way back"
    return 0 if worst <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or DEFAULT))
