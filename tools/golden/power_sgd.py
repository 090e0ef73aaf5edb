#!/usr/bin/env python3
"""Writes what PyTorch's powerSGD_hook makes of small gradients, in double precision, for power_sgd_test.cpp:
power_sgd.py > trainyard/parallel/testdata/power_sgd.txt

Needs torch (2.11) with gloo. Ranks are processes of this machine; the bucket is an object with the methods that the hook calls.

Each line: ranks, columns of the narrow matrices, then either "reduced", the step, and the elements of all gradients, or "error", the
rank, and the elements of the compressed ones after the last step. Gradients and the first second matrices are those of gradient()
and start(). Steps before kStartIter are all-reduced plainly and are not written: the hook wants two of them.
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hook

SHAPES = ((6, 8), (5, 2, 2, 3), (2, 2), (5,))  # the last two do not get smaller
COMPRESSED = 2
START_ITER, STEPS = 2, 6


def gradient(rank, step, tensor):
    shape = SHAPES[tensor]
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    whole = (i * i * 7919 + i * 131 + rank * 104729 + step * 15485863 + tensor * 32452843 + 17) % 2003 - 1001
    return (whole.double() / 1000).view(shape)


def start(tensor, columns, rank):
    j = torch.arange(columns, dtype=torch.int64)[:, None]
    k = torch.arange(rank, dtype=torch.int64)[None, :]
    return ((j * j * 31 + k * k * j * 17 + k * 5 + tensor * 7 + 3) % 11 - 5).double() / 4


class Bucket:
    def __init__(self, tensors):
        self.memory = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.shapes = [tensor.shape for tensor in tensors]

    def index(self):
        return 0

    def buffer(self):
        return self.memory

    def gradients(self):
        parts = self.memory.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes)]

    def is_last(self):
        return True


def numbers(values):
    return " ".join(f"{value:.17g}" for value in values.reshape(-1).tolist())


def run(rank, ranks, columns, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    state = hook.PowerSGDState(None, matrix_approximation_rank=columns, start_powerSGD_iter=START_ITER, min_compression_rate=1)
    # As if a step had been compressed before: the hook then takes these matrices and draws none.
    sizes = [(SHAPES[t][0], torch.Size(SHAPES[t][1:]).numel()) for t in range(COMPRESSED)]
    state.p_memory_dict[0] = torch.zeros(sum(n * columns for n, _ in sizes), dtype=torch.double)
    state.q_memory_dict[0] = torch.cat([start(t, m, columns).reshape(-1) for t, (_, m) in enumerate(sizes)])
    with open(os.path.join(folder, f"{rank}"), "w", encoding="ascii") as out:
        for step in range(STEPS):
            bucket = Bucket([gradient(rank, step, t) for t in range(len(SHAPES))])
            reduced = hook.powerSGD_hook(state, bucket).wait()
            if rank == 0 and step >= START_ITER:
                print(ranks, columns, "reduced", step, numbers(reduced), file=out)
        print(ranks, columns, "error", rank, numbers(state.error_dict[0][: sum(n * m for n, m in sizes)]), file=out)
    dist.barrier()
    dist.destroy_process_group()


def main():
    print(f"# tools/golden/power_sgd.py: torch {torch.__version__.split('+')[0]}")
    for ranks in (2, 3):
        for columns in (1, 2, 3):
            with tempfile.TemporaryDirectory() as folder:
                processes.spawn(run, (ranks, columns, os.path.join(folder, "meeting"), folder), nprocs=ranks)
                for rank in range(ranks):
                    with open(os.path.join(folder, f"{rank}"), encoding="ascii") as lines:
                        sys.stdout.write(lines.read())


if __name__ == "__main__":
    main()
