#!/usr/bin/env python3
"""What the processes of a training share: the same start, checkpoints of rank 0, one end, evaluations, and the input.

Usage: python3 tests/processes/ranks_test.py PROGRAM FRONTENDS_TEST (build/trainyard build/trainyard_frontends_test).
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import stop_ranks

program = os.path.abspath(sys.argv.pop(1))
recipes_test = os.path.abspath(sys.argv.pop(1))

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
TRAIN = ["train", "--device=cpu", "--num_warmup_batches=0", "--num_intra_threads=1", "--deterministic"]


def environment(**more):
    # mpirun refuses root, which containers run tests as, unless it is told twice.
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", **more}


def complete(arguments):
    """The command, with synthetic images and without a folder for the run where it asks for neither."""
    names = {argument.split("=")[0] for argument in arguments}
    more = [flag for flag, asked in (("--synthetic", "--data_dir"), ("--train_dir=", "--train_dir")) if asked not in names]
    return [*arguments, *(more if arguments[0] == "train" else [])]


def weights(checkpoint):
    """The float32 tensors of a checkpoint's model by name."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    data = (checkpoint / "tensors.bin").read_bytes()
    return {entry["name"]: struct.unpack_from(f"<{entry['bytes'] // 4}f", data, entry["offset"])
            for entry in manifest["tensors"] if entry["name"].startswith("model/") and entry["dtype"] == "float32"}


