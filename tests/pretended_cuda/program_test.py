#!/usr/bin/env python3
"""The program on the pretended GPU: what it calls in a step, what is captured, memory that runs out, pauses.

Usage: program_test.py PROGRAM (build-cuda/trainyard_pretended_cuda_program).
"""
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
RESNET20 = ("--model=resnet20", "--data_name=cifar10", "--batch_size=4")
# What a step that does not wait for the device leaves alone.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy", "cudaMalloc", "cudaFree", "cudaHostAlloc",
         "cudaFreeHost", "pageable copies")
# What is never right.
MISTAKES = ("mistakes", "launches on the default stream", "launches beside a capture",
            "waits for an event that was never recorded")


class Run:
    def __init__(self, *flags, memory_mib=8192, interrupt_after=None):
        with tempfile.TemporaryDirectory() as folder:
            counts = pathlib.Path(folder, "counts.json")
            # No kernel computes what the host reads: a loss of 0 instead of whatever lies there.
            child = subprocess.Popen(
                [program, "train", "--device=gpu", "--display_every=1000",
                 *([] if any(flag.startswith("--data_dir") for flag in flags) else ["--synthetic"]),
                 *([] if any(flag.startswith("--train_dir") for flag in flags) else ["--train_dir="]), *flags], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PRETENDED_CUDA_ZERO_SCALARS": "1", "PRETENDED_CUDA_MEMORY_MIB": str(memory_mib),
                     "PRETENDED_CUDA_COUNTS": str(counts),
                     # LibTorch's own kernels: the cuDNN that is pretended has no attention.
                     "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"})
            self.output = ""
            for line in child.stdout:
                self.output += line
                if interrupt_after is not None and interrupt_after in line:
                    time.sleep(0.3)
                    child.send_signal(signal.SIGINT)
                    interrupt_after = None
            child.stdout.close()
            self.status = child.wait(timeout=250)
            self.counts = json.loads(counts.read_text())

    def __getitem__(self, name):
        return self.counts.get(name, 0)


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, *flags, status=0, **settings):
        run = Run(*flags, **settings)
        self.assertEqual(run.status, status, run.output)
        self.assertEqual({name: run[name] for name in MISTAKES}, dict.fromkeys(MISTAKES, 0), run.output)
        return run

    def steps(self, *flags):
        """Counts of ten steps behind the first sixteen."""
        few, many = (self.train(*flags, "--num_warmup_batches=6", f"--num_batches={steps}") for steps in (10, 20))
        return {name: many[name] - few[name] for name in many.counts}, many

    def check_steps(self, *flags):
        for capture in (False, True):
            with self.subTest(flags=flags, capture=capture):
                counts, run = self.steps(*flags, *(["--xla"] if capture else []))
                self.assertEqual({name: counts.get(name, 0) for name in WAITS}, dict.fromkeys(WAITS, 0))
                # The host waits for the step before the last, and nothing else.
                self.assertEqual(counts["cudaEventSynchronize"], 10)
                self.assertEqual("the step is captured" in run.output, capture, run.output)
                self.assertEqual(counts.get("cudaGraphLaunch", 0), 10 if capture else 0)
                if capture:  # all is in the graph but the numbers that a step starts with
                    self.assertEqual(counts["launches"], 10)
                self.assertEqual(run["captures begun"], run["captures ended"])

    def test_no_step_waits_for_the_device(self):
        self.check_steps(*RESNET20)
        self.check_steps(*RESNET20, "--use_fp16", "--fp16_enable_auto_loss_scale", "--weight_decay=1e-4")
        self.check_steps(*RESNET20, "--deterministic", "--optimizer=momentum", "--gradient_clip=1")

    def test_models_of_each_family(self):
        for model in ("resnet50", "mobilenet_v2", "vgg16", "densenet121", "inception_v3"):
            self.check_steps(f"--model={model}", "--batch_size=2")
        for model in ("vit_b_16", "swin_t"):
            self.check_steps(f"--model={model}", "--batch_size=2", "--use_fp16")

    def test_micro_steps_run_as_they_are(self):
        counts, run = self.steps(*RESNET20, "--micro_steps=2", "--xla")
        self.assertEqual({name: counts.get(name, 0) for name in WAITS}, dict.fromkeys(WAITS, 0))
        self.assertIn("steps are not captured: micro-steps", run.output)

    def test_a_batch_that_does_not_fit_says_which_does(self):
        flags = ("--model=resnet50", "--num_batches=3", "--num_warmup_batches=0")
        text = self.train(*flags, "--batch_size=64", memory_mib=2000, status=1).output
        found = re.search(r"expected room for (\S+) GiB more, got (\S+) GiB held by this process \((\S+) GiB in tensors\), "
                          r"(\S+) GiB free of 1.95 GiB; a batch of about (\d+) fits", text)
        self.assertTrue(found, text)
        asked, held, tensors, free = map(float, found.groups()[:4])
        self.assertGreater(asked, 0.01)
        self.assertAlmostEqual(held + free, 1.95, delta=0.02)
        self.assertGreater(tensors, 0.8 * held)
        self.train(*flags, f"--batch_size={found.group(5)}", memory_mib=2000)

    def test_what_is_no_step_says_so_too(self):
        text = self.train("--model=resnet50", "--batch_size=2", "--num_batches=2", memory_mib=60, status=1).output
        self.assertRegex(text, r"error out of GPU memory: .*expected room for 0.10 GiB more, got 0.00 GiB held .* of 0.06 GiB; use")
        text = self.train("--model=resnet50", "--batch_size=64", "--forward_only", "--num_batches=2", memory_mib=300,
                          status=1).output
        self.assertRegex(text, r"out of GPU memory with a batch of 64: .* a batch of about \d+ fits")

    def test_a_recording_that_does_not_fit_is_left_out(self):
        run = self.train("--model=resnet50", "--batch_size=4", "--num_batches=8", "--xla", memory_mib=700)
        self.assertIn("steps are not captured: CUDA out of memory", run.output)
        self.assertEqual(run["cudaGraphLaunch"], 0)

    def test_a_recording_fits_where_its_step_does(self):
        run = self.train("--model=resnet50", "--batch_size=4", "--num_batches=8", "--xla", memory_mib=800)
        self.assertIn("the step is captured", run.output)

    def test_part_of_the_memory_and_all_of_it(self):
        self.assertIn("out of GPU memory", self.train("--model=resnet50", "--batch_size=8", "--num_batches=2", status=1,
                                                      *["--gpu_memory_frac_for_testing=0.05"]).output)
        counts, run = self.steps(*RESNET20, "--noallow_growth")
        self.assertIn("of its memory at once", run.output)
        self.assertEqual(counts.get("cudaMalloc", 0), 0)

    def test_checkpoints_evaluation_and_a_pause(self):
        flags = (*RESNET20, f"--train_dir={self.folder}", "--xla", "--use_fp16", "--fp16_enable_auto_loss_scale")
        self.train(*flags, "--num_batches=6", "--save_model_steps=3", "--eval_during_training_every_n_steps=4",
                   "--num_eval_batches=2", "--num_warmup_batches=0")
        again = self.train(*flags, "--num_batches=9", "--num_warmup_batches=0")
        self.assertIn("continuing from", again.output)
        self.assertTrue((self.folder / "model.ckpt-9").exists(), list(self.folder.iterdir()))
        evaluated = self.train(*RESNET20, f"--train_dir={self.folder}", "--eval", "--num_batches=2")
        self.assertIn("Accuracy @ 1", evaluated.output)
        paused = self.train(*flags, "--num_batches=1000000", "--num_warmup_batches=0", status=75,
                            interrupt_after="the step is captured")
        saved = max(int(path.name.split("-")[1]) for path in self.folder.glob("model.ckpt-*"))
        self.assertGreater(saved, 9, paused.output)

    def test_a_fine_tuning_leaves_out_what_needs_the_hosts_memory(self):
        shapes, start, tuned = (self.folder / name for name in ("shapes", "start", "tuned"))
        subprocess.run([program, "data", "make-shapes", f"--output={shapes}", "--train_count=64", "--validation_count=8"],
                       check=True, stdout=subprocess.DEVNULL)
        flags = (f"--data_dir={shapes}", "--batch_size=4", "--num_batches=3")
        self.train("--model=resnet20", *flags, f"--train_dir={start}")
        text = self.train("--finetune", f"--weights={start}", *flags, f"--train_dir={tuned}").output
        self.assertIn("--optimizer=torch_adamw", text)
        self.assertIn("the last layer learns as fast as all others", text)
        self.assertIn("all layers train from the first epoch", text)
        self.assertNotIn("--parameter_groups", text)
        self.assertTrue((tuned / "model.ckpt-3").exists(), text)


if __name__ == "__main__":
    unittest.main()
