#!/usr/bin/env python3
"""What an exported model says of its input is enough to use it elsewhere: for every --input_preprocessor, 700 photographs
become input by tests/model_input.py, which knows nothing but the ONNX file's metadata, and at least 99 % of the answers
are those of `trainyard predict`.

Usage: scripts/test_python tests/model_input_test.py PROGRAM (build/trainyard).
"""
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

from model_input import model_input

program = os.path.abspath(sys.argv.pop(1))
DATA = pathlib.Path(os.environ.get("TRAINYARD_SHARED_DATA") or pathlib.Path(__file__).resolve().parents[2] / "shared/data")
PHOTOGRAPHS = 700
SIZE, CLASSES = 64, 20
ORIENTATION = 0x0112
# The network has random weights; an image of these sizes is enough for it to tell photographs apart.
PRESETS = ["default", "official_models_imagenet", "resnet_n", "dali", "paddle", "tensorpack", "torchvision"]


def run(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stderr}"
    return done


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        else:
            at += 8 if key & 7 == 1 else 4


def one(data, number):
    return next(value for key, value in fields(data) if key == number)


def encoded_images(path):
    """The JPEGs of a TFRecord file in ImageNet's form."""
    with open(path, "rb") as file:
        while head := file.read(12):
            example = file.read(struct.unpack("<Q", head[:8])[0])
            file.read(4)
            for _, entry in fields(one(example, 1)):
                if one(entry, 1) == b"image/encoded":
                    yield one(one(one(entry, 2), 1), 1)


