#!/usr/bin/env python3
"""Detectors as a user has them: `trainyard predict` draws and lists what they find, COCO's numbers of its file are those of pycocotools,
and ONNX Runtime makes the same detections of the exported model.

Usage: scripts/test_python tests/detectors_test.py PROGRAM (build/trainyard).
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
from PIL import Image
from pycocotools.coco import COCO

from coco_cases import evaluated

MEAN, DEVIATION = numpy.float32((123.675, 116.28, 103.53)), numpy.float32((58.395, 57.12, 57.375))
CLASSES = 81
program = os.path.abspath(sys.argv.pop(1))


def run(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.stderr}")
    return done.stdout


def stronger_scores(path):
    """Makes the scores of a drawn model differ more: those of classes are what a head with a multiple of 81 outputs computes."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    numbers = bytearray(content)
    for name, entry in header.items():
        if name == "__metadata__" or len(entry["shape"]) != 4 or entry["shape"][0] % CLASSES != 0:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        numbers[begin:end] = (2 * numpy.frombuffer(content[begin:end], numpy.float32)).tobytes()
    path.write_bytes(bytes(numbers))


class Detectors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        draw = numpy.random.default_rng(1)
        self.pixels = []
        (self.root / "images").mkdir()
        for number in (7, 12, 30):
            small = draw.integers(0, 256, (12, 12, 3), dtype=numpy.uint8)
            picture = Image.fromarray(small).resize((300, 300), Image.BILINEAR)  # the models' size: no scaling
            picture.save(self.root / "images" / f"{number:012}.png")
            self.pixels.append(numpy.asarray(picture, dtype=numpy.float32))

    def weights_of(self, model):
        run("train", f"--model={model}", "--data_name=coco", "--synthetic", "--device=cpu", "--batch_size=1", "--num_batches=1",
            "--num_warmup_batches=0", "--init_learning_rate=0", f"--train_dir={self.root / model}")
        weights = self.root / f"{model}.safetensors"
        run("export", f"--train_dir={self.root / model}", f"--output={weights}")
        stronger_scores(weights)
        return weights

    def test_onnx_runtime_makes_the_same_detections(self):
        weights = self.weights_of("ssd300")
        found, drawn = self.root / "found.json", self.root / "drawn"
        lines = run("predict", f"--weights={weights}", "--json", "--top=200", f"--detections={found}", f"--drawn={drawn}",
                    str(self.root / "images")).splitlines()
        self.assertEqual(len(lines), 3)
        model = self.root / "model.onnx"
        run("export", f"--weights={weights}", "--format=onnx", f"--output={model}")
        onnx.checker.check_model(str(model), full_check=True)
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        images = numpy.stack([((picture - MEAN) / DEVIATION).transpose(2, 0, 1) for picture in self.pixels])
        boxes, scores, labels = session.run(["boxes", "scores", "labels"], {"input": images})
        self.assertEqual((boxes.shape, scores.shape, labels.shape, labels.dtype), ((3, 200, 4), (3, 200), (3, 200), numpy.int64))
        compared = 0
        for row, line in enumerate(json.loads(line) for line in lines):
            expected = line["detections"]
            count = int((scores[row] > 0).sum())
            self.assertEqual(count, len(expected), line["image"])
            self.assertTrue((labels[row, count:] == 0).all() and (boxes[row, count:] == 0).all())
            numpy.testing.assert_allclose(scores[row, :count], [each["score"] for each in expected], atol=2e-5)
            for place, each in enumerate(expected):
                ymin, xmin, ymax, xmax = boxes[row, place] * 300
                near = numpy.abs(numpy.subtract(each["box"], (xmin, ymin, xmax - xmin, ymax - ymin))).max() < 0.05
                compared += near
        self.assertGreater(compared, 20, "the weights detect too little for a comparison")
        total = sum(len(json.loads(line)["detections"]) for line in lines)
        self.assertGreater(compared, 0.97 * total, "scores that differ by rounding alone change places, others do not")
        # One image alone, in a batch of its own size.
        (alone,) = session.run(["scores"], {"input": images[1:2]})
        numpy.testing.assert_allclose(alone[0], scores[1], atol=2e-5)

        self.check_files(found, drawn)

    def check_files(self, found, drawn):
        detections = json.loads(found.read_text())
        self.assertEqual({each["image_id"] for each in detections}, {7, 12, 30})
        truth = {"images": [{"id": number, "file_name": f"{number:012}.png", "width": 300, "height": 300} for number in (7, 12, 30)],
                 "categories": [{"id": category, "name": "a"} for category in sorted({each["category_id"] for each in detections})],
                 "annotations": [{"id": number + 1, "image_id": each["image_id"], "category_id": each["category_id"],
                                  "bbox": each["bbox"], "area": each["bbox"][2] * each["bbox"][3], "iscrowd": 0}
                                 for number, each in enumerate(detections[::3])]}
        annotations = self.root / "truth.json"
        annotations.write_text(json.dumps(truth))
        printed = run("eval-detections", str(annotations), str(found), f"--output={self.root / 'numbers.json'}")
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            loaded = COCO(str(annotations))
        expected = evaluated(loaded, detections)
        self.assertEqual(list(json.loads((self.root / "numbers.json").read_text()).values()), expected)
        self.assertIn(f"maxDets=100 ] = {expected[0]:.3f}\n", printed)

        self.assertEqual(sorted(path.name for path in drawn.iterdir()), [f"{number:012}.png" for number in (7, 12, 30)])
        for number, before in zip((7, 12, 30), self.pixels):
            after = numpy.asarray(Image.open(drawn / f"{number:012}.png"), dtype=numpy.float32)
            self.assertEqual(after.shape, before.shape)
            self.assertGreater((after != before).any(2).sum(), 50)


if __name__ == "__main__":
    unittest.main(verbosity=2)
