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

import h5py
import numpy
import onnx
import onnxruntime
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

    def test_a_model_runs_and_its_weights_open_elsewhere(self):
        self.assertEqual(run(*self.flags("export")).returncode, 0)
        model = f"--train_dir={self.root / 'export'}"
        images = numpy.random.default_rng(2).standard_normal((3, 3, 32, 32), dtype=numpy.float32)
        numpy.save(self.root / "images.npy", images)
        predicted = run("predict", model, f"--input={self.root / 'images.npy'}", f"--output={self.root / 'logits.npy'}")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        expected = numpy.load(self.root / "logits.npy")
        for form in ("onnx", "h5"):
            done = run("export", model, f"--format={form.replace('h5', 'hdf5')}", f"--output={self.root}/model.{form}")
            self.assertEqual(done.returncode, 0, done.stderr)

        onnx.checker.check_model(str(self.root / "model.onnx"), full_check=True)
        session = onnxruntime.InferenceSession(str(self.root / "model.onnx"), providers=["CPUExecutionProvider"])
        for batch in (1, 3):
            (logits,) = session.run(["logits"], {"input": images[:batch]})
            self.assertLess(numpy.abs(logits - expected[:batch]).max(), 1e-5 * numpy.abs(expected).max())

        # As Keras reads it: layers and their weights by the attributes that name them.
        with h5py.File(self.root / "model.h5") as file:
            layers = [name.decode() for name in file.attrs["layer_names"]]
            self.assertEqual((layers[0], layers[-1], file.attrs["backend"].decode()), ("conv1", "fc", "tensorflow"))
            weights = {name: file[layer][name][()] for layer in layers
                       for name in (text.decode() for text in file[layer].attrs["weight_names"])}
        initializers = {tensor.name: onnx.numpy_helper.to_array(tensor)
                        for tensor in onnx.load(self.root / "model.onnx").graph.initializer}
        numpy.testing.assert_array_equal(weights["conv1/kernel"], initializers["conv1.weight"].transpose(2, 3, 1, 0))
        numpy.testing.assert_array_equal(weights["bn1/moving_variance"], initializers["bn1.running_var"])
        numpy.testing.assert_array_equal(weights["fc/kernel"], initializers["fc.weight"].T)

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


class Threads(unittest.TestCase):
    """What the kernel says of the threads of a run."""

    FLAGS = ["--model=trivial", "--data_name=shapes", "--device=cpu", "--batch_size=64", "--num_batches=100000000",
             "--num_warmup_batches=0", "--display_every=1"]

    def watch(self, *flags, **environment):
        """(CPUs of each thread as [(name, list)], environment, header, log) of a run that is ended after two steps"""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
        process = subprocess.Popen([program, *self.FLAGS, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**clean, **environment})
        header = ""
        for line in process.stdout:
            header += line
            if line.startswith("2\timages/sec"):
                break
        folder = pathlib.Path(f"/proc/{process.pid}")
        threads = []
        for status in folder.glob("task/*/status"):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            threads.append((fields["Name"], fields["Cpus_allowed_list"]))
        variables = dict(text.split("=", 1) for text in (folder / "environ").read_text().split("\0") if "=" in text)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, log)
        return threads, variables, header, log

    def setUp(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.first, self.last = str(cpus[0]), str(cpus[-1])
        fields = pathlib.Path("/proc/self/status").read_text().split("Cpus_allowed_list:\t", 1)
        self.all = fields[1].splitlines()[0]
        self.both = f"proclist=[{self.first},{self.last}],explicit"
        self.leader = self.first if self.first == self.last else (
            f"{self.first}-{self.last}" if int(self.last) == int(self.first) + 1 else f"{self.first},{self.last}")

    def test_nothing_is_placed_unless_asked_for(self):
        threads, variables, header, log = self.watch("--num_intra_threads=2")
        self.assertEqual({cpus for _, cpus in threads}, {self.all})
        self.assertEqual(variables["GOMP_SPINCOUNT"], "10000")
        self.assertIn("NUMA bind:   False\n", header)
        self.assertNotIn("threads: ", log)

    def test_only_the_replica_is_placed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("data", "make-shapes", f"--output={folder}", "--train_count=96").returncode, 0)
            threads, _, _, _ = self.watch(f"--data_dir={folder}", "--datasets_num_private_threads=2",
                                            "--num_intra_threads=1", f"--kmp_affinity={self.both}")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first], threads)
        others = [cpus for name, cpus in threads if name not in ("replica 0", "trainyard")]
        self.assertGreaterEqual(len(others), 3, threads)  # the input's, and the one that waits for signals
        self.assertEqual(set(others), {self.all}, threads)

    def test_each_member_of_a_team_is_on_its_place(self):
        threads, _, _, log = self.watch("--num_intra_threads=2", f"--kmp_affinity=verbose,{self.both}")
        team = sorted(cpus for name, cpus in threads if name == "replica 0")
        self.assertEqual(team, sorted([self.leader, self.last]))
        self.assertIn(f"threads: replica 0 CPUs {self.first} | {self.last}\n", log)

    def test_replicas_of_one_thread_have_a_cpu_each(self):
        threads, _, _, _ = self.watch("--num_gpus=2", "--num_intra_threads=2", f"--kmp_affinity={self.both}")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first])
        self.assertEqual([cpus for name, cpus in threads if name == "replica 1"], [self.last])

    def test_mkl_makes_the_defaults_count(self):
        threads, variables, _, log = self.watch("--mkl", "--num_intra_threads=1")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first])
        self.assertEqual(variables["GOMP_SPINCOUNT"], "0")
        self.assertIn("threads: GOMP_SPINCOUNT=0\n", log)
        self.assertNotIn("warning", log)

    def test_blocktime_is_the_spin_count_of_the_runtime(self):
        self.assertEqual(self.watch("--kmp_blocktime=5")[1]["GOMP_SPINCOUNT"], "500000")
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "run.yaml")
            config.write_text("kmp_blocktime: 3\n")
            self.assertEqual(self.watch(f"--config={config}")[1]["GOMP_SPINCOUNT"], "300000")

    def test_flags_stand_over_the_environment_and_that_over_our_default(self):
        self.assertEqual(self.watch(GOMP_SPINCOUNT="7")[1]["GOMP_SPINCOUNT"], "7")
        self.assertNotIn("GOMP_SPINCOUNT", self.watch(OMP_WAIT_POLICY="passive")[1])
        _, variables, _, log = self.watch("--kmp_blocktime=1", GOMP_SPINCOUNT="7")
        self.assertEqual(variables["GOMP_SPINCOUNT"], "100000")
        self.assertNotIn("warning", log)
        _, variables, _, log = self.watch("--mkl", GOMP_SPINCOUNT="7")
        self.assertEqual(variables["GOMP_SPINCOUNT"], "0")
        self.assertIn("mkl: the default of kmp_blocktime replaces GOMP_SPINCOUNT=7", log)

    def test_two_placements_are_an_error(self):
        done = run(*self.FLAGS, "--kmp_affinity=compact", env={**os.environ, "OMP_PROC_BIND": "true"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("OMP_PROC_BIND=true", done.stderr)

    def test_a_machine_of_one_node_says_so(self):
        threads, _, header, log = self.watch("--use_numa_affinity")
        self.assertIn("NUMA bind:   True\n", header)
        nodes = list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))
        if len(nodes) == 1:
            self.assertIn("use_numa_affinity: this machine has one NUMA node\n", log)
            self.assertEqual({cpus for _, cpus in threads}, {self.all})


if __name__ == "__main__":
    unittest.main()
