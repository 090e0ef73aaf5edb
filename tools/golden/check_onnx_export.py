#!/usr/bin/env python3
"""Runs what `trainyard export --format=onnx` writes in ONNX Runtime:

check_onnx_export.py BUILD_FOLDER [--image_size=HxW] [MODEL...]

Needs onnx and onnxruntime. Every model of `trainyard models` by default, with random weights and statistics: ONNX's
checker in full, then the logits of one and of two images against `trainyard predict`. Ends with 1 when they differ by more
than 1e-4 of the largest.
"""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import random_weights


def main(build, names):
    program = os.path.join(build, "trainyard")
    sized = [names.pop(0)] if names and names[0].startswith("--image_size=") else []
    sides = [int(side) for side in sized[0].split("=")[1].split("x")] if sized else []
    worst = 0
    for model, dataset, size in random_weights.models(program, names):
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)
            random_weights.write(build, model, dataset, path("w.safetensors"))
            x = random_weights.images(*(sides or [size]))
            np.save(path("x.npy"), x)
            random_weights.run(program, "predict", model, dataset, path("w.safetensors"), *sized, f"--input={path('x.npy')}",
                               f"--output={path('y.npy')}")
            random_weights.run(program, "export", model, dataset, path("w.safetensors"), *sized, "--format=onnx",
                               f"--output={path('m.onnx')}")
            expected = np.load(path("y.npy"))
            onnx.checker.check_model(path("m.onnx"), full_check=True)
            session = onnxruntime.InferenceSession(path("m.onnx"), providers=["CPUExecutionProvider"])
            error = max(random_weights.error(session.run(["logits"], {"input": x[:batch]})[0], expected[:batch])
                        for batch in (1, 2))
            operators = len(onnx.load(path("m.onnx"), load_external_data=False).graph.node)
            print(f"{model:26} {dataset:9} {operators:5} operators, error {error:.1e} of the largest logit", flush=True)
            worst = max(worst, error) if error == error else float("inf")
    return 0 if worst <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
