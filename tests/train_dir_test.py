#!/usr/bin/env python3
"""A train_dir as processes meet it: one run at a time, damage that stops a run, and rows that are nothing but rows.

Usage: scripts/test_python tests/train_dir_test.py PROGRAM (build/trainyard).
"""
import json
import math
import os
import pathlib
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

program = os.path.abspath(sys.argv.pop(1))

FLAGS = ["--model=trivial", "--data_name=shapes", "--synthetic", "--device=cpu", "--batch_size=4", "--num_warmup_batches=0",
         "--num_intra_threads=1", "--display_every=1", "--summary_verbosity=1", "--save_summaries_steps=1"]


def crc32c(data):
    """CRC32C by its definition (RFC 3720), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def put_nan(checkpoint, count):
    """Makes the last `count` elements of the first float tensor NaN, with all checksums right. Returns its name."""
    manifest, tensors = checkpoint / "manifest.json", checkpoint / "tensors.bin"
    text, data = manifest.read_text(), bytearray(tensors.read_bytes())
    (entry, *_) = [tensor for tensor in json.loads(text)["tensors"]
                   if tensor["dtype"] == "float32" and 4 * count <= tensor["bytes"] < 100000]
    end = entry["offset"] + entry["bytes"]
    data[end - 4 * count:end] = struct.pack("<f", math.nan) * count
    changed = crc32c(data[entry["offset"]:end])
    text = text.replace(f'"crc32c":{entry["crc32c"]}}}', f'"crc32c":{changed}}}', 1)
    head = text[:text.rindex('"crc32c": "')]
    manifest.write_text(f'{head}"crc32c": "0x{crc32c(head.encode()):08x}"\n}}\n')
    tensors.write_bytes(data)
    return entry["name"]


def run(*arguments, **kwargs):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **kwargs)


class TrainDirectory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.dir = self.root / "run"

    def flags(self, *more):
        base = [flag for flag in FLAGS if flag != "--synthetic" or not any(each.startswith("--data_dir") for each in more)]
        return ["train", *base, f"--train_dir={self.dir}", *more]

    def rows(self):
        return [json.loads(line) for line in (self.dir / "metrics.jsonl").read_text().splitlines()]

    def start(self, *more):
        """A training that runs until it is ended, and has written a row."""
        process = subprocess.Popen([program, *self.flags("--num_batches=100000000", *more)], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        shown = 0
        for line in process.stdout:
            shown += "\timages/sec: " in line
            if shown == 2:  # the row of the step before is in the files
                return process
        self.fail("the training did not start")

    def content(self):
        """The bytes of all files in the train_dir but those that the running training writes."""
        return {path: path.read_bytes() for path in sorted(self.dir.rglob("*"))
                if path.is_file() and path.name not in ("metrics.jsonl", "metrics.csv") and "tfevents" not in path.name}

    def test_a_second_run_is_refused_until_the_first_has_ended(self):
        self.assertEqual(run(*self.flags("--num_batches=2")).returncode, 0)
        first = self.start("--save_model_steps=100000000")
        before = self.content()
        for second in (self.flags("--num_batches=5"), ["--forward_only", *FLAGS, f"--train_dir={self.dir}", "--num_batches=5"]):
            refused = run(*second)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(f"process {first.pid} on host {socket.gethostname()}, since 20", refused.stderr)
            self.assertIn("another run writes into this folder", refused.stderr)
        self.assertEqual(self.content(), before)
        # Readers are not in its way.
        read = run("eval", *FLAGS[:-2], f"--train_dir={self.dir}", "--num_eval_batches=1")
        self.assertEqual(read.returncode, 0, read.stderr)

        first.kill()
        first.wait()
        self.assertTrue((self.dir / "run.lock").exists())
        taken_over = run(*self.flags("--num_batches=4"))
        self.assertEqual(taken_over.returncode, 0, taken_over.stderr)
        self.assertFalse((self.dir / "run.lock").exists())
        steps = [row["global_step"] for row in self.rows() if row["phase"] == "train"]
        self.assertEqual(steps, [1, 2, 3, 4])  # those of the killed run are done again

    def test_a_run_that_a_signal_ends_gives_the_lock_back(self):
        first = self.start()
        first.send_signal(signal.SIGTERM)
        first.stdout.read()
        self.assertEqual(first.wait(timeout=60), 75)
        self.assertFalse((self.dir / "run.lock").exists())

    def test_closed_streams_leave_rows_alone(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            shutil.rmtree(self.dir, ignore_errors=True)
            for steps in (6, 8):  # the second says in its log what it goes on from
                done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", program, *self.flags(f"--num_batches={steps}")],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
                self.assertEqual(done.returncode, 0, closed)
            self.assertEqual([row["global_step"] for row in self.rows() if row["phase"] == "train"], list(range(1, 9)), closed)
            text = b"".join(self.content().values())
            self.assertNotIn(b"continuing from", text, closed)

    def damage(self, kind):
        (checkpoint,) = self.dir.glob("model.ckpt-*")
        manifest, tensors = checkpoint / "manifest.json", checkpoint / "tensors.bin"
        if kind == "deleted manifest":
            manifest.unlink()
        elif kind == "deleted tensors":
            tensors.unlink()
        elif kind == "cut tensors":
            os.truncate(tensors, tensors.stat().st_size // 2)
        elif kind == "another step":
            checkpoint.rename(self.dir / "model.ckpt-7")
        else:
            file = manifest if kind == "flipped manifest" else tensors
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 16
            file.write_bytes(data)

    def test_a_damaged_checkpoint_stops_a_run_until_it_is_told_to_ignore_it(self):
        self.assertEqual(run(*self.flags("--num_batches=2")).returncode, 0)
        sound = self.root / "sound"
        shutil.copytree(self.dir, sound)
        for kind in ("flipped manifest", "deleted manifest", "flipped tensors", "deleted tensors", "cut tensors", "another step"):
            with self.subTest(kind):
                shutil.rmtree(self.dir)
                shutil.copytree(sound, self.dir)
                self.damage(kind)
                before = self.content()
                model = f"--train_dir={self.dir}"
                for command in (self.flags("--num_batches=4"), ["eval", *FLAGS[:-2], model],
                                ["predict", model, "x.jpg"], ["export", model, f"--output={self.root / 'w.safetensors'}"]):
                    refused = run(*command)
                    self.assertEqual(refused.returncode, 1, refused.stderr)
                    self.assertIn("damaged checkpoint: ", refused.stderr)
                    self.assertIn(str(self.dir / "model.ckpt-"), refused.stderr)
                    self.assertIn("--ignore_damaged_checkpoints", refused.stderr)
                    self.assertNotIn("not found", refused.stderr.lower())
                self.assertEqual(self.content(), before)
                ignoring = run(*self.flags("--num_batches=4", "--ignore_damaged_checkpoints"))
                self.assertEqual(ignoring.returncode, 0, ignoring.stderr)
                self.assertIn("starting from the beginning", ignoring.stderr)
                self.assertEqual(len(list(self.dir.glob("model.ckpt-*.damaged-*"))), 1)
                for path, bytes_ in before.items():
                    if path.parent != self.dir:
                        (kept,) = self.dir.glob(f"model.ckpt-*.damaged-*/{path.name}")
                        self.assertEqual(kept.read_bytes(), bytes_)
                self.assertTrue((self.dir / "model.ckpt-4").is_dir())

    def test_weights_that_are_nan_are_not_saved_and_the_good_ones_stay(self):
        self.assertEqual(run(*self.flags("--num_batches=2")).returncode, 0)
        diverging = run(*FLAGS, f"--train_dir={self.dir}", "--num_batches=6", "--init_learning_rate=1e38",
                        "--save_model_steps=2", "--max_ckpts_to_keep=1")
        self.assertEqual(diverging.returncode, 0, diverging.stderr)
        self.assertEqual([path.name for path in self.dir.glob("model.ckpt-*")], ["model.ckpt-2"])
        self.assertRegex(diverging.stderr, "no checkpoint of values that are not finite: step 6, tensor [^ ]+: ")
        self.assertEqual(run(*self.flags("--num_batches=3")).returncode, 0)

    def test_checkpoints_with_nan_are_refused_by_name(self):
        self.assertEqual(run(*self.flags("--num_batches=2")).returncode, 0)
        name = put_nan(self.dir / "model.ckpt-2", 3)
        model = f"--train_dir={self.dir}"
        for command in (self.flags("--num_batches=4"), ["eval", *FLAGS[:-2], model], ["predict", model, "x.jpg"],
                        ["export", model, f"--output={self.root / 'w.safetensors'}"]):
            refused = run(*command)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            self.assertIn("checkpoint holds NaN or infinity", refused.stderr)
            self.assertIn(f"1 tensors with others: {name} (3 of ", refused.stderr)
        self.assertEqual(len(list(self.dir.glob("model.ckpt-*"))), 1)

    def test_the_best_checkpoint_is_kept(self):
        data = self.root / "shapes"
        self.assertEqual(run("data", "make-shapes", f"--output={data}", "--train_count=96", "--validation_count=60").returncode, 0)
        flags = [f"--data_dir={data}", "--init_learning_rate=0.02", "--max_ckpts_to_keep=1",
                 "--eval_during_training_every_n_steps=2"]

        def best_by(name, better):
            """(step, value) of the first best evaluation of all runs so far."""
            rows = [row for row in self.rows() if row["phase"] == "eval"]
            value = better(row[name] for row in rows)
            return next((row["global_step"], row[name]) for row in rows if row[name] == value)

        for metric, name, better in (("top_1", "top_1_accuracy", max), ("loss", "loss", min)):
            shutil.rmtree(self.dir, ignore_errors=True)
            for steps in (12, 24):  # the second goes on, and compares with what the first has kept
                done = run(*self.flags(f"--num_batches={steps}", f"--keep_best={metric}", *flags))
                self.assertEqual(done.returncode, 0, done.stderr)
                step, value = best_by(name, better)
                manifest = json.loads((self.dir / "best" / "manifest.json").read_text())
                kept = {entry["name"]: entry.get("real", entry.get("text")) for entry in manifest["values"]}
                self.assertEqual((manifest["global_step"], kept["best/metric"]), (step, name))
                self.assertAlmostEqual(kept["best/value"], value, places=5)
                summary = json.loads((self.dir / "run_summary.json").read_text())["best_checkpoint"]
                self.assertEqual((summary["path"], summary["global_step"], summary["metric"]),
                                 (str(self.dir / "best"), step, name))
                self.assertRegex(done.stdout, rf"Best: +{self.dir}/best \(step {step}, {name} {value:.4f}\)")
            self.assertTrue((self.dir / "model.ckpt-24").is_dir())
        evaluated = run("eval", *(flag for flag in FLAGS[:-2] if flag != "--synthetic"), f"--data_dir={data}", f"--weights={self.dir / 'best'}")
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        rows = {row["global_step"]: row for row in self.rows() if row["phase"] == "eval"}
        accuracy = float(evaluated.stdout.split("Accuracy @ 1 = ")[1].split()[0])
        self.assertAlmostEqual(accuracy, rows[step]["top_1_accuracy"], places=3)
        exported = run("export", f"--weights={self.dir / 'best'}", f"--output={self.root / 'w.safetensors'}")
        self.assertEqual(exported.returncode, 0, exported.stderr)

        # The program's own default, and that of tf_cnn_benchmarks.
        own = self.flags("--num_batches=2", *flags)
        for command, expected in ((own, True), (own[1:], False)):
            shutil.rmtree(self.dir)
            self.assertEqual(run(*command).returncode, 0)
            self.assertEqual((self.dir / "best").is_dir(), expected)

    def steps_in(self, directory):
        rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        return [row["global_step"] for row in rows if row["phase"] == "train"]

    def directories(self):
        return sorted(path.name for path in self.root.iterdir())

    def test_what_becomes_of_an_existing_run_by_flag(self):
        self.assertEqual(run(*self.flags("--num_batches=2")).returncode, 0)
        # Without a terminal it goes on, by default and where it would ask.
        self.assertEqual(run(*self.flags("--num_batches=3")).returncode, 0)
        self.assertEqual(run(*self.flags("--num_batches=4", "--existing_run=ask")).returncode, 0)
        self.assertEqual(self.steps_in(self.dir), [1, 2, 3, 4])

        done = run(*self.flags("--num_batches=1", "--existing_run=new_name"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.steps_in(self.root / "run-2"), [1])
        summary = json.loads((self.root / "run-2" / "run_summary.json").read_text())
        self.assertEqual(summary["flags"]["train_dir"], str(self.root / "run-2"))
        self.assertEqual(self.steps_in(self.dir), [1, 2, 3, 4])

        done = run(*self.flags("--num_batches=1", "--existing_run=back_up"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.steps_in(self.dir), [1])
        (backup,) = self.root.glob("run.backup-20*")
        self.assertRegex(backup.name, r"^run\.backup-\d{8}-\d{6}$")
        self.assertEqual(self.steps_in(backup), [1, 2, 3, 4])

        (self.dir / "notes.txt").write_text("mine")
        before = self.content()
        refused = run(*self.flags("--num_batches=1", "--existing_run=delete"))
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("a run is not deleted from a directory that holds other things", refused.stderr)
        self.assertIn("got notes.txt", refused.stderr)
        self.assertEqual(self.content(), before)
        (self.dir / "notes.txt").unlink()
        done = run(*self.flags("--num_batches=2", "--existing_run=delete"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.steps_in(self.dir), [1, 2])

        # What cannot begin deletes nothing.
        before = self.content()
        failed = run(*self.flags("--num_batches=2", "--existing_run=delete", "--weights=/no/such/file"))
        self.assertNotEqual(failed.returncode, 0)
        for flags in (["--eval"], ["--forward_only"]):
            refused = run(*FLAGS, f"--train_dir={self.dir}", "--num_batches=1", "--existing_run=delete", *flags)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("is for trainings", refused.stderr)
        self.assertEqual(self.content(), before)

    def on_a_terminal(self, keys, *command):
        """Runs the program on a pseudo terminal and types `keys` when it asks. Returns its code, output and log."""
        outer, inner = pty.openpty()
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen([program, *command], stdin=inner, stdout=inner, stderr=log)
            os.close(inner)
            output, typed = b"", False
            while True:
                try:
                    part = os.read(outer, 4096)
                except OSError:  # the program has ended
                    break
                if not part:
                    break
                output += part
                if not typed and b"(q)uit? " in output:
                    os.write(outer, keys)
                    typed = True
            os.close(outer)
            code = process.wait(timeout=60)
            log.seek(0)
            return code, output.decode(), log.read()

    def test_somebody_on_a_terminal_is_asked_what_becomes_of_an_existing_run(self):
        code, output, log = self.on_a_terminal(b"", *self.flags("--num_batches=2"))
        self.assertEqual(code, 0, log)
        self.assertNotIn("(q)uit", output)  # there was none
        code, output, log = self.on_a_terminal(b"xk", *self.flags("--num_batches=3"))
        self.assertEqual(code, 0, log)
        self.assertIn(f"{self.dir} holds a run. (k)eep it and go on, (b)ack it up, (d)elete it, (n)ew name, (q)uit? k",
                      output)
        self.assertEqual(self.steps_in(self.dir), [1, 2, 3])
        code, _, log = self.on_a_terminal(b"n", *self.flags("--num_batches=1"))
        self.assertEqual((code, self.directories()), (0, ["run", "run-2"]), log)
        before = self.content()
        for key in (b"q", b"\x04"):
            code, _, log = self.on_a_terminal(key, *self.flags("--num_batches=9"))
            self.assertEqual(code, 75, log)  # stopped; the same command may be given again
            self.assertIn("no run was started", log)
        self.assertEqual(self.content(), before)
        code, _, log = self.on_a_terminal(b"b", *self.flags("--num_batches=1"))
        self.assertEqual((code, self.steps_in(self.dir), len(self.directories())), (0, [1], 3), log)
        code, _, log = self.on_a_terminal(b"d", *self.flags("--num_batches=2"))
        self.assertEqual((code, self.steps_in(self.dir), len(self.directories())), (0, [1, 2], 3), log)
        # A flag answers in advance, and tf_cnn_benchmarks does not ask.
        for command in (self.flags("--num_batches=3", "--existing_run=keep"),
                        [*FLAGS, f"--train_dir={self.dir}", "--num_batches=1"]):
            code, output, log = self.on_a_terminal(b"d", *command)
            self.assertEqual(code, 0, log)
            self.assertNotIn("(q)uit", output)
        self.assertEqual(self.steps_in(self.dir), [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
