#!/usr/bin/env python3
"""What a run is: the same bits after a pause, whatever the machine's measurements say then, and whatever is kept in memory;
and the memory that it announces.

Usage: scripts/test_python tests/run_identity_test.py PROGRAM (build/trainyard).
"""
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

program = os.path.abspath(sys.argv.pop(1))


def reversed_choices(text):
    """A file of measured convolutions with another algorithm for each that was tried, and how many there were."""
    head, *lines = text.splitlines()
    swapped = []
    for algorithm, description, *tried in (line.split("\t") for line in lines):
        others = [name for name in (time.split("=")[0] for time in tried) if name != algorithm]
        # Of one that was not measured only these two are known to be there.
        other = others[0] if others else "direct" if algorithm != "direct" else "winograd4"
        swapped.append("\t".join([other, description, *tried]))
    return "\n".join([head, *swapped]) + "\n", len(lines)


class RunIdentity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.cache = self.root / "cache"

    def train(self, *flags, environment=None):
        """Output and peak memory in bytes."""
        output = self.root / "output.txt"
        arguments = [program, "train", "--device=cpu", "--num_warmup_batches=0", "--init_learning_rate=0.05", *flags]
        with open(output, "wb") as file:
            child = os.posix_spawn(program, arguments, {**os.environ, "XDG_CACHE_HOME": str(self.cache), **(environment or {})},
                                   file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, file.fileno(), 2)])
            _, status, usage = os.wait4(child, 0)
        text = output.read_text()
        self.assertEqual(status, 0, text)
        return text, usage.ru_maxrss * 1024

    def resnet20(self, train_dir, steps, *flags):
        self.train("--model=resnet20", "--data_name=cifar10", "--synthetic", "--batch_size=8", f"--num_batches={steps}",
                   f"--train_dir={self.root / train_dir}", *flags)

    def tensors(self, train_dir, step):
        return (self.root / train_dir / f"model.ckpt-{step}" / "tensors.bin").read_bytes()

    def reverse_cache(self):
        count = 0
        for file in self.cache.glob("trainyard/convolutions-*.txt"):
            text, count = reversed_choices(file.read_text())
            file.write_text(text)
        return count

    def test_a_resumed_run_keeps_its_convolutions(self):
        self.resnet20("straight", 4)
        self.resnet20("halves", 2)
        for again in ("unchanged", "reversed", "gone"):
            shutil.copytree(self.root / "halves", self.root / again)
        self.resnet20("unchanged", 4)
        self.assertEqual(self.tensors("unchanged", 4), self.tensors("straight", 4))
        if self.reverse_cache() == 0:
            return  # a processor without AVX-512: there is one algorithm
        self.resnet20("reversed", 4)
        self.assertEqual(self.tensors("reversed", 4), self.tensors("straight", 4))
        # It is the checkpoint that holds them: a run from the start follows the file.
        self.resnet20("another", 4)
        self.assertNotEqual(self.tensors("another", 4), self.tensors("straight", 4))
        shutil.rmtree(self.cache)
        self.resnet20("gone", 4)
        self.assertEqual(self.tensors("gone", 4), self.tensors("straight", 4))

    def test_deterministic_measures_nothing(self):
        self.resnet20("first", 2, "--deterministic")
        self.assertEqual(list(self.cache.glob("trainyard/convolutions-*.txt")), [])
        self.resnet20("measured", 2)
        self.reverse_cache()
        self.resnet20("second", 2, "--deterministic")
        self.assertEqual(self.tensors("first", 2), self.tensors("second", 2))

    def test_recomputation_changes_no_bit(self):
        for model in ("resnet20", "densenet40_k12"):
            for precision in ((), ("--use_bf16",)):
                found = {}
                for recompute in ("none", "elementwise", "blocks"):
                    folder = f"{model}-{recompute}-{len(precision)}"
                    self.train(f"--model={model}", "--data_name=cifar10", "--synthetic", "--batch_size=4", "--num_batches=2", "--deterministic",
                               f"--train_dir={self.root / folder}", f"--recompute={recompute}", *precision)
                    found[recompute] = self.tensors(folder, 2)
                self.assertEqual(found["elementwise"], found["none"], (model, precision))
                self.assertEqual(found["blocks"], found["none"], (model, precision))

    def test_the_memory_that_is_announced_is_the_memory_that_is_used(self):
        for flags in ((), ("--use_bf16",), ("--recompute=elementwise",), ("--recompute=blocks",), ("--variable_update=replicated", "--num_gpus=2")):
            text, peak = self.train("--model=resnet20", "--data_name=cifar10", "--synthetic", "--train_dir=", "--batch_size=256", "--num_batches=2",
                                    "--deterministic", *flags)
            announced = int(re.search(r"memory: .*; (\d+) MiB in all", text).group(1)) * 2**20
            self.assertAlmostEqual(announced / peak, 1, delta=0.1, msg=f"{flags}: {announced} announced, {peak} used\n{text}")

    def test_recomputation_is_the_plans(self):
        with self.assertRaisesRegex(AssertionError, "--recompute"):
            self.resnet20("reference", 1, "--executor=reference", "--recompute=blocks")


if __name__ == "__main__":
    unittest.main()
