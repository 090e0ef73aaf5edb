#!/usr/bin/env python3
"""The recipes of recipes/*.yaml against their originals, whose numbers tools/golden/recipes.py has written: the learning rate at
each epoch or step, the size of the images in each epoch, and the operations on images. Every recipe can be read, and begins.

Usage: tests/recipes/recipes_test.py PROGRAM (build/trainyard)
"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import recipe_files

program = os.path.abspath(sys.argv.pop(1))
originals = json.loads((pathlib.Path(__file__).parent / "originals.json").read_text())["recipes"]
recipes = {path.stem: path for path in sorted(recipe_files.RECIPES.glob("*.yaml"))}
# Models that a program of examples/ adds, which the program itself does not know.
OF_EXAMPLES = {"boxed_shapes_small_ssd"}
IMAGES, BATCH = 64, 8


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)


class Recipes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.images = recipe_files.make_images(program, cls.path, IMAGES, 32)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, name, *arguments, batch=BATCH):
        """`trainyard train` of a recipe with 64 images in steps of 8, without a run's folder."""
        data = ["--synthetic"] if batch is None else [f"--data_dir={self.images}", f"--batch_size={batch}", "--micro_steps=1"]
        done = run("train", f"--config={recipes[name]}", "--device=cpu", "--train_dir=", *data, *arguments)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
        return done.stdout

    def test_each_recipe_of_a_known_training_has_an_original(self):
        self.assertEqual(set(originals), {name for name in recipes if name.startswith("imagenet_")})

    def test_each_recipe_is_read(self):
        models = run("models").stdout.split()
        for name, path in recipes.items():
            with self.subTest(name):
                flags = recipe_files.read(path)
                said = recipe_files.header(path)
                self.assertIn(f"--config=recipes/{path.name}", said)
                self.assertIn("--data_dir=", said)
                if name.startswith("imagenet_"):
                    for part in "Source: ", "Known result: ", "Differs: " if originals[name]["differences"] else "":
                        self.assertIn(part, said)
                if name in OF_EXAMPLES:
                    continue
                self.assertTrue("model" not in flags or flags["model"] in models, flags.get("model"))
                dumped = run("train", f"--config={path}", "--dump_config")
                self.assertEqual(dumped.returncode, 0, dumped.stderr)
                for flag in flags:
                    self.assertRegex(dumped.stdout, rf"(?m)^{flag}: ")

    def test_each_recipe_begins(self):
        for name, path in recipes.items():
            if not name.startswith("imagenet_"):
                continue
            with self.subTest(name):
                size = (["--progressive_sizes=0:32,1:64"] if "progressive_sizes" in recipe_files.read(path) else ["--image_size=64"])
                out = self.train(name, *size, "--eval_resize_size=64", "--eval_during_training_every_n_epochs=1000",
                                 "--stop_after_epochs=0.125", "--display_every=1", batch=4)
                self.assertRegex(out, r"(?m)^2\s+images/sec")

    def test_rates_are_the_originals(self):
        for name, original in originals.items():
            with self.subTest(name):
                of_imagenet = original["by"] == "imagenet"
                self.train(name, f"--plot_schedule={self.path / 'rate.svg'}", batch=None if of_imagenet else BATCH)
                with open(self.path / "rate.csv") as file:
                    ours = [float(row["learning_rate"]) for row in csv.DictReader(file)]
                if of_imagenet:
                    expected = {int(step): rate for step, rate in original["rates"].items()}
                    self.assertGreater(len(expected), 100)
                else:
                    held = IMAGES // BATCH if original["by"] == "epoch" else 1
                    expected = dict(enumerate(rate for rate in original["rates"] for _ in range(held)))
                    self.assertEqual(len(ours), len(expected))
                for step, rate in expected.items():
                    self.assertAlmostEqual(ours[step], rate, delta=1e-9 * rate + 1e-11 * max(ours), msg=f"step {step}")

    def test_numbers_are_the_originals(self):
        for name, original in originals.items():
            with self.subTest(name):
                dumped = run("train", f"--config={recipes[name]}", "--dump_config").stdout
                ours = dict(re.findall(r"(?m)^(?:# )?(\w+): (\S+)", dumped))  # defaults are comments
                numbers = dict(original["numbers"])
                self.assertEqual(int(ours["batch_size"]) * int(ours["micro_steps"]), numbers.pop("batch"))
                if original["by"] != "imagenet":
                    self.assertEqual(float(ours["num_epochs"]), len(original["sizes"]))
                for number, value in numbers.items():
                    self.assertAlmostEqual(float(ours[number]), value, delta=1e-9 * value, msg=number)

    def test_operations_are_the_originals(self):
        for name, original in originals.items():
            with self.subTest(name):
                said = self.train(name, "--describe_input", batch=None if original["by"] == "imagenet" else BATCH)
                sections = re.split(r"(Training images|Batches|Validation images):\n", said)
                ours = {sections[i]: [line.strip() for line in sections[i + 1].splitlines()] for i in (1, 3, 5)}
                size = r"(\d+)x\1"
                train = ours["Training images"]
                resized = [re.fullmatch(rf"resize {size}( .*)", line) for line in train]
                own_size = next(match.group(1) for match in resized if match)
                train = [f"resize SIZE{match.group(2)}" if match else line for match, line in zip(resized, train)]
                sizes = {0: int(own_size)}
                batches = []
                for line in ours["Batches"]:
                    grown = re.fullmatch(rf"size {size} from epoch (\d+)", line)
                    if grown:
                        sizes[int(grown.group(2))] = int(grown.group(1))
                    elif line != "none":
                        batches.append(line)
                epochs = range(len(original["sizes"]))
                self.assertEqual([sizes[max(e for e in sizes if e <= epoch)] for epoch in epochs], original["sizes"])
                differences = original["differences"]
                left = set(differences)

                def as_here(lines):
                    left.difference_update(lines)
                    here = [differences.get(line, line) for line in lines]
                    return [line for line in here if line is not None]

                self.assertEqual(train, as_here(original["train"]))
                self.assertEqual(batches, as_here(original["batches"]))
                self.assertEqual(ours["Validation images"], as_here(original["validation"]))
                self.assertEqual(left, set(), "differences that are none")


if __name__ == "__main__":
    unittest.main()
