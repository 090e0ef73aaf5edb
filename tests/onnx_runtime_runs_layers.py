#!/usr/bin/env python3
"""ONNX's checker accepts, and ONNX Runtime computes, what the library exports: each layer of the conformance suite.

Usage: scripts/test_python tests/onnx_runtime_runs_layers.py TEST_PROGRAM (trainyard_nn_test).
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

# Of the largest number. Sums of float32 in another order.
BOUND = 1e-5


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--gtest_filter=OnnxLayers.Write"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "TRAINYARD_ONNX_DIR": folder})
        paths = sorted(glob.glob(os.path.join(folder, "*.onnx")))
        if not paths:
            sys.exit("the test program wrote no model")
        for path in paths:
            stem = path[:-len(".onnx")]
            onnx.checker.check_model(path, full_check=True)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            inputs, outputs = ({value.name: np.load(f"{stem}.{value.name}.npy") for value in values}
                               for values in (session.get_inputs(), session.get_outputs()))
            for batch in (1, len(inputs["input"])):
                results = session.run(list(outputs), {name: array[:batch] for name, array in inputs.items()})
                for (name, expected), actual in zip(outputs.items(), results):
                    error = np.abs(actual - expected[:batch]).max() / np.abs(expected).max()
                    if not error <= BOUND:
                        failed.append(f"{os.path.basename(stem)}, {name}, batch {batch}: "
                                      f"error {error:.1e} of the largest number")
    if failed:
        sys.exit("\n".join(failed))
    print(f"ONNX Runtime {onnxruntime.__version__} gives the outputs of {len(paths)} models")


main()
