#!/usr/bin/env python3
"""The program as a user runs it: its files open in other programs' readers, and signals end it as documented.

Usage: scripts/test_python tests/program_test.py PROGRAM (build/trainyard).
"""
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

program = os.path.abspath(sys.argv.pop(1))


def run(*arguments, **kwargs):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **kwargs)


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.data = cls.root / "shapes"
        made = run("data", "make-shapes", f"--output={cls.data}", "--train_count=96", "--validation_count=24")
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def flags(self, train_dir, *more):
        return ["train", "--model=resnet20", f"--data_dir={self.data}", "--device=cpu", "--batch_size=8", "--num_batches=6",
                "--num_warmup_batches=0", "--init_learning_rate=0.05", "--print_training_accuracy",
                "--save_summaries_steps=2", "--summary_verbosity=1", f"--train_dir={self.root / train_dir}", *more]

    def test_files_open_in_other_readers(self):
        done = run(*self.flags("files", "--eval_during_training_every_n_steps=3", "--eval_exact"))
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.root / "files"

        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        trained = [row for row in rows if row["phase"] == "train"]
        self.assertEqual([row["global_step"] for row in trained], [2, 4, 6])
        shares = [row[name] for row in trained for name in
                  ("input_share", "compute_share", "communication_share", "update_share")]
        self.assertTrue(all(0 <= share <= 1 for share in shares), shares)
        self.assertAlmostEqual(sum(shares), len(trained), delta=0.02 * len(trained))

        table = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
        self.assertEqual(len(table), len(rows))
        for row, cells in zip(rows, table):
            for name, value in row.items():
                self.assertEqual(cells[name], value) if isinstance(value, str) else self.assertAlmostEqual(
                    float(cells[name]), value, delta=1e-3)

        events = EventAccumulator(str(folder))
        events.Reload()
        for tag in ("learning_rate", "total_loss"):
            shown = [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]
            self.assertEqual([step for step, _ in shown], [2, 4, 6])
            for (_, value), row in zip(shown, trained):
                self.assertAlmostEqual(value, row[tag], places=5)
        accuracy = events.Scalars("eval/Accuracy@1")
        self.assertEqual([scalar.step for scalar in accuracy], [3, 6])
        self.assertAlmostEqual(accuracy[-1].value, [row for row in rows if row["phase"] == "eval"][-1]["top_1_accuracy"],
                               places=6)

        summary = json.loads((folder / "run_summary.json").read_text())
        self.assertEqual((summary["model"], summary["global_step"]), ("resnet20", 6))

    def test_a_signal_saves_and_the_same_command_goes_on(self):
        flags = self.flags("signal", "--num_batches=100000", "--display_every=1")
        process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("2\timages/sec"):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, errors)
        (saved,) = [name for name in os.listdir(self.root / "signal") if name.startswith("model.ckpt-")]
        step = int(saved.rsplit("-", 1)[1])
        self.assertGreaterEqual(step, 2)
        resumed = run(*self.flags("signal", f"--num_batches={step + 1}"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertTrue((self.root / "signal" / f"model.ckpt-{step + 1}").is_dir())

    def test_pictures_of_every_kind_are_predicted(self):
        self.assertEqual(run(*self.flags("predict")).returncode, 0)
        pixels = numpy.random.default_rng(1).integers(0, 255, (40, 56, 3), dtype=numpy.uint8)
        picture = Image.fromarray(pixels)
        files = {"rgb.jpg": picture, "gray.jpg": picture.convert("L"), "cmyk.jpg": picture.convert("CMYK"), "rgb.png": picture}
        for name, image in files.items():
            image.save(self.root / name)
        os.rename(self.root / "rgb.png", self.root / "png_named.JPEG")
        names = [str(self.root / name) for name in (*list(files)[:3], "png_named.JPEG")]
        done = run("predict", f"--train_dir={self.root / 'predict'}", "--json", *names)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["image"] for line in lines], names)
        for line in lines:
            self.assertEqual(len(line["top"]), 5)

    def test_a_broken_picture_is_one_line(self):
        self.assertEqual(run(*self.flags("broken")).returncode, 0)
        picture = self.root / "cut.jpg"
        Image.new("RGB", (64, 64), "red").save(picture)
        content = picture.read_bytes()
        wide = content.replace(b"\xff\xc0\x00\x11\x08\x00\x40\x00\x40", b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff")
        self.assertNotEqual(wide, content)
        for damaged in (b"", content[: len(content) // 2], wide):
            picture.write_bytes(damaged)
            done = run("predict", f"--train_dir={self.root / 'broken'}", str(picture))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertIn("cut.jpg", done.stderr)


if __name__ == "__main__":
    unittest.main()
