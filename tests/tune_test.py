#!/usr/bin/env python3
"""`trainyard tune` and --batch_size=auto as processes meet them: a search that is killed continues, and finds what one without
interruption finds; the batch that is found takes the memory that the kernel counts.

Usage: python3 tests/tune_test.py PROGRAM (build/trainyard).
"""
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

program = os.path.abspath(sys.argv.pop(1))
# Children that outlive their parent would be seen as processes with this in their command line.
os.environ["OMP_WAIT_POLICY"] = "passive"

SEARCH = """trials: 6
epochs: 4
min_epochs: 1
search: halving
eta: 2
metric: loss
seed: 3
flags:
  model: resnet20
  data_dir: {data}
  device: cpu
  batch_size: 8
  optimizer: tf_momentum
  num_intra_threads: 1
  deterministic: true
  save_model_secs: 1
ranges:
  init_learning_rate: {{loguniform: [0.001, 0.1]}}
  momentum: {{choice: [0.8, 0.9]}}
"""


def processes_of(text):
    """Command lines of processes that have `text` in them, by process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(entry.name) != os.getpid():
            found[int(entry.name)] = line
    return found


class Tune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.data = cls.root / "shapes"
        made = subprocess.run([program, "data", "make-shapes", f"--output={cls.data}", "--train_count=64",
                               "--validation_count=24"], capture_output=True, text=True, timeout=120)
        assert made.returncode == 0, made.stderr
        cls.whole = cls.root / "whole"
        cls.path("whole.yaml").write_text(SEARCH.format(data=cls.data))
        cls.first = cls.tune("whole.yaml")
        assert cls.first.returncode == 0, cls.first.stdout + cls.first.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return cls.root / name

    @classmethod
    def tune(cls, name, *arguments):
        return subprocess.run([program, "tune", str(cls.path(name)), *arguments], capture_output=True, text=True, timeout=600)

    def trials(self, name):
        """What the trials of a search reached, without times."""
        record = json.loads((self.root / name / "tune.json").read_text())
        for trial in record["trials"]:
            for result in trial["results"]:
                del result["seconds"]
        return record["best"], record["trials"]

    def results(self, name):
        """How many parts of trials have ended, in all."""
        record = self.root / name / "tune.json"
        return sum(len(trial["results"]) for trial in json.loads(record.read_text())["trials"]) if record.exists() else 0

    def wait_for(self, holds):
        until = time.monotonic() + 120
        while not holds():
            self.assertLess(time.monotonic(), until, "it takes too long")
            time.sleep(0.01)

    def test_a_search_has_a_table_a_picture_and_the_command_of_its_best(self):
        with open(self.whole / "tune.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 6)
        # Three levels of 1, 2 and 4 epochs: of six trials three and then one run on.
        self.assertEqual(sorted(float(row["epochs"]) for row in rows), [1, 1, 1, 2, 2, 4])
        best, trials = self.trials("whole")
        self.assertEqual([row["trial"] for row in rows if row["state"] == "finished"], [str(best)])
        reached = {level: sorted(t["results"][level]["value"] for t in trials if len(t["results"]) > level) for level in (0, 1)}
        went_on = sorted(t["results"][0]["value"] for t in trials if len(t["results"]) > 1)
        self.assertEqual(went_on, reached[0][:3], "the lowest losses run on")
        self.assertTrue((self.whole / "tune.svg").read_text().startswith("<svg"))
        command = re.search(r"^Train: +trainyard (train .*)$", self.first.stdout, re.M)[1].split()
        self.assertIn(f"--init_learning_rate={trials[best]['flags']['init_learning_rate']}", command)

    def test_the_same_file_finds_the_same(self):
        self.path("again.yaml").write_text(SEARCH.format(data=self.data))
        self.assertEqual(self.tune("again.yaml", "--max_parallel=2").returncode, 0)
        self.assertEqual(self.trials("again"), self.trials("whole"))
        done = self.tune("again.yaml")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("after", done.stdout, "a search that has ended runs nothing again")
        self.assertEqual(self.trials("again"), self.trials("whole"))

    def test_a_search_that_is_killed_continues(self):
        self.path("killed.yaml").write_text(SEARCH.format(data=self.data))
        for results in (0, 1, 3, 5):
            search = subprocess.Popen([program, "tune", str(self.path("killed.yaml")), "--max_parallel=2"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            # Where a trial is on its way, and so many have results.
            self.wait_for(lambda: self.results("killed") >= results and any(self.root.glob("killed/trial-*/log.txt")))
            time.sleep(0.3)
            self.assertIsNone(search.poll(), "it has work left")
            search.kill()
            search.communicate(timeout=60)
            until = time.monotonic() + 10
            while processes_of(str(self.root / "killed/trial-")) and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(processes_of(str(self.root / "killed/trial-")), {}, "the trials end with their search")
        finished = self.tune("killed.yaml", "--max_parallel=2")
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        self.assertEqual(self.trials("killed"), self.trials("whole"))

    def test_a_signal_ends_it_and_it_continues(self):
        self.path("stopped.yaml").write_text(SEARCH.format(data=self.data))
        search = subprocess.Popen([program, "tune", str(self.path("stopped.yaml"))], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.wait_for(lambda: any(self.root.glob("stopped/trial-*/metrics.jsonl")))
        search.send_signal(signal.SIGTERM)
        out, err = search.communicate(timeout=60)
        self.assertEqual(search.returncode, 75, out + err)
        self.assertNotIn("failed", out, "a trial that was told to end has not failed")
        self.assertEqual(self.tune("stopped.yaml").returncode, 0)
        self.assertEqual(self.trials("stopped"), self.trials("whole"))

    def test_trials_that_fail_say_why_and_end_nothing(self):
        text = SEARCH.format(data=self.data).replace("loguniform: [0.001, 0.1]", "choice: [0.01, 1e18]")
        text = text.replace("search: halving\neta: 2\nmin_epochs: 1\n", "").replace("min_epochs: 1\nsearch: halving\neta: 2\n", "")
        self.path("failing.yaml").write_text(text.replace("epochs: 4", "epochs: 1"))
        search = self.tune("failing.yaml")
        self.assertEqual(search.returncode, 0, search.stdout + search.stderr)
        _, trials = self.trials("failing")
        wild = [trial for trial in trials if float(trial["flags"]["init_learning_rate"]) > 1]
        self.assertTrue(wild and len(wild) < 6, "the seed draws both")
        for trial in trials:
            self.assertEqual(bool(trial["failure"]), trial in wild, trial)
        for trial in wild:
            self.assertRegex(trial["failure"], "NaN|infinite|not finite|diverged")
            self.assertIn(f"trial {trial['number']} failed: ", search.stdout)
        # Each is named where it fails and below the table; a search that has ended runs them again only when it is told to.
        again, retried = self.tune("failing.yaml"), self.tune("failing.yaml", "--retry_failed")
        self.assertEqual(again.stdout.count(" failed: "), len(wild))
        self.assertEqual(retried.stdout.count(" failed: "), 2 * len(wild))
        self.assertEqual(retried.returncode, 0, retried.stderr)

    def test_another_search_does_not_take_its_folder(self):
        self.path("whole.yaml").write_text(SEARCH.format(data=self.data).replace("seed: 3", "seed: 4"))
        try:
            refused = self.tune("whole.yaml")
        finally:
            self.path("whole.yaml").write_text(SEARCH.format(data=self.data))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("another search", refused.stderr)


BATCH = ["--model=resnet20", "--data_name=cifar10", "--synthetic", "--device=cpu", "--num_intra_threads=1", "--display_every=1"]


def peak_mib(*arguments):
    """Runs the program; returns what it printed, its code, and the most memory that the kernel counted for it, in MiB."""
    read, write = os.pipe()
    child = os.posix_spawn(program, [program, "train", *arguments], os.environ,
                           file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)])
    os.close(write)
    with os.fdopen(read) as output:
        text = output.read()
    _, status, usage = os.wait4(child, 0)
    return text, os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024


class BatchSize(unittest.TestCase):
    BUDGET = 700

    def found(self, *arguments):
        text, code, peak = peak_mib(*BATCH, "--batch_size=auto", *arguments)
        self.assertEqual(code, 0, text)
        return int(re.findall(r"batch_size=auto: (\d+) images a device", text)[-1]), text, peak

    def test_the_batch_that_is_found_fits_and_the_next_does_not(self):
        batch, text, peak = self.found(f"--batch_size_memory_mib={self.BUDGET}", "--num_batches=2", "--train_dir=")
        self.assertIn("sizes were tried)", text)
        self.assertLess(peak, 1.03 * self.BUDGET, "the search itself keeps within the memory, too")
        text, code, peak = peak_mib(*BATCH, "--num_batches=2", f"--batch_size={batch}", "--train_dir=")
        self.assertEqual(code, 0, text)
        self.assertLess(peak, 1.03 * self.BUDGET)
        _, _, beyond = peak_mib(*BATCH, "--num_batches=2", f"--batch_size={int(1.1 * batch) + 1}", "--train_dir=")
        self.assertGreater(beyond, self.BUDGET)

    def test_a_run_that_continues_keeps_its_size(self):
        with tempfile.TemporaryDirectory() as folder:
            batch, _, _ = self.found("--batch_size_memory_mib=600", "--num_batches=2", f"--train_dir={folder}/run")
            again, text, _ = self.found("--batch_size_memory_mib=900", f"--train_dir={folder}/run", "--num_batches=3")
            self.assertEqual(again, batch)
            self.assertIn("model.ckpt-2 found", text)
            self.assertNotIn("were tried)", text)


if __name__ == "__main__":
    unittest.main()
