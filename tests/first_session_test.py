#!/usr/bin/env python3
"""docs/howto/a_first_session.md: 300 photographs in four folders, and the commands that a newcomer types, with no flag but
model and data. The training, the evaluation, the predictions and the exported ONNX file agree to the last answer.

Usage: scripts/test_python tests/first_session_test.py PROGRAM [MODEL] (build/trainyard, lenet). Skips itself (77)
where the shared data are not there.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy
import onnx
import onnxruntime
from PIL import Image

from model_input import model_input

program = os.path.abspath(sys.argv.pop(1))
MODEL = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "lenet"
root = pathlib.Path(__file__).resolve().parent.parent
SAMPLE = pathlib.Path(os.environ.get("TRAINYARD_SHARED_DATA") or root.parent / "shared/data") / "imagenet_sample"
CLASSES = ["cold_bright", "cold_dark", "warm_bright", "warm_dark"]


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def validation_part(folder):
    """The validation images of class folders, by docs/formats/class_folders.md alone."""
    part = []
    for kind in sorted(path for path in folder.iterdir() if path.is_dir()):
        names = sorted((path.name for path in kind.iterdir()), key=lambda name: (fnv(name), name))
        part += [kind / name for name in names[:(len(names) + 2) // 5]]
    return part


def sort_photographs(folder):
    """The 300 photographs in four folders, by how warm and how bright they are."""
    with tempfile.TemporaryDirectory() as scratch:
        made = subprocess.run([program, "data", "convert", f"--from={SAMPLE}", "--to=folder", f"--output={scratch}/all"],
                              capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        photos = sorted(path for path in pathlib.Path(scratch, "all").rglob("*") if path.suffix in (".jpg", ".jpeg", ".png"))
        assert len(photos) == 300, len(photos)
        seen = []
        for number, photo in enumerate(photos):
            with Image.open(photo) as opened:
                red, green, blue = numpy.asarray(opened.convert("RGB").resize((16, 16)), float).mean((0, 1))
            seen.append((photo, f"{number:03}{photo.suffix}", red - blue, red + green + blue))
        warm, bright = (numpy.median([each[place] for each in seen]) for place in (2, 3))
        for photo, name, warmth, brightness in seen:
            kind = folder / f"{'warm' if warmth > warm else 'cold'}_{'bright' if brightness > bright else 'dark'}"
            kind.mkdir(parents=True, exist_ok=True)
            shutil.copy(photo, kind / name)


class FirstSession(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        sort_photographs(cls.root / "photos")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, *arguments):
        """As somebody does who is in the folder above the photographs."""
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=1800, cwd=self.root)
        self.assertEqual(done.returncode, 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done

    def test_all_agree_to_the_last_answer(self):
        validation = [str(path.relative_to(self.root)) for path in validation_part(self.root / "photos")]
        self.assertGreaterEqual(len(validation), 58)
        train = self.run_program("train", f"--model={MODEL}", "--data_dir=photos")
        run = f"runs/{MODEL.replace('/', '-')}-1"
        self.assertTrue((self.root / run).is_dir())
        self.assertIn(run, train.stderr)
        said = re.findall(r"Accuracy @ 1 = ([\d.]+).* \[(\d+) examples\]", train.stdout)
        self.assertGreater(len(said), 5, "an evaluation an epoch")
        self.assertEqual({int(count) for _, count in said}, {len(validation)})
        summary = json.loads((self.root / run / "run_summary.json").read_text())
        self.assertEqual((summary["data"]["train_examples"], summary["data"]["validation_examples"]),
                         (300 - len(validation), len(validation)))

        evaluation = self.run_program("eval", f"--train_dir={run}", "--data_dir=photos")
        (accuracy, count), = re.findall(r"Accuracy @ 1 = ([\d.]+).* \[(\d+) examples\]", evaluation.stdout)
        self.assertEqual((accuracy, count), said[-1], evaluation.stdout + evaluation.stderr)

        predicted = self.run_program("predict", f"--train_dir={run}", "--json", *validation)
        answers = [json.loads(line) for line in predicted.stdout.splitlines()]
        self.assertEqual([answer["image"] for answer in answers], validation)
        top = [answer["top"][0]["name"] for answer in answers]
        right = sum(name == pathlib.Path(image).parent.name for name, image in zip(top, validation))
        self.assertEqual(f"{right / len(validation):.4f}", accuracy)

        # As the end of the training says it.
        export = re.search(r"^Export: +trainyard (export .*)$", train.stdout, re.MULTILINE).group(1).split()
        self.run_program(*export)
        path = str(self.root / export[-1].split("=", 1)[1])
        said = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
        names, rule = json.loads(said["trainyard.classes"])["names"], json.loads(said["trainyard.input"])
        self.assertEqual(names, CLASSES)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        elsewhere = []
        for image in validation:
            (logits,) = session.run(None, {session.get_inputs()[0].name: model_input(rule, self.root / image)[None]})
            elsewhere.append(names[int(logits[0].argmax()) - json.loads(said["trainyard.classes"])["first_output"]])
        self.assertEqual(elsewhere, top)

        # The command that the training printed continues it.
        more = re.search(r"^Continue: +trainyard (train .*)$", train.stdout, re.MULTILINE).group(1).split()
        continued = self.run_program(*more)
        self.assertIn("continuing from", continued.stderr)
        self.assertEqual(sorted(path.name for path in (self.root / "runs").iterdir()), [pathlib.Path(run).name])
        # What the evaluation left is in the run's folder; next to it there is nothing new.
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["photos", "runs"])

    def test_a_training_that_is_killed_has_left_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            process = subprocess.Popen([program, "train", "--model=lenet", f"--data_dir={self.root / 'photos'}", "--num_epochs=1000",
                                        "--display_every=1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=elsewhere)
            for line in process.stdout:
                if "Running evaluation at global_step" in line:
                    break
            run = pathlib.Path(elsewhere, "runs", "lenet-1")
            end = time.monotonic() + 60

            def steps():
                names = (path.name.removeprefix("model.ckpt-") for path in run.glob("model.ckpt-*"))
                return sorted(int(name) for name in names if name.isdigit())

            while not steps() and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            saved = steps()
            self.assertTrue(saved)
            resumed = subprocess.run([program, "train", "--model=lenet", f"--data_dir={self.root / 'photos'}", f"--train_dir={run}",
                                      f"--num_batches={saved[-1] + 1}"], capture_output=True, text=True, timeout=300)
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            self.assertIn(f"continuing from {run}/model.ckpt-{saved[-1]}", resumed.stderr)


if __name__ == "__main__":
    if not SAMPLE.is_dir():
        print(f"skipped: needs the shared data {SAMPLE}")
        sys.exit(77)
    unittest.main()
