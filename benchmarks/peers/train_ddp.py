#!/usr/bin/env python3
"""Trains with PyTorch's DistributedDataParallel over gloo, processes of one thread, on synthetic images; prints one JSON
line: {"images_per_sec": of all ranks together, over all timed steps}.

usage: train_ddp.py MODEL BATCH_A_RANK RANKS STEPS
"""

import json
import os
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn import functional

from all_reduce_torch import free_port
from measured import WARM_UP_STEPS
from train_torchvision import build


def run(rank, port, name, batch, ranks, steps):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    network, size, classes = build(name)
    network = torch.nn.parallel.DistributedDataParallel(network.to(memory_format=torch.channels_last).train(), gradient_as_bucket_view=True)
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (batch,))
    optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, weight_decay=1e-4)
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            torch.distributed.barrier()
            start = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
    torch.distributed.barrier()
    if rank == 0:
        print(json.dumps({"images_per_sec": ranks * batch * steps / (time.monotonic() - start)}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    _, model, *numbers = sys.argv
    batch_a_rank, ranks, steps = map(int, numbers)
    torch.multiprocessing.spawn(run, (free_port(), model, batch_a_rank, ranks, steps), ranks)
