#!/usr/bin/env python3
"""What timm's param_groups_layer_decay() multiplies the learning rate of each parameter by.

    python3 tools/golden/layer_decay.py > trainyard/frontends/testdata/layer_decay.txt

Needs timm. A line: model, parameter, factor. Names are ours, which are torchvision's; `grouped` is a model for which
timm has no groups of its own: 30 parameters and a head.
"""
import re

import timm
import torch
from timm.optim._param_groups import param_groups_layer_decay

DECAY = 0.65


def vit(name):
    name = name.replace("cls_token", "class_token").replace("pos_embed", "encoder.pos_embedding")
    name = name.replace("patch_embed.proj.", "conv_proj.")
    name = re.sub(r"^blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1.", name)
    name = re.sub(r"^norm\.", "encoder.ln.", name)
    name = re.sub(r"^head\.", "heads.head.", name)
    for theirs, ours in (("norm1", "ln_1"), ("norm2", "ln_2"), ("attn.qkv.", "self_attention.in_proj_"),
                         ("attn.proj", "self_attention.out_proj"), ("mlp.fc1", "mlp.0"), ("mlp.fc2", "mlp.3")):
        name = name.replace("." + theirs, "." + ours)
    return name


def convnext(name):
    name = re.sub(r"^stem\.", "features.0.", name)
    name = re.sub(r"^stages\.(\d+)\.downsample\.", lambda m: f"features.{2 * int(m[1])}.", name)
    name = re.sub(r"^stages\.(\d+)\.blocks\.(\d+)\.", lambda m: f"features.{2 * int(m[1]) + 1}.{m[2]}.", name)
    name = name.replace("head.norm", "classifier.0").replace("head.fc", "classifier.2")
    for theirs, ours in (("gamma", "layer_scale"), ("conv_dw", "block.0"), ("norm", "block.2"),
                         ("mlp.fc1", "block.3"), ("mlp.fc2", "block.5")):
        name = name.replace("." + theirs, "." + ours)
    return name


def grouped():
    model = torch.nn.Module()
    model.pretrained_cfg = {"classifier": "head"}
    for layer in range(15):
        model.add_module(f"layer_{layer}", torch.nn.Linear(2, 2))
    model.head = torch.nn.Linear(2, 2)
    return model


def show(title, model, name_of):
    factors = {}
    for group in param_groups_layer_decay(model, layer_decay=DECAY):
        for parameter in group["params"]:
            factors[id(parameter)] = group["lr_scale"]
    for name, parameter in model.named_parameters():
        print(title, name_of(name), repr(float(factors[id(parameter)])))


print(f"# tools/golden/layer_decay.py: timm {timm.__version__}, layer_decay={DECAY}")
show("vit_b_16", timm.create_model("vit_base_patch16_224"), vit)
show("convnext_tiny", timm.create_model("convnext_tiny"), convnext)
show("torchvision/resnet50", timm.create_model("resnet50"), lambda name: name)
show("grouped", grouped(), lambda name: name)