def photographs():
    """JPEGs: those of the data sets, then parts of them at other sizes and turned, until there are enough."""
    originals = [jpeg for path in sorted((DATA / "imagenet_sample").glob("*-of-*")) for jpeg in encoded_images(path)]
    originals += [path.read_bytes() for path in sorted((DATA / "coco_tiny").glob("*2017/*.jpg"))]
    yield from originals
    draw = random.Random(35)
    for _ in range(PHOTOGRAPHS - len(originals)):
        with Image.open(io.BytesIO(draw.choice(originals))) as opened:
            image = opened.convert("RGB")
        width, height = (draw.randint(side // 2, side) for side in image.size)
        left, top = (draw.randint(0, side - part) for side, part in zip(image.size, (width, height)))
        image = image.crop((left, top, left + width, top + height))
        scale = draw.uniform(0.4, 1.6)
        image = image.resize((max(8, int(width * scale)), max(8, int(height * scale))), Image.BILINEAR)
        if draw.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        exif = Image.Exif()
        if draw.random() < 0.5:
            exif[ORIENTATION] = draw.randint(2, 8)
        written = io.BytesIO()
        image.save(written, "JPEG", quality=92, exif=exif)
        yield written.getvalue()


class ModelInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.paths = []
        for number, jpeg in enumerate(photographs()):
            cls.paths.append(cls.root / f"{number:03}.jpg")
            cls.paths[-1].write_bytes(jpeg)
        assert len(cls.paths) == PHOTOGRAPHS
        (cls.root / "list.txt").write_text("".join(f"{path}\n" for path in cls.paths))
        for subset in ("train", "validation"):
            for i in range(4):
                path = cls.root / "data" / subset / "ab"[i % 2] / f"{i}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(cls.paths[i].read_bytes())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trained(self, name, *flags):
        """A safetensors file of a network that saw its images by these flags."""
        run("train", f"--data_dir={self.root / 'data'}", f"--train_dir={self.root / name}", "--batch_size=2",
            "--num_batches=1", "--device=cpu", f"--num_classes={CLASSES}", *flags)
        run("export", f"--train_dir={self.root / name}", f"--output={self.root / name}.safetensors")
        return self.root / f"{name}.safetensors"

    def inputs(self, rule):
        return numpy.stack([model_input(rule, path) for path in self.paths])

    def logits(self, path, inputs):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return numpy.concatenate([session.run(None, {name: inputs[i:i + 50]})[0] for i in range(0, len(inputs), 50)])

    def exported(self, weights):
        """The ONNX file and what it says of its input."""
        path = weights.with_suffix(".onnx")
        run("export", f"--weights={weights}", "--format=onnx", f"--output={path}")
        metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
        return path, json.loads(metadata["trainyard.input"])

    def spread(self, weights):
        """Weights whose answers differ from photograph to photograph: each output has mean 0 and deviation 1 over them.
        Returns the inputs, which that takes."""
        path, rule = self.exported(weights)
        inputs = self.inputs(rule)
        logits = self.logits(path, inputs)
        with safe_open(weights, "np") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()
        last = [name for name, tensor in tensors.items() if tensor.shape[:1] == (CLASSES,)]
        self.assertEqual(len(last), 2, "the last layer's weight and bias")
        for name in last:
            if tensors[name].ndim == 1:
                tensors[name] = tensors[name] - logits.mean(0)
            scale = logits.std(0).reshape(-1, *[1] * (tensors[name].ndim - 1))
            tensors[name] = (tensors[name] / scale).astype(numpy.float32)
        save_file(tensors, weights, metadata)
        return inputs

    def answers(self, weights):
        lines = run("predict", f"--weights={weights}", f"--images_from={self.root / 'list.txt'}", "--json", "--top=1")
        top = [json.loads(line)["top"][0] for line in lines.stdout.splitlines()]
        return numpy.array([answer["class"] for answer in top]), numpy.array([answer["probability"] for answer in top])

    def compare(self, name, *flags):
        weights = self.trained(name, *flags)
        inputs = self.spread(weights)
        path, rule = self.exported(weights)
        classes, probabilities = self.answers(weights)
        self.assertEqual(len(classes), PHOTOGRAPHS)
        counts = numpy.bincount(classes, minlength=CLASSES)
        self.assertLess(counts.max(), PHOTOGRAPHS / 3, "the answers are too much alike to compare anything")
        logits = self.logits(path, inputs)
        agree = (logits.argmax(1) == classes).mean()
        self.assertGreaterEqual(agree, 0.99, f"{name}: {rule}")
        shares = numpy.exp(logits - logits.max(1, keepdims=True))
        shares = (shares / shares.sum(1, keepdims=True)).max(1)
        self.assertLess(numpy.median(numpy.abs(shares - probabilities)), 0.002, name)
        print(f"{name}: {agree:.2%} of {PHOTOGRAPHS} answers agree", flush=True)
        return path, rule, classes

    def test_every_preset(self):
        for preset in PRESETS:
            with self.subTest(preset):
                path, rule, classes = self.compare(preset, "--model=lenet", "--data_name=imagenet",
                                                   f"--image_size={SIZE}", f"--input_preprocessor={preset}")
                self.assertTrue(rule["exif_orientation"])
                if preset != "default":
                    continue
                # The test tells rules apart: with proportions ignored, or turned images left alone, answers differ.
                for wrong in ({"eval_rule": "stretched"}, {"exif_orientation": False}):
                    other = self.logits(path, self.inputs({**rule, **wrong})).argmax(1)
                    self.assertLess((other == classes).mean(), 0.97, wrong)

    def test_nothing_scaled(self):
        self.compare("crop", "--model=lenet", "--data_name=imagenet", f"--image_size={SIZE}", "--resize_method=crop")

    def test_other_sizes_and_methods(self):
        self.compare("wide", "--model=lenet", "--data_name=imagenet", "--image_size=48x80",
                     "--input_preprocessor=torchvision", "--resize_method=area", "--scaled_decode", "--noexif_orientation")

    def test_small_images(self):
        self.compare("small", "--model=resnet20", "--data_name=cifar10", "--input_preprocessor=default")


if __name__ == "__main__":
    if not (DATA / "imagenet_sample").is_dir() or not (DATA / "coco_tiny").is_dir():
        print(f"skipped: needs the shared data {DATA}")
        sys.exit(77)
    unittest.main()
