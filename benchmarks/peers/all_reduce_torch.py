#!/usr/bin/env python3
"""Times all-reduces of PyTorch's gloo, or of DeepSpeed through shared memory; prints one JSON line (exchange_sides.py says
what it means).

usage: all_reduce_torch.py build                                      builds DeepSpeed's, which is kept
       all_reduce_torch.py gloo|deepspeed RANKS BYTES:TIMES...       starts the ranks itself
"""

import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing

SECONDS_FOR_EACH = 1.5
LEAST_TIMES = 5


class Ranks:
    """One rank's part in all measurements. `all_reduce` sums a tensor in place."""

    def __init__(self, ranks, all_reduce):
        self.ranks, self.all_reduce = ranks, all_reduce

    def time_some(self, tensor, times):
        """seconds of `times` all-reduces one after the other, of the slowest rank"""
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(times):
            self.all_reduce(tensor)
        seconds = torch.tensor([time.perf_counter() - begin], dtype=torch.double)
        torch.distributed.all_reduce(seconds, torch.distributed.ReduceOp.MAX)
        return seconds.item()

    def measure(self, size, times):
        """[median of single ones, mean of many in a row]"""
        tensor = torch.ones(size // 4)
        self.all_reduce(tensor)
        if not torch.all(tensor == self.ranks):
            raise SystemExit("a wrong sum")
        tensor.zero_()  # zeros stay zeros, however often they are summed
        enough = SECONDS_FOR_EACH / (self.time_some(tensor, 2) / 2 + 1e-9)
        times = int(max(LEAST_TIMES, min(times, enough)))
        return [statistics.median(self.time_some(tensor, 1) for _ in range(times)), self.time_some(tensor, times) / times]


def all_reduce_of(backend):
    if backend == "gloo":
        return torch.distributed.all_reduce
    import deepspeed.comm

    deepspeed.comm.init_distributed("gloo", verbose=False)
    if not hasattr(torch.ops, "deepspeed") or not hasattr(torch.ops.deepspeed, "inference_all_reduce_"):
        raise SystemExit("DeepSpeed's shared-memory all-reduce was not built")
    return deepspeed.comm.inference_all_reduce


def run(rank, backend, ranks, port, sizes):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                      LOCAL_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo", DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    self = Ranks(ranks, all_reduce_of(backend))
    seconds = {size: self.measure(int(size), int(times)) for size, times in (text.split(":") for text in sizes)}
    if rank == 0:
        print(json.dumps({"seconds": seconds}), flush=True)
    torch.distributed.destroy_process_group()


def build():
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load(verbose=False)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    if sys.argv[1:] == ["build"]:
        sys.exit(build())
    if len(sys.argv) < 4 or sys.argv[1] not in ("gloo", "deepspeed"):
        sys.exit(__doc__)
    torch.multiprocessing.spawn(run, (sys.argv[1], int(sys.argv[2]), free_port(), sys.argv[3:]), int(sys.argv[2]))
