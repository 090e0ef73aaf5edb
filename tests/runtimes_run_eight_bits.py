#!/usr/bin/env python3
"""ONNX Runtime and OpenVINO compute in 8 bits what the library exports so: logits within one step of ours, 99 of 100.

Usage: tests/runtimes_run_eight_bits.py TEST_PROGRAM onnxruntime|openvino (trainyard_nn_test).
Skipped where no Python has the runtime: that of this script, .venv-tests and .venv-peers (scripts/setup --tests, --peers), or
$TRAINYARD_RUNTIME_PYTHON. A step is the scale of the logits; of logits in float, a 255th of their range.
"""
import glob
import os
import pathlib
import subprocess
import sys
import tempfile

SHARE, PACKAGES = 0.99, {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def python_with(package):
    here = pathlib.Path(__file__).resolve().parents[1]
    for python in (os.environ.get("TRAINYARD_RUNTIME_PYTHON"), here / ".venv-tests/bin/python", here / ".venv-peers/bin/python", sys.executable):
        if python and os.path.exists(python) and \
                subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0:
            return str(python)
    return None


def results_of(path, images, package):
    """(logits, how many operators ran on integers)"""
    if package == "onnxruntime":
        import onnx
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = path + ".optimized"
        options.log_severity_level = 3  # that such a file is for this machine alone
        # Without VNNI u8 times s8 is added in pairs of 16 bits, which saturate; so it is widened first.
        options.add_session_config_entry("session.x64quantprecision", "1")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        fused = onnx.load(options.optimized_model_filepath)
        return session.run(["logits"], {"input": images})[0], sum(node.op_type in ("QLinearConv", "QGemm") for node in fused.graph.node)
    import openvino
    core = openvino.Core()
    # Otherwise what stays in float is computed in bfloat16 where the processor has it.
    model = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    types = [operator.get_rt_info()["runtimePrecision"].astype(str) for operator in model.get_runtime_model().get_ops()
             if operator.get_rt_info()["layerType"].astype(str) in ("Convolution", "FullyConnected")]
    return model({"input": images})["logits"], sum(name in ("u8", "i8") for name in types)


def compare(folder, package):
    import numpy as np
    import onnx
    failed, paths = [], sorted(glob.glob(os.path.join(folder, "*.onnx")))
    if not paths:
        sys.exit("the test program wrote no model")
    for path in paths:
        stem = path[:-len(".onnx")]
        onnx.checker.check_model(path, full_check=True)
        model = onnx.load(path)
        layers = sum(node.op_type in ("Conv", "Gemm") for node in model.graph.node)
        images, expected = np.load(stem + ".input.npy"), np.load(stem + ".logits.npy")
        rounded = {tensor.name: tensor for tensor in model.graph.initializer}.get("fc.activation_scale")
        step = float(onnx.numpy_helper.to_array(rounded)) if rounded is not None else np.ptp(expected) / 255
        actual, integers = results_of(path, images, package)
        steps = np.abs(actual - expected) / step
        share = np.mean(steps <= 1.001)
        print(f"{os.path.basename(stem)}: {100 * share:.2f} % of {steps.size} logits within a step, the farthest {steps.max():.2f} steps off, "
              f"the mean {steps.mean():.4f}; {integers} of {layers} layers on integers")
        if not share >= SHARE:
            failed.append(f"{os.path.basename(stem)}: {100 * share:.2f} % of the logits within a step")
        if integers == 0:
            failed.append(f"{os.path.basename(stem)}: no layer ran on integers")
    return failed


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--compare":
        failed = compare(sys.argv[2], sys.argv[3])
        sys.exit("\n".join(failed) if failed else 0)
    program, package = sys.argv[1:]
    python = python_with(package)
    if python is None:
        print(f"skipped: needs {PACKAGES[package]} (TRAINYARD_RUNTIME_PYTHON names a Python with it)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "--gtest_filter=OnnxEightBits.Write"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TRAINYARD_ONNX_EIGHT_BITS_DIR": folder})
        sys.exit(subprocess.run([python, __file__, "--compare", folder, package], check=False).returncode)


main()
