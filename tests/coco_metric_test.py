#!/usr/bin/env python3
"""Our metric of COCO has the bits of pycocotools, on 10,000 random cases and on the shared sample of COCO.

Usage: scripts/test_python tests/coco_metric_test.py TEST_PROGRAM (trainyard_train_test).
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from pycocotools.coco import COCO

from coco_cases import evaluated, line_and_numbers, line_of

CASES = 10_000
NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "ARmax1", "ARmax10", "ARmax100", "ARs", "ARm", "ARl")
SHARED = pathlib.Path(os.environ.get("TRAINYARD_SHARED_DATA", "../shared/data")) / "coco_tiny"
program = os.path.abspath(sys.argv.pop(1))


def ours(lines):
    """Our numbers of cases, each a list of twelve."""
    with tempfile.TemporaryDirectory() as folder:
        cases, results = pathlib.Path(folder, "cases.txt"), pathlib.Path(folder, "results.txt")
        cases.write_text("\n".join(lines) + "\n")
        subprocess.run([program, "--gtest_filter=CocoMetric.EvaluatesCasesOfAFile"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TRAINYARD_COCO_CASES": str(cases), "TRAINYARD_COCO_RESULTS": str(results)})
        return [[float.fromhex(word) for word in line.split()] for line in results.read_text().splitlines()]


class CocoMetric(unittest.TestCase):
    def test_random_cases_have_the_same_bits(self):
        with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            cases = list(pool.map(line_and_numbers, range(CASES), chunksize=100))
        found = ours([line for line, _ in cases])
        self.assertEqual(len(found), CASES)
        for seed, ((_, expected), actual) in enumerate(zip(cases, found)):
            self.assertEqual(expected, actual, f"case {seed} of tests/coco_cases.py")
        # The cases are of use: most have a precision between 0 and 1, and all numbers take many values.
        self.assertGreater(sum(0 < numbers[0] < 1 for _, numbers in cases), CASES // 4)
        for index, name in enumerate(NAMES):
            self.assertGreater(len({numbers[index] for _, numbers in cases}), 20, name)

    @unittest.skipUnless(SHARED.exists(), f"needs the shared data {SHARED} (set TRAINYARD_SHARED_DATA)")
    def test_images_of_coco_have_the_same_bits(self):
        draw = random.Random(5)
        for subset in ("train", "val"):
            path = SHARED / "annotations" / f"instances_{subset}2017.json"
            content = json.loads(path.read_text())
            categories = [category["id"] for category in content["categories"]]
            detections = []
            for box in content["annotations"]:
                for _ in range(draw.randint(0, 4)):
                    detections.append({"image_id": box["image_id"],
                                       "category_id": box["category_id"] if draw.random() < 0.9 else draw.choice(categories),
                                       "bbox": [value * draw.uniform(0.8, 1.2) for value in box["bbox"]],
                                       "score": draw.choice((draw.random(), 0.5))})
            with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
                truth = COCO(str(path))
            expected = evaluated(truth, detections)
            line = line_of(([image["id"] for image in content["images"]], categories,
                            [[box["id"], box["image_id"], box["category_id"], *box["bbox"], box["area"], box["iscrowd"]]
                             for box in content["annotations"]],
                            [[found["image_id"], found["category_id"], *found["bbox"], found["score"]] for found in detections]))
            self.assertEqual([expected], ours([line]), subset)
            self.assertGreater(expected[0], 0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
