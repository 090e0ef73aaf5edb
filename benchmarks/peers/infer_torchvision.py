#!/usr/bin/env python3
"""Runs a torchvision network forward in evaluation mode on one batch of synthetic images, again and again, on all cores
of the process; prints one JSON line: {"images_per_sec", "latency_ms": {"p50", "p90", "p99", "max"}, "peak_rss_mib",
"first_step_done_s"}. Percentiles are by nearest rank, as ours.

usage: infer_torchvision.py MODEL BATCH fp32|bf16 eager|compile|onnxruntime STEPS
"""

import io
import json
import os
import resource
import sys
import time

import torch
import torchvision

from measured import WARM_UP_STEPS, seconds_since_start


def onnx_runtime(network, images):
    """A function that runs the network's export with ONNX Runtime's CPU provider, all optimizations on."""
    import onnxruntime

    exported = io.BytesIO()
    torch.onnx.export(network, (images,), exported, dynamo=False, input_names=["images"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(exported.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {"images": images.numpy()}
    return lambda: session.run(None, feed)[0]


def runner(name, batch, dtype, mode):
    network = torchvision.models.get_model(name, weights=None).eval()
    size = 299 if name == "inception_v3" else 224
    images = torch.randn(batch, 3, size, size)
    if mode == "onnxruntime":
        return onnx_runtime(network, images)
    network = network.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    if dtype == "bf16":
        network, images = network.bfloat16(), images.bfloat16()
    run = torch.compile(network) if mode == "compile" else network
    return lambda: run(images)


def percentile(ascending, percent):
    return ascending[-(-percent * len(ascending) // 100) - 1]


def main(name, batch, dtype, mode, steps):
    run, seconds = runner(name, batch, dtype, mode), []
    run()
    first_step_done = seconds_since_start()
    for _ in range(WARM_UP_STEPS - 1):
        run()
    for _ in range(steps):
        start = time.monotonic()
        run()
        seconds.append(time.monotonic() - start)
    milliseconds = sorted(1e3 * value for value in seconds)
    latency = {f"p{percent}": percentile(milliseconds, percent) for percent in (50, 90, 99)}
    print(json.dumps({"images_per_sec": batch * steps / sum(seconds),
                      "latency_ms": {**latency, "max": milliseconds[-1]},
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "first_step_done_s": first_step_done}), flush=True)


if __name__ == "__main__":
    modes = ("eager", "compile", "onnxruntime")
    if len(sys.argv) != 6 or sys.argv[3] not in ("fp32", "bf16") or sys.argv[4] not in modes:
        sys.exit(__doc__)
    if sys.argv[3:5] == ["bf16", "onnxruntime"]:
        sys.exit("ONNX Runtime has no convolutions in bf16 for CPUs")
    with torch.inference_mode():
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
