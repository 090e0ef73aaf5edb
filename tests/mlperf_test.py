#!/usr/bin/env python3
"""The lines of --ml_perf_compliance_logging keep MLPerf's rules of v0.5, and the rules find what is wrong with a log.

Usage: tests/mlperf_test.py PROGRAM (build/trainyard).
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import mlperf_v05_rules as rules

program = os.path.abspath(sys.argv.pop(1))
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "shared/data/imagenet_sample"


def run(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done


def numbered(text):
    """{tag: [values]} of a log."""
    log = {}
    for _, tag, value in rules.parse(text.splitlines(), []):
        log.setdefault(tag, []).append(value)
    return log


class MlPerf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        if SAMPLE.is_dir():
            cls.data = SAMPLE
        else:  # TFRecords of drawn images, in ImageNet's form
            run("data", "make-shapes", f"--output={root / 'drawn'}", "--train_count=48", "--validation_count=24")
            # By way of folders, which count their classes from 0 whatever the form that they become has.
            run("data", "convert", f"--from={root / 'drawn'}", "--to=folder", f"--output={root / 'folders'}")
            run("data", "convert", f"--from={root / 'folders'}", "--to=tfrecord", "--data_name=imagenet", f"--output={root / 'records'}")
            cls.data = root / "records"
        done = run(*cls.flags(), f"--data_dir={cls.data}", "--data_name=imagenet")
        cls.log = done.stderr
        cls.stdout = done.stdout

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def flags():
        return ["--model=resnet50_v1.5", "--device=cpu", "--num_classes=1001", "--batch_size=2", "--num_warmup_batches=0",
                "--num_batches=2", "--num_eval_batches=3", "--eval_during_training_every_n_steps=1", "--nodistortions",
                "--weight_decay=0.5", "--optimizer=momentum", "--momentum=0.5", "--stop_at_top_1_accuracy=0.95", "--ml_perf",
                "--tf_random_seed=9876", "--ml_perf_compliance_logging"]

    def test_a_run_keeps_the_rules(self):
        self.assertEqual(rules.check(self.log.splitlines()), [])
        self.assertNotIn(":::MLP", self.stdout)

    def test_a_run_of_synthetic_images_keeps_the_rules(self):
        done = run(*self.flags(), "--data_name=imagenet")
        self.assertEqual(rules.check(done.stderr.splitlines(), with_data=False), [])

    def test_it_says_what_the_run_is(self):
        log = numbered(self.log)
        # Twice: of the training, and of its evaluations.
        self.assertEqual(log["run_set_random_seed"], [9876, 9876])
        self.assertEqual(log["input_order"], [None, None])
        self.assertEqual(log["input_resize"], [[224, 224]] * 2)
        self.assertEqual(log["input_mean_subtraction"], [[123.68, 116.78, 103.94]] * 2)
        self.assertEqual(log["input_resize_aspect_preserving"], [{"min": 256}])
        self.assertEqual(log["input_central_crop"], [[224, 224]])
        self.assertEqual(log["input_batch_size"], [2])
        self.assertEqual(log["input_size"], [2, 2])
        self.assertEqual(log["eval_size"], [6, 6])
        self.assertEqual(log["eval_target"], [0.95, 0.95])
        self.assertEqual(log["opt_momentum"], [0.5])
        self.assertEqual(log["opt_weight_decay"], [0.5])
        self.assertEqual(log["model_l2_regularization"], [0.5])
        self.assertEqual(log["opt_learning_rate"], [0.0])  # of step 0, within the warm-up
        accuracies = [float(text) for text in re.findall(r"Accuracy @ 1 = ([0-9.]+)", self.stdout)]
        for line, shown in zip(log["eval_accuracy"], accuracies, strict=True):
            self.assertAlmostEqual(line["value"], shown, delta=5e-5)
        # ResNet-50: 16 blocks, 4 with a projection, 53 convolutions and norms; twice.
        self.assertEqual(len(log["model_hp_begin_block"]), 2 * 16)
        self.assertEqual(len(log["model_hp_projection_shortcut"]), 2 * 4)
        self.assertEqual(len(log["model_hp_conv2d_fixed_padding"]), 2 * 2 * 53)
        self.assertEqual([norm["training"] for norm in log["model_hp_batch_norm"]], [True] * 53 + [False] * 53)
        self.assertEqual(log["model_hp_initial_max_pool"], ["(64, 112, 112) -> (64, 56, 56)"] * 2)
        self.assertEqual(log["model_hp_end_block"][15], " Block Output: (2048, 7, 7)")

    def test_each_line_is_needed(self):
        """A log without a line, with a line twice, or with two that changed places is found out where the rules say so."""
        lines = [line for line in self.log.splitlines() if line.startswith(":::MLP")]
        once = set(rules.EXACTLY_ONE)
        turns = {"eval_start", "eval_stop", "eval_accuracy", "eval_size", "eval_target", "model_hp_begin_block",
                 "model_hp_end_block", "model_hp_shorcut_add", "model_hp_block_type"}
        count = {tag: len(values) for tag, values in numbered(self.log).items()}
        for index, line in enumerate(lines):
            tag = rules.LINE.match(line).group(5)
            needed = tag in once or tag in turns or (count[tag] == 1 and tag in rules.AT_LEAST_ONE + rules.AT_LEAST_ONE_OF_DATA)
            if needed:
                self.assertTrue(rules.check(lines[:index] + lines[index + 1:]), f"without {line}")
            if tag in once or tag in turns:
                self.assertTrue(rules.check(lines[:index + 1] + lines[index:]), f"twice {line}")

    def test_wrong_values_and_orders_are_found(self):
        def changed(old, new, count=1):
            text = re.sub(old, new, self.log, count=count)
            self.assertNotEqual(text, self.log, old)
            return rules.check(text.splitlines())

        for old, new in [
                (r'"success": false', '"success": true'),  # no evaluation has reached the target
                (r'"success": false', '"success": 0'),
                (r"_with_momentum\"", '"'),
                (r"categorical_cross_entropy", "hinge"),
                (r"exclude_bn_from_l2: true", "exclude_bn_from_l2: false"),
                (r"input_batch_size: 2", "input_batch_size: 0"),
                (r"input_batch_size: 2", 'input_batch_size: "2"'),
                (r"eval_size: 6", "eval_size"),
                (r'"value": [0-9.]+', '"value": 1.5'),
                (r"eval_target: 0.95", "eval_target: 0.5"),
                (r'"momentum": 0.9', '"momentum": 0.99'),
                (r"123\.68", "123.7"),
                (r"train_epoch: \S+", "train_epoch: 7"),
                (r":::MLPv0\.5\.0 resnet", ":::MLPv0.5.0 ssd"),
                (r":::MLPv0\.5\.0 resnet", ":::MLPv0.6.0 resnet"),
                (r"\(trainyard[^)]*\)", ""),
                (r"resnet \d+\.\d+", "resnet 12"),
                (r"model_hp_relu", "model_hp_rely"),
                (r"(run_set_random_seed): 9876", r"\1: {"),
        ]:
            self.assertTrue(changed(old, new), f"{old} -> {new}")

        lines = [line for line in self.log.splitlines() if line.startswith(":::MLP")]
        tags = [rules.LINE.match(line).group(5) for line in lines]
        # Lines that change places keep the times of their places.
        for first, second in [("run_start", "run_set_random_seed"), ("eval_start", "eval_stop"), ("run_stop", "run_final"),
                              ("train_loop", "opt_name"), ("eval_size", "eval_accuracy")]:
            a, b = tags.index(first), tags.index(second)
            swapped = list(lines)
            swapped[a], swapped[b] = lines[b], lines[a]
            times = [line.split(" ")[2] for line in lines]
            swapped = [" ".join(line.split(" ")[:2] + [time] + line.split(" ")[3:]) for line, time in zip(swapped, times)]
            self.assertTrue(rules.check(swapped), f"{first} and {second} in other places")
        self.assertTrue(rules.check(list(reversed(lines))), "backwards")
        self.assertTrue(rules.check([]), "an empty log")


class MlPerfSsd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "boxed"
            run("data", "make-shapes", "--boxes", f"--output={data}", "--train_count=4", "--validation_count=2")
            done = run("--model=ssd300", "--device=cpu", "--data_name=coco", f"--data_dir={data}", "--batch_size=2",
                       "--num_warmup_batches=0", "--num_batches=2", "--num_eval_batches=1", "--eval_during_training_every_n_steps=1",
                       "--weight_decay=0.0005", "--optimizer=momentum", "--momentum=0.9", "--stop_at_top_1_accuracy=0.9",
                       "--ml_perf_compliance_logging")
        cls.log, cls.stdout = done.stderr, done.stdout

    def test_a_run_keeps_the_rules(self):
        self.assertEqual(rules.check_ssd(self.log.splitlines()), [])
        self.assertNotIn(":::MLP", self.stdout)

    def test_it_says_what_the_run_is(self):
        log = {}
        for _, tag, value in rules.parse(self.log.splitlines(), [], "ssd", rules.SSD_TAGS):
            log.setdefault(tag, []).append(value)
        self.assertEqual(log["input_batch_size"], [2])
        self.assertEqual(log["input_size"], [300, 2, 2])  # pixels, then images that were trained on
        self.assertEqual(log["eval_size"], [2, 2])
        self.assertEqual(log["eval_target"], [0.9, 0.9])
        self.assertEqual(log["eval_start"], [0, 1])  # epochs
        self.assertEqual(log["opt_weight_decay"], [0.0005])
        self.assertEqual([line["iteration"] for line in log["eval_iteration_accuracy"]], [1, 2])
        shown = [float(text) for text in re.findall(r"Current AP: (-?[0-9.]+)", self.stdout)]
        for line, number in zip(log["eval_accuracy"], shown, strict=True):
            self.assertAlmostEqual(line["value"], number, delta=5e-6)

    def test_each_line_is_needed(self):
        lines = [line for line in self.log.splitlines() if line.startswith(":::MLP")]
        count = {}
        for line in lines:
            tag = rules.LINE.match(line).group(5)
            count[tag] = count.get(tag, 0) + 1
        for index, line in enumerate(lines):
            tag = rules.LINE.match(line).group(5)
            if count[tag] == 1 or tag.startswith("eval_"):
                self.assertTrue(rules.check_ssd(lines[:index] + lines[index + 1:]), f"without {line}")
        self.assertTrue(rules.check_ssd(self.log.replace("ssd", "resnet").splitlines()))
        self.assertTrue(rules.check_ssd(self.log.replace("8732", "8731").splitlines()))
        self.assertTrue(rules.check_ssd([]))


if __name__ == "__main__":
    unittest.main()
