#!/usr/bin/env python3
"""Fine-tunes torchvision's resnet18 as `trainyard train --finetune` does, in PyTorch: the same weights, images, crops, length and
rates, the head alone in the first tenth of the epochs, an early stop, the best epoch's weights. Prints one JSON line.

usage: fine_tune_torch.py WEIGHTS.safetensors DATA TEST SEED [fp32|bf16]     DATA has the folders train and val, TEST has val
"""

import copy
import json
import math
import random
import struct
import sys
import time

import torch
import torchvision
from torch import nn
from torchvision import transforms

SIDE, EVALUATION_SIDE = 64, 73
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RATE, HEAD_FACTOR, DECAY, SMOOTHING = 3e-4, 10, 0.05, 0.1


def read_safetensors(path):
    """The format: the length of a header, the header as JSON, the numbers."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(entry["shape"]).clone()
    return tensors


def length_for(images):
    """As fine_tuning_length() in trainyard/frontends/tf_cnn/fine_tuning.cpp."""
    batch = 2 ** int(math.log2(max(images // 12, 1)))
    epochs = min(max(-(-20000 // images), 10), 60)
    return min(max(batch, 8), 32 if images < 5000 else 64), epochs, max(5, (epochs + 3) // 4)


def main():
    weights, data, test, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    bf16 = len(sys.argv) > 5 and sys.argv[5] == "bf16"
    torch.manual_seed(seed)
    random.seed(seed)
    normalize = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augmented = transforms.Compose([transforms.RandomResizedCrop(SIDE, (0.35, 1)), transforms.RandomHorizontalFlip(), *normalize])
    plain = transforms.Compose([transforms.Resize(EVALUATION_SIDE), transforms.CenterCrop(SIDE), *normalize])
    train = torchvision.datasets.ImageFolder(f"{data}/train", augmented)
    batch, epochs, patience = length_for(len(train))
    loaders = {"train": torch.utils.data.DataLoader(train, batch, shuffle=True, num_workers=1, persistent_workers=True)}
    for name, folder in (("val", f"{data}/val"), ("test", f"{test}/val")):
        loaders[name] = torch.utils.data.DataLoader(torchvision.datasets.ImageFolder(folder, plain), 64, num_workers=1,
                                                    persistent_workers=name == "val")

    model = torchvision.models.resnet18(num_classes=len(train.classes))
    state = {name: value for name, value in read_safetensors(weights).items() if not name.startswith("fc.")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(name.startswith("fc.") or name.endswith("num_batches_tracked") for name in missing), missing
    model = model.to(memory_format=torch.channels_last)
    head = set(model.fc.parameters())
    backbone = [parameter for parameter in model.parameters() if parameter not in head]
    optimizer = torch.optim.AdamW([{"params": backbone, "lr": RATE}, {"params": list(head), "lr": RATE * HEAD_FACTOR}], weight_decay=DECAY)
    steps_per_epoch = len(train) / batch
    warm_up, steps = int(0.05 * epochs * steps_per_epoch), int(epochs * steps_per_epoch)

    def factor(step):
        if step < warm_up:
            return step / max(warm_up, 1)
        return 0.5 * (1 + math.cos(math.pi * min((step - warm_up) / max(steps - warm_up, 1), 1)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)

    def forward(images):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return model(images.to(memory_format=torch.channels_last)).float()

    def accuracy(name):
        model.eval()
        right = 0
        with torch.inference_mode():
            for images, labels in loaders[name]:
                right += int((forward(images).argmax(1) == labels).sum())
        return right / len(loaders[name].dataset)

    best, best_epoch, best_state, begin, seen = -1.0, 0, None, time.monotonic(), 0
    for epoch in range(epochs):
        head_alone = epoch < 0.1 * epochs
        for parameter in backbone:
            parameter.requires_grad_(not head_alone)
        model.train(not head_alone)  # frozen batch norms keep their statistics
        for images, labels in loaders["train"]:
            optimizer.zero_grad(set_to_none=True)
            loss_of(forward(images), labels).backward()
            optimizer.step()
            schedule.step()
            seen += len(labels)
        now = accuracy("val")
        if now > best:
            best, best_epoch, best_state = now, epoch, copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= patience:
            break
    seconds = time.monotonic() - begin
    model.load_state_dict(best_state)
    print(json.dumps({"program": "pytorch", "seed": seed, "epochs": epoch + 1, "val": best, "test": accuracy("test"),
                      "train_seconds": round(seconds, 1), "images_per_sec": round(seen / seconds, 1)}), flush=True)


main()
