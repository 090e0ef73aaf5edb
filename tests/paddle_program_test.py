#!/usr/bin/env python3
"""`trainyard program` as a user of NVIDIA's PaddlePaddle example runs it, on real photographs.

Usage: scripts/test_python tests/paddle_program_test.py PROGRAM (build/trainyard). Skips itself (77) where the shared data
are not there.
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
import unittest

program = os.path.abspath(sys.argv.pop(1))
root = pathlib.Path(__file__).resolve().parent.parent
source = pathlib.Path(os.environ.get("TRAINYARD_SHARED_DATA", root.parent / "shared/data")) / "imagenet_sample"
NUMBER = r"(?:\d+(?:\.\d+)?(?:e[-+]\d+)?)"
LINE = re.compile(r"DLL \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} - (.*)")


def run(*arguments, **kwargs):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600, **kwargs)


def lines_of(done):
    """[(step as it is shown, {name: text})] of stdout, without the options."""
    lines = []
    for line in done.stdout.splitlines():
        shown = LINE.fullmatch(line).group(1)
        if shown.startswith("PARAMETER"):
            continue
        step = re.match(r"(Summary:|Epoch: \d+ (?:Iteration: \d+ )?) ", shown)
        metrics = dict(re.findall(r"(\S+) : (\S+(?: s,)?) (?: |$)", shown[step.end():]))
        lines.append((step.group(1).strip(), metrics))
    return lines


class PaddleProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        made = run("data", "convert", f"--from={source}", "--to=folder", f"--output={cls.root / 'all'}")
        assert made.returncode == 0, made.stderr
        # 160 photographs: ten batches of 16. The validation's are of classes that the training knows by their folders.
        shutil.copytree(cls.root / "all" / "val", cls.root / "images" / "val")
        photos = sorted(path for path in (cls.root / "all" / "train").rglob("*") if path.is_file())
        for folder in (cls.root / "all" / "train").iterdir():
            (cls.root / "images" / "train" / folder.name).mkdir(parents=True)
        for photo in photos[:160]:
            shutil.copy(photo, cls.root / "images" / "train" / photo.parent.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def options(self, name, *more):
        base = [f"--image-root={self.root / 'images'}", "--batch-size=16", "--image-shape=3,64,64", "--crop-size=64",
                "--resize-short=72", "--model-arch-name=resnet18", "--lr=0.02", "--places=cpu:0", "--print-interval=5",
                f"--output-dir={self.root / name}", f"--report-file={self.root / name}.json"]
        given = {option.split("=")[0] for option in more}  # a sub-command refuses a repetition
        return ["program", *[option for option in base if option.split("=")[0] not in given], *more]

    def report(self, name):
        return [json.loads(line) for line in (self.root / f"{name}.json").read_text().splitlines()]

    def test_trains_prunes_evaluates_and_measures(self):
        done = run(*self.options("run", "--epochs", "3", "--asp", "--prune-model", "--mask-algo", "mask_1d"))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = lines_of(done)
        expected = []
        for epoch in range(3):
            expected += [f"Epoch: {epoch} Iteration: 5", f"Epoch: {epoch} Iteration: 10", f"Epoch: {epoch}"]
            expected += [f"Epoch: {epoch}"]  # 60 photographs: four batches
        self.assertEqual([step for step, _ in lines], expected + ["Summary:", "Summary:"])
        steps = ["loss", "top1", "top5", "data_time", "compute_time", "batch_time", "ips", "lr"]
        self.assertEqual(list(lines[0][1]), [f"train.{name}" for name in steps])
        self.assertEqual(list(lines[2][1]), ["train.loss", "train.epoch_time", "train.ips"])
        self.assertEqual(list(lines[3][1]), ["val.loss", "val.epoch_time", "val.ips", "val.top1", "val.top5"])
        self.assertRegex(lines[2][1]["train.epoch_time"], r"^\d+\.\d{5} s,$")
        report = self.report("run")
        self.assertEqual(report[0]["step"], "PARAMETER")
        self.assertEqual(report[0]["data"]["mask_algo"], "mask_1d")
        self.assertEqual([row["step"] for row in report[1:5]], [[0, 5], [0, 10], [0], [0]])
        for row, (_, metrics) in zip(report[1:], lines):
            self.assertEqual(list(row["data"]), list(metrics))
            self.assertEqual(row["type"], "LOG")
        self.assertEqual(float(lines[0][1]["train.loss"]), report[1]["data"]["train.loss"])
        model = self.root / "run" / "resnet18" / "2" / "resnet_50_paddle"
        self.assertEqual([path.name for path in model.glob("model.ckpt-*")], ["model.ckpt-30"])
        sparse = run("sparsity", "--verify", str(model))
        self.assertEqual(sparse.returncode, 0, sparse.stderr)
        # Every command opens the checkpoints.
        photo = next(path for path in (self.root / "images" / "val").rglob("*") if path.is_file())
        self.assertEqual(run("predict", f"--train_dir={model}", str(photo)).returncode, 0)
        self.assertEqual(run("export", f"--train_dir={model}", f"--output={self.root / 'run.safetensors'}").returncode, 0)
        evaluated = run("eval", "--model=resnet18", f"--data_dir={self.root / 'images'}", f"--train_dir={model}", "--device=cpu")
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)

        scope = ["--run-scope", "eval_only", "--from-checkpoint", str(self.root / "run" / "resnet18"),
                 "--last-epoch-of-checkpoint", "auto"]
        again = run(*self.options("again", *scope, "--show-config=False"))
        self.assertEqual(again.returncode, 0, again.stderr)
        (step, metrics), (summary, _) = lines_of(again)
        self.assertEqual((step, summary), ("Epoch: 3", "Summary:"))
        self.assertAlmostEqual(float(metrics["val.loss"]), float(lines[-3][1]["val.loss"]), delta=1e-4)
        self.assertEqual(metrics["val.top5"], lines[-3][1]["val.top5"])

        timing = ["--benchmark", "--benchmark-steps=6", "--benchmark-warmup-steps=2", "--show-config=False"]
        timed = run(*self.options("timed", *scope, *timing))
        self.assertEqual(timed.returncode, 0, timed.stderr)
        latency = ["ips", "latency_avg", "latency_p90", "latency_p95", "latency_p99"]
        self.assertEqual(list(lines_of(timed)[-1][1]), [f"val.{name}" for name in latency])
        p90, p95, p99 = (float(lines_of(timed)[-1][1][f"val.{name}"]) for name in latency[2:])
        self.assertTrue(0 < p90 <= p95 <= p99)
        timed = run(*self.options("timed", "--run-scope=train_only", *timing))
        self.assertEqual(timed.returncode, 0, timed.stderr)
        self.assertEqual(list(lines_of(timed)[-1][1]), ["train.ips"])
        self.assertEqual(run(*self.options("timed", *timing)).returncode, 2)

    def test_signals_save_and_the_same_command_goes_on(self):
        options = self.options("signal", "--epochs=2", "--run-scope=train_only", "--print-interval=1", "--show-config=False",
                               "--from-checkpoint", str(self.root / "signal" / "resnet18"), "--last-epoch-of-checkpoint=auto")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 75, errors)
        done = run(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = [tuple(row["step"]) for row in self.report("signal") if len(row["step"]) == 2]
        self.assertEqual(steps, [(epoch, step) for epoch in range(2) for step in range(1, 11)])

        killed = subprocess.Popen([program, *self.options("killed", "--print-interval=1")], stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            killed.stdout.readline()
        killed.kill()
        killed.communicate(timeout=60)
        self.assertGreaterEqual(len(self.report("killed")), 3)

    def test_what_goes_wrong_is_one_line_and_loses_nothing(self):
        def fails(code, *options):
            done = run(*self.options("wrong", "--epochs=2", "--show-config=False", *options))
            errors = [line for line in done.stderr.splitlines() if " error " in line]
            self.assertEqual((done.returncode, len(errors)), (code, 1), done.stderr)
            return errors[0]

        done = run(*self.options("wrong", "--epochs=1", "--show-config=False"))
        self.assertEqual(done.returncode, 0, done.stderr)
        saved = self.root / "wrong" / "resnet18" / "0" / "resnet_50_paddle" / "model.ckpt-10"
        content = {path.name: path.read_bytes() for path in saved.iterdir()}
        go_on = [f"--from-checkpoint={self.root / 'wrong' / 'resnet18'}", "--last-epoch-of-checkpoint=auto"]
        if os.path.exists("/dev/full"):
            self.assertIn("/dev/full", fails(1, *go_on, "--report-file=/dev/full"))
        self.assertIn(str(self.root), fails(1, *go_on, f"--report-file={self.root}"))
        self.assertIn("there are no images", fails(1, *go_on, f"--image-root={self.root / 'gone'}"))
        self.assertIn("resnet34", fails(2, *go_on, "--model-arch-name=resnet34", f"--output-dir={self.root / 'other'}"))
        self.assertEqual({path.name: path.read_bytes() for path in saved.iterdir()}, content)
        missing = run(*self.options("missing", "--epochs=1", "--run-scope=train_only", "--show-config=False",
                                    f"--from-checkpoint={self.root / 'nowhere'}"))
        self.assertEqual(missing.returncode, 0, missing.stderr)
        self.assertIn("disable --from_checkpoint", missing.stderr)


if __name__ == "__main__":
    if not source.exists():
        print(f"needs the shared data {source} (set TRAINYARD_SHARED_DATA)")
        sys.exit(77)
    unittest.main()
