"""torchvision's interpolate_embeddings(), for trainyard/train/checkpoint/position_embedding_test.cpp.

usage: position_embedding.py FILE     (torch and torchvision)

Number i of an embedding [1, 1 + patches, CHANNELS] is (37 i mod 101) / 50 - 1. Each line of FILE is

  HxW HxW NUMBER...       patches before and after, and the interpolated embedding

torchvision's function takes squares; a rectangle's numbers are those of its call of torch.nn.functional.interpolate.
"""
import sys

import torch
from torchvision.models.vision_transformer import interpolate_embeddings

CHANNELS, PATCH = 2, 16
CASES = [((4, 4), (7, 7)), ((7, 7), (3, 3)), ((2, 2), (5, 5)), ((5, 5), (1, 1)), ((4, 4), (3, 6)), ((3, 6), (5, 2))]


def embedding(rows, columns):
    count = CHANNELS * (1 + rows * columns)
    return torch.tensor([37 * i % 101 / 50 - 1 for i in range(count)]).reshape(1, -1, CHANNELS)


def interpolated(before, after):
    state = {"encoder.pos_embedding": embedding(*before)}
    if before[0] == before[1] and after[0] == after[1]:
        return interpolate_embeddings(PATCH * after[0], PATCH, state)["encoder.pos_embedding"]
    token, patches = state["encoder.pos_embedding"].split([1, before[0] * before[1]], dim=1)
    patches = patches.permute(0, 2, 1).reshape(1, CHANNELS, *before)
    patches = torch.nn.functional.interpolate(patches, size=after, mode="bicubic", align_corners=True)
    return torch.cat([token, patches.flatten(2).permute(0, 2, 1)], dim=1)


with open(sys.argv[1], "w") as file:
    for one, other in CASES:
        numbers = " ".join("%.7g" % x for x in interpolated(one, other).flatten().tolist())
        file.write("%dx%d %dx%d %s\n" % (*one, *other, numbers))
