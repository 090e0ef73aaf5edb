#!/usr/bin/env python3
"""MLflow's own client reads what --trackers=mlflow writes.

Usage: scripts/test_python tests/mlflow_test.py PROGRAM (build/trainyard).
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# MLflow asks for this consent before it opens a store of files.
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
try:
    from mlflow.tracking import MlflowClient
except ImportError:
    print("skipped: needs .venv-tests (scripts/setup --tests makes it)")
    sys.exit(77)

program = os.path.abspath(sys.argv.pop(1))


class Mlflow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run([program, "data", "make-shapes", f"--output={self.root}/shapes", "--train_count=64",
                        "--validation_count=32"], check=True, capture_output=True)

    def train(self, epochs):
        done = subprocess.run(
            [program, "train", "--model=resnet20", "--data_name=shapes", f"--data_dir={self.root}/shapes",
             f"--train_dir={self.root}/runs/first", "--device=cpu", "--batch_size=16", "--num_warmup_batches=0",
             "--display_every=1", "--num_intra_threads=1", "--init_learning_rate=0.01", f"--num_epochs={epochs}",
             "--trackers=mlflow"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def runs(self):
        client = MlflowClient(tracking_uri=f"file://{self.root}/runs/mlruns")
        experiments = {experiment.name: experiment for experiment in client.search_experiments()}
        self.assertLessEqual({"Default", "shapes"}, set(experiments))
        return client, client.search_runs([experiments["shapes"].experiment_id])

    def test_its_client_reads_a_training_that_continues(self):
        self.train(1)
        client, [run] = self.runs()
        self.assertEqual((run.info.status, run.info.run_name), ("FINISHED", "first"))
        self.assertEqual((run.data.params["batch_size"], run.data.params["model"]), ("16", "resnet20"))
        self.assertIn("eval/loss", run.data.metrics)
        self.assertGreater(run.info.end_time, run.info.start_time)
        steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "learning_rate")]
        self.assertEqual(steps, [1, 2, 3, 4])
        self.train(2)
        client, [again] = self.runs()
        self.assertEqual(again.info.run_id, run.info.run_id)
        history = client.get_metric_history(run.info.run_id, "learning_rate")
        self.assertEqual([metric.step for metric in history], [1, 2, 3, 4, 5, 6, 7, 8])
        self.assertEqual(history[-1].value, 0.01)


if __name__ == "__main__":
    unittest.main()
