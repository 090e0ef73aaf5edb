#!/usr/bin/env python3
"""A peer's side of `inference`: a network for inference that measures itself when it is told to.

usage: infer_side.py openvino|onnxruntime|torch|zentorch MODEL fp32|bf16|int8 BATCH FILE.onnx CACHE

FILE.onnx is the network that openvino and onnxruntime run; torch and zentorch build torchvision's MODEL. Of int8, a file in float is quantized first in
the peer's own way (NNCF's mixed preset; ONNX Runtime's static quantization by output channel) on eight random images, which is right for
speed, and kept in the folder CACHE, which is of this FILE and these versions alone; one that has QuantizeLinear already is run as it is.
Prints {} when it is ready, and answers each line "STREAMS SECONDS" with {"images_per_sec"}: the median of whole batches (of openvino with
two streams: of eight batches that share them).
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

WARM_UP_RUNS, LEAST_RUNS, BATCHES_TOGETHER, CALIBRATION_IMAGES = 2, 3, 8, 8


def images_per_sec(run, images, seconds):
    for _ in range(WARM_UP_RUNS):
        run()
    times, begin = [], time.monotonic()
    while len(times) < LEAST_RUNS or time.monotonic() - begin < seconds:
        start = time.monotonic()
        run()
        times.append(time.monotonic() - start)
    return images / statistics.median(times)


def thread_count():
    return len(os.sched_getaffinity(0))


def random_images(batch, shape):
    return np.random.default_rng(1).standard_normal([batch, *shape], dtype=np.float32)


class OpenVino:
    def __init__(self, model, dtype, batch, path, cache):
        import openvino
        self.core, self.batch, self.compiled_by_streams = openvino.Core(), batch, {}
        self.model = self.core.read_model(path)
        shape = self.model.inputs[0].get_partial_shape()
        size = [shape[axis].get_length() for axis in (1, 2, 3)]
        if dtype == "int8" and not any(operator.get_type_name() == "FakeQuantize" for operator in self.model.get_ops()):
            quantized_path = cache / f"{model}.nncf.xml"
            if not quantized_path.exists():
                import nncf
                images = random_images(CALIBRATION_IMAGES, size)
                calibration_images = nncf.Dataset([images[i:i + 1] for i in range(CALIBRATION_IMAGES)])
                quantized = nncf.quantize(self.model, calibration_images, subset_size=CALIBRATION_IMAGES, preset=nncf.QuantizationPreset.MIXED)
                openvino.save_model(quantized, quantized_path, compress_to_fp16=False)
            self.model = self.core.read_model(quantized_path)
        self.model.reshape([batch, *size])
        self.images = random_images(batch, size)
        # What an int8 network computes in float: in bfloat16 where the processor has it, as OpenVINO does by itself.
        self.settings = {"INFERENCE_NUM_THREADS": thread_count()}
        if dtype != "int8":
            self.settings["INFERENCE_PRECISION_HINT"] = {"fp32": "f32", "bf16": "bf16"}[dtype]

    def measure(self, streams, seconds):
        if streams not in self.compiled_by_streams:
            self.compiled_by_streams[streams] = self.core.compile_model(self.model, "CPU", {**self.settings, "NUM_STREAMS": streams})
        compiled = self.compiled_by_streams[streams]
        if streams == 1:
            request = compiled.create_infer_request()
            return images_per_sec(lambda: request.infer({0: self.images}), self.batch, seconds)
        import openvino
        queue = openvino.AsyncInferQueue(compiled, streams)

        def run_together():
            for _ in range(BATCHES_TOGETHER):
                queue.start_async({0: self.images})
            queue.wait_all()
        return images_per_sec(run_together, BATCHES_TOGETHER * self.batch, seconds)


class OnnxRuntime:
    def __init__(self, model, dtype, batch, path, cache):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = thread_count()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.batch = batch
        network_input = self.session.get_inputs()[0]
        size = network_input.shape[1:]
        if dtype == "int8":
            quantized_path = cache / f"{model}.onnxruntime.onnx"
            if not quantized_path.exists():
                self.quantize(path, quantized_path, network_input.name, size)
            self.session = onnxruntime.InferenceSession(str(quantized_path), options, providers=["CPUExecutionProvider"])
        self.feed = {network_input.name: random_images(batch, size)}

    @staticmethod
    def quantize(path, quantized_path, name, size):
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Reader(CalibrationDataReader):
            images = iter(random_images(CALIBRATION_IMAGES, size))

            def get_next(self):
                image = next(self.images, None)
                return None if image is None else {name: image[None]}
        quantize_static(path, str(quantized_path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True, weight_type=QuantType.QInt8,
                        activation_type=QuantType.QUInt8)

    def measure(self, _, seconds):
        return images_per_sec(lambda: self.session.run(None, self.feed), self.batch, seconds)


class Torch:
    BACKEND = "inductor"

    def __init__(self, model, dtype, batch, *_):
        import torch
        import torchvision
        network = torchvision.models.get_model(model, weights=None).eval().to(memory_format=torch.channels_last)
        images = torch.randn(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
        if dtype == "bf16":
            network, images = network.bfloat16(), images.bfloat16()
        compiled, self.batch, self.no_grad = torch.compile(network, backend=self.BACKEND), batch, torch.no_grad
        self.run = lambda: compiled(images)
        with self.no_grad():
            self.run()

    def measure(self, _, seconds):
        with self.no_grad():
            return images_per_sec(self.run, self.batch, seconds)


class Zentorch(Torch):
    BACKEND = "zentorch"

    def __init__(self, *arguments):
        import zentorch  # noqa: F401, which registers the backend
        super().__init__(*arguments)


def main(peer, model, dtype, batch, path, cache):
    network_of = {"openvino": OpenVino, "onnxruntime": OnnxRuntime, "torch": Torch, "zentorch": Zentorch}[peer]
    network = network_of(model, dtype, int(batch), path, pathlib.Path(cache))
    print("{}", flush=True)
    for line in sys.stdin:
        streams, seconds = line.split()
        print(json.dumps({"images_per_sec": network.measure(int(streams), float(seconds))}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 7 or sys.argv[1] not in ("openvino", "onnxruntime", "torch", "zentorch") or sys.argv[3] not in ("fp32", "bf16", "int8"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
