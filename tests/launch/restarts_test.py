#!/usr/bin/env python3
"""Trainings under `trainyard launch` whose ranks are killed at random steps come to what an undisturbed one comes to.

Usage: python3 tests/launch/restarts_test.py PROGRAM (build/trainyard).
"""
import csv
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from launched import Launch, left_over, wait_until
from namespaces import need

program = os.path.abspath(sys.argv.pop(1))
need(("mpirun", "openmpi-bin"))
STEPS = 24
TRAIN = ["train", "--model=resnet20", "--device=cpu", "--batch_size=4", f"--num_batches={STEPS}", "--variable_update=horovod",
         "--optimizer=tf_nesterov", "--init_learning_rate=0.02", "--deterministic", "--num_warmup_batches=0", "--display_every=1",
         "--save_model_steps=5", "--save_summaries_steps=1", "--rank_deadline=20"]


class Restarts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        subprocess.run([program, "data", "make-shapes", f"--output={cls.root / 'shapes'}", "--train_count=96", "--validation_count=24"],
                       check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def launch(self, name, ranks, *flags, train=()):
        given = {flag.split("=")[0] for flag in train}
        train = [*(flag for flag in TRAIN if flag.split("=")[0] not in given), *train]
        launch = Launch(program, "launch", "-n", ranks, "--failure_timeout=1", *flags, "--", *train, f"--data_dir={self.root / 'shapes'}",
                        f"--train_dir={self.root / name}",
                        environment={"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.root / "cache")})
        self.addCleanup(launch.process.stdout.close)
        self.addCleanup(launch.process.stderr.close)
        return launch

    def rows(self, name):
        """What the monitors hold of the steps, by file."""
        text = (self.root / name / "metrics.jsonl").read_text()
        lines = [row for row in map(json.loads, text.splitlines()) if row["phase"] == "train"]
        with open(self.root / name / "metrics.csv") as file:
            table = [row for row in csv.DictReader(file) if row["phase"] == "train"]
        return {"jsonl": [(row["global_step"], row["total_loss"]) for row in lines],
                "csv": [(int(row["global_step"]), float(row["total_loss"])) for row in table]}

    def last_step(self, name):
        try:
            return self.rows(name)["jsonl"][-1][0]
        except (OSError, IndexError, ValueError):
            return 0

    def kill_at(self, launch, name, step, rank):
        """Kills a rank once the step has been written."""
        wait_until(lambda: self.last_step(name) >= step or launch.process.poll() is not None, 400, f"step {step}")
        ranks = wait_until(lambda: launch.find(os.path.basename(program), "train"), 30, "ranks run")
        of_rank = [each for each in ranks
                   if f"OMPI_COMM_WORLD_RANK={rank}".encode() in pathlib.Path(f"/proc/{each}/environ").read_bytes().split(b"\0")]
        os.kill(of_rank[0], signal.SIGKILL)
        return of_rank[0]

    def test_the_curve_is_that_of_an_undisturbed_run(self):
        calm = self.launch("calm", 2)
        self.assertEqual(calm.end(), 0, calm.error)
        weights = (self.root / "calm" / f"model.ckpt-{STEPS}" / "tensors.bin").read_bytes()
        expected = self.rows("calm")
        self.assertEqual([step for step, _ in expected["jsonl"]], list(range(1, STEPS + 1)))
        draw = random.Random(19)
        launch = self.launch("killed", 2, "--max_restarts=3")
        at = 0
        for _ in range(3):
            at = draw.randrange(at + 1, min(at + 9, STEPS))
            killed = self.kill_at(launch, "killed", at, draw.randrange(2))
            wait_until(lambda killed=killed: not os.path.exists(f"/proc/{killed}"), 10, "the rank has gone")
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertEqual(launch.error.count("starting again with 2 ranks"), 3, launch.error)
        self.assertEqual((self.root / "killed" / f"model.ckpt-{STEPS}" / "tensors.bin").read_bytes(), weights)
        self.assertEqual(self.rows("killed"), expected, "each step once, with the same loss in every bit")
        self.assertEqual(left_over([launch]), set())

    def weights(self, name):
        """All float32 numbers of the model in the newest checkpoint."""
        checkpoint = max((self.root / name).glob("model.ckpt-*"), key=lambda path: int(path.name.split("-")[1]))
        content = (checkpoint / "tensors.bin").read_bytes()
        return [number for entry in json.loads((checkpoint / "manifest.json").read_text())["tensors"]
                if entry["name"].startswith("model/") and entry["dtype"] == "float32"
                for number in struct.unpack_from(f"<{entry['bytes'] // 4}f", content, entry["offset"])]

    def test_fewer_ranks_take_the_batches_of_all(self):
        """Batch norms see all images, so that weights do not depend on how these are spread, but for rounding."""
        # Few and small steps, which do not blow rounding up.
        train = ["--sync_batch_norm", "--num_batches=10", "--init_learning_rate=0.001"]
        launch = self.launch("fewer", 4, "--max_restarts=1", "--min_ranks=2", train=train)
        self.kill_at(launch, "fewer", 6, 3)
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertIn("starting again with 2 ranks, restart 1 of 1", launch.error)
        self.assertEqual([step for step, _ in self.rows("fewer")["jsonl"]], list(range(1, 11)))
        weights = self.weights("fewer")
        for name, ranks, batch_size, same in (("four", 4, 4, True), ("half", 4, 2, False)):
            calm = self.launch(name, ranks, train=[*train, f"--batch_size={batch_size}"])
            self.assertEqual(calm.end(), 0, calm.error)
            # Of large ones, such as variances of batch norms, by their size.
            furthest = max(abs(one - other) / max(1, abs(other)) for one, other in zip(weights, self.weights(name), strict=True))
            self.assertEqual(furthest < 1e-4, same, f"{name}: {furthest}")

    def test_a_stop_saves_and_the_same_command_goes_on(self):
        launch = self.launch("stopped", 2)
        wait_until(lambda: self.last_step("stopped") >= 3, 400, "step 3")
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        again = self.launch("stopped", 2)
        self.assertEqual(again.end(), 0, again.error)
        self.assertEqual([step for step, _ in self.rows("stopped")["jsonl"]], list(range(1, STEPS + 1)))


if __name__ == "__main__":
    unittest.main()
