#!/usr/bin/env python3
"""Times the step of each optimizer on ResNet-50's parameters: ours, PyTorch's foreach and PyTorch's fused, in turns.

usage: optimizer_steps.py [--rounds 5] [--threads 2] [--clock wall|cpu] [--program build/trainyard_optim_bench] [OURS...]

Prints a table for docs/benchmarks.md: medians of the rounds, and for ours the time of a copy that moves as many bytes as
the step reads and writes. --clock=cpu measures processor time, which other programs hardly disturb, and is
for --threads=1. Needs torch (benchmarks/peers/requirements.txt). PyTorch fuses SGD, Adam and AdamW on the CPU.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

SECONDS = 1.0  # of steps in a round
OPTIONS = {"lr": 1e-6, "weight_decay": 1e-4}
MOMENTUM = {**OPTIONS, "momentum": 0.9}
# Ours -> PyTorch's of the same or the nearest formula.
PEERS = {
    "sgd": (torch.optim.SGD, OPTIONS, ("foreach", "fused")),
    "tf_momentum": (torch.optim.SGD, MOMENTUM, ("foreach", "fused")),
    "tf_nesterov": (torch.optim.SGD, {**MOMENTUM, "nesterov": True}, ("foreach", "fused")),
    "torch_momentum": (torch.optim.SGD, MOMENTUM, ("foreach", "fused")),
    "keras_momentum": (torch.optim.SGD, MOMENTUM, ("foreach", "fused")),
    "tf_rmsprop": (torch.optim.RMSprop, MOMENTUM, ("foreach",)),
    "torch_rmsprop": (torch.optim.RMSprop, MOMENTUM, ("foreach",)),
    "tf_adam": (torch.optim.Adam, OPTIONS, ("foreach", "fused")),
    "torch_adam": (torch.optim.Adam, OPTIONS, ("foreach", "fused")),
    "torch_adamw": (torch.optim.AdamW, OPTIONS, ("foreach", "fused")),
    "torch_nadam": (torch.optim.NAdam, OPTIONS, ("foreach",)),
    "lars": None,
    "lamb": None,
}


def resnet50_shapes():
    """161 parameters of 25,557,032 elements."""

    def convolution(outputs, inputs, kernel):
        return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]

    shapes, inputs, width = convolution(64, 3, 7), 64, 64
    for blocks in (3, 4, 6, 3):
        for block in range(blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            if block == 0:
                shapes += convolution(4 * width, inputs, 1)
            inputs = 4 * width
        width *= 2
    return shapes + [(1000, 2048), (1000,)]


def torch_milliseconds(make, options, form, now):
    parameters = [torch.nn.Parameter(torch.randn(shape) * 0.01) for shape in resnet50_shapes()]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer = make(parameters, **options, **{form: True})
    optimizer.step()
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 3:
        begin = now()
        optimizer.step()
        times.append(now() - begin)
    return 1e3 * statistics.median(times)


def our_numbers(program, name, threads, clock):
    """(milliseconds, multiple of the copy)"""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(
        [program, f"--benchmark_filter=^step/{name}/", f"--benchmark_min_time={SECONDS}", "--benchmark_format=json"],
        check=True, capture_output=True, text=True, env=environment).stdout
    result = json.loads(output)["benchmarks"][0]
    return (result["cpu_ms"], result["cpu_of_copy"]) if clock == "cpu" else (result["median_ms"], result["of_copy"])


def processor():
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return names[0] if names else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--program", default="build/trainyard_optim_bench")
    parser.add_argument("names", nargs="*", help="ours; all where none is named")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    now = time.process_time if arguments.clock == "cpu" else time.perf_counter
    names = arguments.names or list(PEERS)
    seen = {name: {"ours": [], "copies": [], "foreach": [], "fused": []} for name in names}
    for turn in range(arguments.rounds):
        for name in names:
            ours, copies = our_numbers(arguments.program, name, arguments.threads, arguments.clock)
            seen[name]["ours"].append(ours)
            seen[name]["copies"].append(copies)
            if PEERS[name] is None:
                continue
            make, options, forms = PEERS[name]
            for form in forms:
                seen[name][form].append(torch_milliseconds(make, options, form, now))
        print(f"round {turn + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)

    print(f"{processor()}, {arguments.threads} threads, {arguments.clock} time; PyTorch {torch.__version__}; load {os.getloadavg()[0]:.1f}\n")
    print("| optimizer | ours, ms | times a copy | foreach, ms | ratio | fused, ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        row = {key: statistics.median(values) if values else None for key, values in seen[name].items()}
        cells = [name, f"{row['ours']:.1f}", f"{row['copies']:.2f}"]
        for form in ("foreach", "fused"):
            cells += ["–", "–"] if row[form] is None else [f"{row[form]:.1f}", f"{row[form] / row['ours']:.2f}"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