def furthest(one, other):
    return max(abs(a - b) for name in one for a, b in zip(one[name], other[name]))


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.more = environment(XDG_CACHE_HOME=str(self.root / "cache"))

    def run_ranks(self, ranks, *flags, cwd=None):
        """ranks: a number of processes, or a list of flags for each. Returns the exit code, and the output of all."""
        command = [*MPIRUN]
        if isinstance(ranks, int):
            command += ["-n", str(ranks), program, *complete(flags)]
        else:
            for own in ranks:
                command += [":"] * (own is not ranks[0]) + ["-n", "1", program, *complete([*flags, *own])]
        result = subprocess.run(command, env=self.more, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        return result.returncode, result.stdout

    def train(self, ranks, *flags, code=0):
        returned, output = self.run_ranks(ranks, *TRAIN, *flags)
        self.assertEqual(returned, code, output)
        return output

    def shapes(self, name, validation_count=64, train_count=96, seed=1):
        folder = self.root / name
        subprocess.run([program, "data", "make-shapes", f"--output={folder}", f"--train_count={train_count}", f"--seed={seed}",
                        f"--validation_count={validation_count}"], check=True, capture_output=True)
        return folder

    def folders(self, name, **more):
        """Shapes as images in a folder for each class."""
        folder = self.root / name
        subprocess.run([program, "data", "convert", f"--from={self.shapes(f'{name}-shapes', validation_count=50, **more)}",
                        "--data_name=shapes", "--to=folder", f"--output={folder}"], check=True, capture_output=True)
        return folder


class Start(Processes):
    """One difference each is refused on all ranks, which name it, and quickly."""

    def refused(self, ranks, *flags):
        began = time.monotonic()
        code, output = self.run_ranks(ranks, *TRAIN, "--variable_update=horovod", "--num_batches=2", *flags)
        self.assertEqual(code, 2, output)
        # From the start of mpirun on, which takes its time on a busy machine.
        self.assertLess(time.monotonic() - began, 30)
        return output

    def expect(self, item, first, other, ranks, *flags):
        output = self.refused(ranks, *flags)
        wanted = f"ranks begin differently: {item}"
        lines = [line for line in output.splitlines() if wanted in line]
        self.assertGreaterEqual(len(lines), 1, output)
        for line in lines:
            self.assertRegex(line, rf"rank 1: expected {re.escape(first)} as on rank 0, got {re.escape(other)}")

    def test_flags(self):
        self.expect("--init_learning_rate", "0.1", "0.2", [["--init_learning_rate=0.1"], ["--init_learning_rate=0.2"]],
                    "--model=trivial", "--data_name=cifar10")

    def test_modes_and_models(self):
        self.expect("--model", "trivial", "resnet20", [["--model=trivial"], ["--model=resnet20"]], "--data_name=cifar10")

    def test_instructions(self):
        code, output = self.run_ranks([[], ["--max_cpu_isa=avx2"]], *TRAIN, "--variable_update=horovod", "--num_batches=2",
                                      "--model=trivial", "--data_name=cifar10")
        self.assertEqual(code, 2, output)
        self.assertIn("as on rank 0", output)

    def test_data(self):
        one, more, other = self.shapes("one"), self.shapes("more", train_count=100), self.shapes("other", seed=2)
        flags = ["--model=resnet20", "--batch_size=4"]
        self.expect("training images", "96", "100", [[f"--data_dir={one}"], [f"--data_dir={more}"]], *flags)
        # As many images of the same classes: the sizes of the files tell.
        output = self.refused([[f"--data_dir={one}"], [f"--data_dir={other}"]], *flags)
        self.assertRegex(output, r"files of --data_dir .*rank 1: expected \d+ files, \d+ bytes")
        # The same files at another place are the same data.
        shutil.copytree(one, self.root / "copy")
        self.train([[f"--data_dir={one}"], [f"--data_dir={self.root / 'copy'}"]], "--variable_update=horovod", "--num_batches=2", *flags)


    def test_what_one_rank_alone_lacks(self):
        nowhere = self.root / "nowhere"
        # With recovery, so that mpirun lets the other one say what it heard.
        began = time.monotonic()
        command = [*MPIRUN, "--enable-recovery"]
        for data in (self.shapes("shapes"), nowhere):
            command += [":"] * (data == nowhere) + ["-n", "1", program, *TRAIN, "--model=resnet20", "--variable_update=horovod",
                                                    f"--data_dir={data}", "--train_dir="]
        output = subprocess.run(command, env=self.more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240).stdout
        self.assertLess(time.monotonic() - began, 60)
        self.assertRegex(output, rf"rank 1: data directory does not exist: rank 1 of 2: {nowhere}")
        self.assertRegex(output, rf"rank 0: another rank has failed: got rank 1: data directory does not exist: {nowhere}")


class Alone(Processes):
    """Processes that were started together and do not meet would each train as rank 0, and end with 0."""
    TOGETHER = ["--device=cpu", "--model=resnet20", "--data_name=cifar10", "--batch_size=4", "--num_batches=2", "--num_warmup_batches=0"]
    WITHOUT = ["sh", "-c", 'for name in $(env | grep -E "$0" | cut -d= -f1); do unset $name; done; exec "$@"']

    def modes(self):
        for update in ("horovod", "collective_all_reduce"):
            mode = f"--variable_update={update}"
            yield [*self.TOGETHER, mode]
            yield ["train", "--synthetic", *self.TOGETHER, mode, f"--train_dir={self.root / 'run'}"]
            yield ["eval", "--synthetic", "--device=cpu", "--model=resnet20", "--data_name=cifar10", mode, f"--train_dir={self.root / 'run'}"]
        yield ["train-ctl", "--model=trivial", "--precision=fp32", "--batch_size=8", "-u=batch", "-i=2", "--horovod"]

    def refused(self, command, text, **more):
        done = subprocess.run(command, env={**self.more, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(text, done.stdout)
        self.assertNotIn("images/sec", done.stdout)
        self.assertEqual(list(self.root.glob("run/model*")), [])

    def test_mpirun_without_its_variables(self):
        for flags in self.modes():
            for variables in ("^PMIX", "^(PMIX|OMPI_MCA)"):
                self.refused([*MPIRUN, "-n", "2", *self.WITHOUT, variables, program, *flags],
                             "2 processes were started, and 1 of them has met: each group would train alone")

    def test_another_mpi(self):
        for flags in self.modes():
            self.refused([program, *flags], "4 processes were started, and 1 of them has met", OMPI_COMM_WORLD_SIZE="4",
                         OMPI_COMM_WORLD_RANK="0")
        self.refused([*MPIRUN, "-n", "2", program, "train", "--synthetic", *self.TOGETHER, "--variable_update=horovod"],
                     "4 processes were started, and 2 of them have met", RANK="0", WORLD_SIZE="4")

    def test_copies_of_other_commands(self):
        for name, *flags in (["predict", "--model=lenet", "x.jpg"], ["export", "--model=lenet", "--output=x"],
                             ["data", "make-shapes", f"--output={self.root / 'shapes'}"], ["suite", "--list"]):
            self.refused([*MPIRUN, "-n", "2", program, name, *flags], f"2 processes were started, and each would run `trainyard {name}")
        self.assertFalse((self.root / "shapes").exists())

    def test_one_process_is_not_refused(self):
        leftover = {"PMI_SIZE": "1", "PMI_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}
        for flags in ([*self.TOGETHER, "--variable_update=horovod"], ["train", "--synthetic", "--train_dir=", *self.TOGETHER],
                      ["data", "make-shapes", f"--output={self.root / 'shapes'}", "--train_count=4", "--validation_count=4"]):
            done = subprocess.run([*MPIRUN, "-n", "1", program, *flags], env={**self.more, **leftover}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


class Checkpoints(Processes):
    FLAGS = ["--model=trivial", "--variable_update=collective_all_reduce", "--gradient_reduction=mean", "--optimizer=momentum",
             "--init_learning_rate=0.02"]

    def layout(self, processes, replicas, batch, folder, steps, *more):
        return self.train(processes, *self.FLAGS, f"--num_gpus={replicas}", f"--batch_size={batch}", f"--num_batches={steps}",
                          f"--train_dir={folder}", *more)

    def test_rank_0_alone_has_a_directory(self):
        own, nowhere = self.root / "own", self.root / "nowhere" / "run"
        ranks = [[f"--train_dir={own}"], [f"--train_dir={nowhere}"]]
        flags = [*self.FLAGS, "--data_name=cifar10", "--batch_size=2"]
        self.train(ranks, *flags, "--num_batches=2")
        output = self.train(ranks, *flags, "--num_batches=4")
        self.assertIn("continuing from " + str(own / "model.ckpt-2"), output)
        self.assertTrue((own / "model.ckpt-4").exists())
        self.assertFalse(nowhere.parent.exists())
        straight = self.root / "straight"
        self.train(2, *flags, "--num_batches=4", f"--train_dir={straight}")
        for file in ("tensors.bin",):
            self.assertEqual((own / "model.ckpt-4" / file).read_bytes(), (straight / "model.ckpt-4" / file).read_bytes())

    def test_other_layouts_go_on_with_the_same_global_batches(self):
        data = f"--data_dir={self.shapes('shapes')}"
        # Each rank updates all parameters here, and its part in the others: what a checkpoint holds is the same.
        self.layout(2, 2, 6, self.root / "straight", 12, data, "--sharded_update=false")
        self.layout(2, 2, 6, self.root / "half", 6, data)
        straight = weights(self.root / "straight" / "model.ckpt-12")
        names = [tensor["name"] for tensor in json.loads((self.root / "half" / "model.ckpt-6" / "manifest.json").read_text())["tensors"]]
        self.assertFalse([name for name in names if "rank" in name or "replica" in name])
        moved = furthest(straight, weights(self.root / "half" / "model.ckpt-6"))
        for processes, replicas, batch in ((2, 2, 6), (4, 1, 6), (1, 4, 6), (1, 3, 8), (3, 1, 8)):
            folder = self.root / f"{processes}x{replicas}"
            shutil.copytree(self.root / "half", folder)
            self.layout(processes, replicas, batch, folder, 12, data, f"--sharded_update={'false' if (processes, batch) == (4, 6) else 'true'}")
            here = folder / "model.ckpt-12"
            if batch == 6:  # the same batches a replica, added in the same order
                self.assertEqual((here / "tensors.bin").read_bytes(), (self.root / "straight" / "model.ckpt-12" / "tensors.bin").read_bytes(),
                                 folder.name)
            # Means of other parts of the same batches differ by rounding; other batches would move the weights elsewhere.
            self.assertLess(furthest(weights(here), straight), 1e-4 * moved, folder.name)

    def test_what_rank_0_cannot_read_ends_all(self):
        folder = self.root / "run"
        flags = [*self.FLAGS, "--data_name=cifar10", "--batch_size=2", f"--train_dir={folder}"]
        self.train(2, *flags, "--num_batches=2")
        tensors = folder / "model.ckpt-2" / "tensors.bin"
        data = bytearray(tensors.read_bytes())
        data[len(data) // 2] ^= 1
        tensors.write_bytes(data)
        output = self.train(2, *flags, "--num_batches=4", code=1)
        self.assertRegex(output, r"rank 0: .*model\.ckpt-2")


class Ends(Processes):
    def test_a_signal_to_one_rank_or_to_all_ends_all_after_the_same_step(self):
        script = pathlib.Path(__file__).parent / "stop_ranks.py"
        result = subprocess.run([sys.executable, script, program, "--runs=4"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=900)
        self.assertEqual(result.returncode, 0, result.stdout)


class SlowRank(Processes):
    def test_a_rank_that_keeps_the_others_waiting_is_named(self):
        says_who = 'echo "rank $OMPI_COMM_WORLD_RANK is $$"; exec "$@"'
        folder, output = self.root / "run", self.root / "output"
        command = [*MPIRUN, "-n", "2", "bash", "-c", says_who, "rank", program, *TRAIN, "--synthetic", "--variable_update=horovod",
                   # It computes for most of a step: a stop while numbers move is no waiting.
                   "--model=resnet20", "--data_name=cifar10", "--batch_size=32", "--num_batches=1000000", "--display_every=1",
                   f"--train_dir={folder}"]
        seconds = 0
        with open(output, "wb") as log, subprocess.Popen(command, env=self.more, stdout=log, stderr=subprocess.STDOUT) as mpirun:
            try:
                end = time.monotonic() + 120
                while "images/sec: " not in output.read_text() and time.monotonic() < end:
                    time.sleep(0.1)
                slow = int(re.search(r"^rank 1 is (\d+)$", output.read_text(), re.MULTILINE)[1])
                while (seconds < 3 or "rank 1 is slow" not in output.read_text()) and time.monotonic() < end:
                    begin = time.monotonic()
                    os.kill(slow, signal.SIGSTOP)
                    time.sleep(0.3)
                    os.kill(slow, signal.SIGCONT)
                    seconds += time.monotonic() - begin
                    time.sleep(0.1)
            finally:
                mpirun.send_signal(signal.SIGUSR1)
                mpirun.wait(timeout=120)
        text = output.read_text()
        self.assertRegex(text, r"rank 1 is slow: the others waited for it for \d+ % of the time of the last \d+ steps")
        self.assertRegex(text, r"Ranks: +waiting for others \d+ % and moving numbers \d+ % of the time of 2 ranks, slowest rank 1 \(")
        ranks = json.loads((folder / "run_summary.json").read_text())["ranks"]
        self.assertEqual(ranks["slowest"], 1)
        # Where other programs run, too, the system lets a process that was stopped catch up a part.
        # That shares are right to a tenth is shown by waiting_seconds_test.cpp.
        waiting = [rank["waiting"] for rank in ranks["seconds"]]
        self.assertGreater(waiting[0] - waiting[1], 0.25 * seconds)
        self.assertLess(waiting[0] - waiting[1], 1.5 * seconds)


class Evaluations(Processes):
    SAMPLES = 1003

    def accuracy(self, output):
        found = re.findall(r"Accuracy @ 1 = (\S+) (?:Accuracy @ 5 = (\S+) )?\[(\d+) examples\]", output)
        self.assertTrue(found, output)
        return found[-1]

    def test_any_number_of_ranks_counts_the_same(self):
        data = f"--data_dir={self.shapes('shapes', validation_count=self.SAMPLES, train_count=400)}"
        folder = self.root / "run"
        flags = [data, f"--train_dir={folder}", "--model=resnet20"]
        # The evaluation at the end of two ranks, which had statistics of their own until then.
        during = self.train(2, *flags, "--variable_update=horovod", "--batch_size=16", "--eval_batch_size=64", "--num_batches=20",
                            "--init_learning_rate=0.05", "--eval_during_training_every_n_steps=10")
        self.assertEqual(self.accuracy(during)[2], str(self.SAMPLES))
        classes, confusion, files = {}, {}, set()
        evaluation = ["eval", "--device=cpu", "--num_intra_threads=1", "--deterministic", *flags]
        replicas = ["--variable_update=collective_all_reduce", "--num_gpus=2"]
        for ranks, batch, mode in ((1, 64, []), (2, 64, ["--variable_update=horovod"]), (2, 32, replicas), (3, 64, ["--variable_update=horovod"]),
                                   (3, 501, ["--variable_update=horovod"]),
                                   (3, 1000, ["--variable_update=horovod"])):  # of the last, rank 2 has no image
            code, output = self.run_ranks(ranks, *evaluation, *mode, f"--eval_batch_size={batch}")
            self.assertEqual(code, 0, output)
            self.assertEqual(self.accuracy(output), self.accuracy(during), f"{ranks} ranks, {batch}, {mode}")
            self.assertEqual(len(re.findall(r"Accuracy @ 1", output)), 1, "rank 0 alone prints:\n" + output)
            said = json.loads((folder / "class_accuracy.json").read_text())
            classes[ranks, batch] = said["classes"]
            explained = json.loads((folder / "evaluation.json").read_text())
            self.assertEqual(explained["images"], self.SAMPLES)
            self.assertEqual(sum(map(sum, explained["confusion"])), self.SAMPLES)
            self.assertEqual([sum(row) for row in explained["confusion"]], [each["total"] for each in said["classes"]])
            confusion[ranks, batch] = (explained["confusion"], explained["per_class"])
            if batch == 64:  # kernels go by the batch's size, so that other ones may round otherwise
                del explained["loss"]  # a sum of the ranks' sums
                files.add(json.dumps(explained))
        self.assertEqual(len({json.dumps(each) for each in classes.values()}), 1, classes)
        self.assertEqual(len({json.dumps(each) for each in confusion.values()}), 1, confusion)
        self.assertEqual(len(files), 1, "the same bits for 1, 2 and 3 ranks")


class OtherDoors(Processes):
    def test_horovod_trainer(self):
        result = subprocess.run([*MPIRUN, "-n", "2", recipes_test, "--gtest_filter=HorovodTrainerTask.InAProcess"],
                                env={**self.more, "TRAINYARD_HOROVOD_TRAINER_TASK": str(self.root)}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(sorted(re.findall(r"SAYS (\w+)", result.stdout)), ["another", "chief"])
        self.assertTrue((self.root / "model.ckpt-20" / "manifest.json").exists())
        self.assertTrue((self.root / "run" / "stats.json").exists())

    def test_horovod_trainer_with_sums_and_compression(self):
        result = subprocess.run([*MPIRUN, "-n", "2", recipes_test, "--gtest_filter=HorovodCompressionTask.InAProcess"],
                                env={**self.more, "TRAINYARD_HOROVOD_COMPRESSION_TASK": str(self.root)}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(sorted(re.findall(r"SAYS (\w+)", result.stdout)), ["another", "chief"])

    def test_callback_loop(self):
        """Two processes, whose second run continues: what one process gives on two devices (callback_loop_test.cpp compares)."""
        for run in ("begins", "continues"):
            result = subprocess.run([*MPIRUN, "-n", "2", recipes_test, "--gtest_filter=CallbackLoopTask.InAProcess"],
                                    env={**self.more, "TRAINYARD_CALLBACK_LOOP_TASK": str(self.root)}, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=240)
            self.assertEqual(result.returncode, 0, result.stdout)
            self.assertEqual(sorted(re.findall(r"SAYS (\w+)", result.stdout)), ["another", "chief"], run)

    def test_fit(self):
        """Two processes: what one gives on two devices (fit_over_ranks_test.cpp compares), each from its half of the validation."""
        result = subprocess.run([*MPIRUN, "-n", "2", recipes_test, "--gtest_filter=FitTask.InAProcess"],
                                env={**self.more, "TRAINYARD_FIT_TASK": str(self.root)}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(result.returncode, 0, result.stdout)
        # Of 50 images in two epochs: three batches of 8 each, and three and a batch of 2.
        self.assertEqual(sorted(re.findall(r"SAYS (\w+)", result.stdout)), ["another_52", "chief_48"])

    def test_program(self):
        """Two processes of a place each, and a run that continues: the bits of one process with two places."""
        data = self.folders("folders")

        def command(name, places, *more):
            return ["program", f"--image-root={data}", "--batch-size=8", "--image-shape=3,32,32", "--crop-size=32", "--resize-short=36",
                    "--model-arch-name=trivial", "--lr=0.001", "--print-interval=2", "--epochs=2", f"--places={places}",
                    f"--output-dir={self.root / name}", f"--report-file={self.root / name}.json", *more]

        code, straight = self.run_ranks(2, *command("two", "cpu:0"))
        self.assertEqual(code, 0, straight)
        code, continued = self.run_ranks(2, *command("again", "cpu:0", f"--from-checkpoint={self.root / 'two' / 'trivial' / '0'}",
                                                     "--last-epoch-of-checkpoint=0"))
        self.assertEqual(code, 0, continued)
        self.assertIn("continuing from", continued)
        alone = subprocess.run([program, *command("one", "cpu:0,cpu:1")], env=self.more, capture_output=True, text=True)
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)
        for name, epoch in (("two", "0"), ("two", "1"), ("again", "1")):
            here, there = (sorted((self.root / each / "trivial" / epoch).glob("*/model.ckpt-*")) for each in (name, "one"))
            self.assertEqual([path.name for path in here], [path.name for path in there])
            self.assertTrue((here[0] / "tensors.bin").read_bytes() == (there[0] / "tensors.bin").read_bytes(), f"{name}, epoch {epoch}")
        # Losses and accuracies are those of all images of a step, and each line is there once.
        said = r"Epoch: \d+ Iteration: \d+ .*?(train.loss : \S+  train.top1 : \S+  train.top5 : \S+)"
        self.assertEqual(re.findall(said, straight), re.findall(said, alone.stdout))
        self.assertTrue(re.findall(said, alone.stdout), alone.stdout)
        validated = r"Epoch: \d+  val.loss .*(val.top1 : \S+  val.top5 : \S+)"
        self.assertEqual(re.findall(validated, straight), re.findall(validated, alone.stdout))
        self.assertEqual(len(re.findall(validated, straight)), 2)

    def test_ranks_of_the_program_that_differ_are_refused(self):
        flags = ["program", "--image-root=", "--batch-size=2", "--epochs=1", "--image-shape=3,32,32", "--crop-size=32",
                 "--model-arch-name=trivial", f"--output-dir={self.root / 'differ'}", f"--report-file={self.root / 'differ.json'}"]
        one, two = "--places=cpu:0", "--places=cpu:0,cpu:1"
        for item, ranks in (("--lr", [["--lr=0.1", one], ["--lr=0.2", one]]), ("places of a process", [["--lr=0.1", one], ["--lr=0.1", two]])):
            code, output = self.run_ranks(ranks, *flags)
            self.assertEqual(code, 2, output)
            self.assertIn(f"ranks begin differently: {item}", output)
        if "avx512vl" not in pathlib.Path("/proc/cpuinfo").read_text():
            return
        command = [program, *flags, "--lr=0.1", one]
        result = subprocess.run([*MPIRUN, "-n", "1", *command, ":", "-n", "1", "env", "TRAINYARD_MAX_CPU_ISA=avx2", *command], env=self.more,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertRegex(result.stdout, "ranks begin differently: the instruction set of the processor.* got AVX2")

    def test_ranks_of_the_program_with_other_images_are_refused(self):
        """Images may lie in another folder on each machine, but must be the same."""
        one, copy, other, renamed = self.folders("one"), self.root / "copy", self.root / "other", self.root / "renamed"
        for folder in (copy, other, renamed):
            shutil.copytree(one, folder)
        image = min((other / "train").glob("*/*"))
        image.write_bytes(image.read_bytes() + bytes(1))
        last = max(folder.name for folder in (renamed / "train").iterdir())
        (renamed / "train" / last).rename(renamed / "train" / f"{last}s")
        names = renamed / "classnames.txt"
        names.write_text("".join(f"{name}s\n" if name == last else f"{name}\n" for name in names.read_text().splitlines()))
        flags = ["--batch-size=8", "--epochs=1", "--run-scope=train_only", "--image-shape=3,32,32", "--crop-size=32",
                 "--resize-short=36", "--model-arch-name=trivial", "--lr=0.001", "--places=cpu:0", "--report-file=",
                 f"--output-dir={self.root / 'out'}"]
        code, output = self.run_ranks([[f"--image-root={one}"], [f"--image-root={other}"]], "program", *flags)
        self.assertEqual(code, 2, output)
        self.assertIn("ranks begin differently: files of --image_root", output)
        code, output = self.run_ranks([[f"--image-root={one}"], [f"--image-root={renamed}"]], "program", *flags)
        self.assertEqual(code, 2, output)
        self.assertRegex(output, rf"ranks begin differently: class \d+ of the data.*: rank 1: expected {last} as on rank 0, got {last}s")
        code, output = self.run_ranks([[f"--image-root={one}"], ["--image-root="]], "program", *flags)
        self.assertEqual(code, 2, output)
        self.assertIn("ranks begin differently: steps of an epoch of training images", output)
        code, output = self.run_ranks([[f"--image-root={one}"], [f"--image-root={copy}"]], "program", *flags)
        self.assertEqual(code, 0, output)

    def test_a_rank_of_the_program_without_the_checkpoint_is_refused(self):
        """It would evaluate weights of its own, and the result would be the mean of two models, or begin with such weights."""
        data, here, there = self.folders("folders"), self.root / "here", self.root / "there"
        flags = ["program", f"--image-root={data}", "--batch-size=8", "--image-shape=3,32,32", "--crop-size=32", "--resize-short=36",
                 "--model-arch-name=trivial", "--places=cpu:0", "--report-file="]
        trained = subprocess.run([program, *flags, "--epochs=1", "--run-scope=train_only", f"--output-dir={here / 'saved'}"],
                                 env=self.more, capture_output=True, text=True)
        self.assertEqual(trained.returncode, 0, trained.stdout + trained.stderr)
        there.mkdir()
        # Each process in a folder of its own, as on a machine of its own.
        evaluate = ["--run-scope=eval_only", "--from-checkpoint=saved/trivial/0"]
        tune = ["--run-scope=train_only", "--epochs=1", "--from-pretrained-params=saved/trivial/0", f"--output-dir={self.root / 'tuned'}"]
        for more, what in ((evaluate, "the checkpoint of --from_checkpoint"), (tune, "the weights of --from_pretrained_params")):
            for folder, code in ((here, 0), (there, 2)):
                own = [program, *flags, *more]
                command = [*MPIRUN, "-n", "1", "-wdir", str(here), *own, ":", "-n", "1", "-wdir", str(folder), *own]
                result = subprocess.run(command, env=self.more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
                self.assertEqual(result.returncode, code, result.stdout)
                self.assertEqual(f"ranks begin differently: {what}" in result.stdout, code == 2, result.stdout)


class TrainCtl(Processes):
    def command(self, iterations, *more, unit="epoch"):
        return ["train-ctl", "--horovod", "--model=trivial", "--image_width=32", "--image_height=32", "--precision=fp32", "--batch_size=8",
                f"-u={unit}", f"-i={iterations}", *more]

    def run_ctl(self, ranks, *command, code=0):
        returned, output = self.run_ranks(ranks, *command)
        self.assertEqual(returned, code, output)
        return output

    def test_continues_as_two_devices_of_a_process(self):
        data = f"--data_dir={self.folders('folders')}"
        for name in ("log", "log1", "board"):
            (self.root / name).mkdir()
        flags = [data, "--display_every=3"]
        both = [*flags, f"--log_dir={self.root / 'log'}", f"--tensorboard_dir={self.root / 'board'}"]
        first = self.run_ctl(2, *self.command(1, *both))
        # Each line once, and in the end what two devices of one process come to.
        self.assertEqual(len(re.findall(r"^epoch: 0 time_taken", first, re.M)), 1, first)
        second = self.run_ctl(2, *self.command(2, *both))
        self.assertIn("Restored from", second)
        one = [flag for flag in self.command(2, *flags, f"--log_dir={self.root / 'log1'}", "--devices=2") if flag != "--horovod"]
        alone = subprocess.run([program, *one], env=self.more, capture_output=True, text=True)
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)
        for step in (6, 12):
            here, there = (weights(self.root / log / f"model.ckpt-{step}") for log in ("log", "log1"))
            # Up to the rounding of convolutions whose algorithms each training has measured for itself.
            self.assertLess(furthest(here, there), 1e-5)
        # Rank 0's own losses, and everybody's validation.
        said = re.findall(r"val_loss: \S+ - val_top1: (\S+) - val_top5: (\S+)", first + second)
        self.assertEqual(said, re.findall(r"val_loss: \S+ - val_top1: (\S+) - val_top5: (\S+)", alone.stdout))
        self.assertEqual(len(list((self.root / "board").glob("events*"))), 2)

    def test_ranks_that_begin_differently_are_refused(self):
        for item, first, other in (("momentum", "0.9", "0.8"), ("seed", "1", "2")):
            output = self.run_ctl([[f"--{item}={first}"], [f"--{item}={other}"]], *self.command(2, unit="batch"), code=2)
            self.assertIn(f"ranks begin differently: {item}: rank 1: expected {first} as on rank 0, got {other}", output)
        one, other = self.folders("one"), self.folders("other", seed=2)
        output = self.run_ctl([[f"--data_dir={one}"], [f"--data_dir={other}"]], *self.command(2, unit="batch"), code=2)
        self.assertRegex(output, r"ranks begin differently: files of data_dir .*rank 1: expected \d+ files, \d+ bytes")

    def test_all_ranks_begin_with_the_checkpoint_of_rank_0(self):
        """Another rank may have another run's checkpoint in its folder, or no folder: it neither reads nor writes there."""
        data = f"--data_dir={self.folders('folders')}"
        own, other, nowhere, straight = (self.root / name for name in ("own", "other", "nowhere", "straight"))
        for folder, seed in ((own, 1), (other, 2)):
            folder.mkdir()
            self.run_ctl(2, *self.command(1, data, f"--seed={seed}", f"--log_dir={folder}"))
        self.assertGreater(furthest(weights(own / "model.ckpt-6"), weights(other / "model.ckpt-6")), 1e-3)
        shutil.copytree(own, straight)
        command = self.command(2, data, "--seed=1")
        self.run_ctl(2, *command, f"--log_dir={straight}")
        before = sorted(path.name for path in other.iterdir())
        for elsewhere in (other, nowhere):
            folder = self.root / f"own-with-{elsewhere.name}"
            shutil.copytree(own, folder)
            output = self.run_ctl([[f"--log_dir={folder}"], [f"--log_dir={elsewhere}"]], *command)
            self.assertEqual(re.findall(r"Restored from (\S+)", output), [str(folder / "model.ckpt-6")], output)
            self.assertLess(furthest(weights(folder / "model.ckpt-12"), weights(straight / "model.ckpt-12")), 1e-5, elsewhere.name)
        self.assertEqual(sorted(path.name for path in other.iterdir()), before)
        self.assertFalse(nowhere.exists())

    def test_what_one_rank_alone_lacks_ends_all(self):
        data, nowhere, log = self.folders("folders"), self.root / "nowhere", self.root / "log"
        log.mkdir()
        output = self.run_ctl([[f"--log_dir={nowhere}"], [f"--log_dir={log}"]], *self.command(1, f"--data_dir={data}"), code=2)
        self.assertIn(f"the directory log_dir does not exist: rank 0: train_ctl: got {nowhere}", output)
        output = self.run_ctl([[f"--data_dir={data}"], [f"--data_dir={nowhere}"]], *self.command(1, f"--log_dir={log}"), code=1)
        self.assertIn(f"data directory does not exist: rank 1: {nowhere}", output)
        self.assertNotIn("epoch: 0", output)
        self.assertEqual(list(log.glob("model.ckpt-*")), [])

    def test_a_signal_to_one_rank_ends_all_after_the_same_step(self):
        data, log = f"--data_dir={self.folders('folders')}", self.root / "log"
        log.mkdir()
        command = [program, *self.command(100000, data, f"--log_dir={log}", "--display_every=1")]
        output, codes, sent = stop_ranks.stop(stop_ranks.mpirun(2, command), "other", "global_step: 8 ", random.Random(1),
                                               [signal.SIGTERM], env=self.more)
        self.assertTrue(sent, output)
        self.assertEqual(codes, {0: stop_ranks.STOPPED, 1: stop_ranks.STOPPED}, output)
        self.assertEqual(output.count("Keyboard interrupt"), 1, output)
        step = stop_ranks.newest(log)
        self.assertEqual(max(map(int, re.findall(r"^global_step: (\d+) ", output, re.M))), step, output)
        output = self.run_ctl(2, *self.command(step + 2, data, f"--log_dir={log}", unit="batch"))
        self.assertIn(f"Restored from {log / f'model.ckpt-{step}'}", output)
        self.assertEqual(stop_ranks.newest(log), step + 2)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("skipped: needs mpirun (apt-get install openmpi-bin)")
        sys.exit(77)
    unittest.main()
