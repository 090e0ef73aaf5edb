#!/usr/bin/env python3
"""Trains a torchvision network, or resnet20 of CIFAR-10, on synthetic images on a GPU with PyTorch, as fast as its manual
says: channels_last, automatic mixed precision, cuDNN's benchmark mode, a fused optimizer; compiled, with CUDA graphs.
Prints one JSON line: {"images_per_sec", "peak_gpu_mib"}.

usage: train_torchvision_gpu.py MODEL BATCH fp16|bf16 eager|compile STEPS
"""

import json
import sys
import time

import torch
from torch.nn import functional

from train_torchvision import build

WARM_UP_STEPS = 10


def main(name, batch, dtype, mode, steps):
    torch.backends.cudnn.benchmark = True
    network, size, classes = build(name)
    network = network.cuda().to(memory_format=torch.channels_last).train()
    images = torch.randn(batch, 3, size, size, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (batch,), device="cuda")
    optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, weight_decay=1e-4, nesterov=True, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == "fp16")
    compute_type = torch.float16 if dtype == "fp16" else torch.bfloat16

    def forward(batch_images, batch_labels):
        with torch.autocast("cuda", dtype=compute_type):
            logits = network(batch_images)
        return functional.cross_entropy(logits.float(), batch_labels)

    run = torch.compile(forward, mode="reduce-overhead") if mode == "compile" else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        if mode == "compile":
            torch.compiler.cudagraph_mark_step_begin()
        scaler.scale(run(images, labels)).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = time.monotonic() - start
    print(json.dumps({"images_per_sec": batch * steps / seconds, "peak_gpu_mib": torch.cuda.max_memory_allocated() / 2**20}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 6 or sys.argv[3] not in ("fp16", "bf16") or sys.argv[4] not in ("eager", "compile"):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
