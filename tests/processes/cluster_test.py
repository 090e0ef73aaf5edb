#!/usr/bin/env python3
"""tf_cnn_benchmarks' distributed tests (benchmark_cnn_distributed_test.py), by their names, with real processes: parameter
servers, workers and a controller on the loopback address. Beyond them: checkpoints that load elsewhere, workers at their own
pace, servers that are late, what is printed.

Usage: python3 tests/processes/cluster_test.py PROGRAM CLUSTER_CHECK (build/trainyard build/trainyard_cluster_check).
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

from cluster import Cluster, Process, free_ports, write_black_and_white

program = os.path.abspath(sys.argv.pop(1))
cluster_check = os.path.abspath(sys.argv.pop(1))

STEP = re.compile(r"^(\d+)\timages/sec: [^\t]*\t(-?[0-9.]+|nan|inf)", re.MULTILINE)


def has_servers():
    """Whether this build has gRPC, without which servers refuse to start."""
    port = free_ports(1)[0]
    result = subprocess.run([program, "--job_name=ps", f"--ps_hosts=127.0.0.1:{port}", "--worker_hosts=127.0.0.1:1",
                             "--rank_start_deadline=0.5"], capture_output=True, text=True, timeout=60)
    return "gRPC" not in result.stderr


if not has_servers():
    print("skipped: needs a build with gRPC (libgrpc++-dev, protobuf-compiler-grpc)")
    sys.exit(77)


def losses(output):
    return [float(loss) for _, loss in STEP.findall(output)]


def checkpoints(train_dir):
    return sorted(int(path.name.split("-")[-1]) for path in pathlib.Path(train_dir).glob("model.ckpt-*"))


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.clusters = []
        write_black_and_white(self.root / "images")
        self.train_dir = self.root / "run"

    def tearDown(self):
        for cluster in self.clusters:
            cluster.kill()
        self.folder.cleanup()

    def flags(self, *more, batches=20):
        return ["--device=cpu", "--model=trivial", f"--data_dir={self.root / 'images'}", "--data_name=imagenet", "--image_size=16",
                "--batch_size=2", "--num_gpus=2", f"--num_batches={batches}", "--num_warmup_batches=5", "--display_every=1",
                "--init_learning_rate=0.005", "--optimizer=sgd", "--weight_decay=0", "--print_training_accuracy",
                "--rank_start_deadline=60", "--rank_deadline=30", f"--train_dir={self.train_dir}", *more]

    def start(self, flags, **layout):
        cluster = Cluster(program, self.root / f"logs-{len(self.clusters)}", flags, **layout)
        self.clusters.append(cluster)
        return cluster

    def run_cluster(self, flags, **layout):
        cluster = self.start(flags, **layout)
        codes = cluster.wait()
        self.assertEqual(set(codes.values()), {0}, f"{cluster.outputs()}\n{codes}")
        return cluster

    def evaluate(self, *more):
        result = subprocess.run([program, "--eval", *[flag for flag in self.flags(*more) if "rank_" not in flag],
                                 "--num_eval_batches=4"], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return re.findall(r"Accuracy @ 1 = ([0-9.]+) Accuracy @ 5 = ([0-9.]+)", result.stdout)


class TfCnnBenchmarksDistributedTest(ClusterTest):
    """The protocol of test_util.train_and_eval: train; go on with twice as many batches; evaluate in one process."""

    def train_and_eval(self, *more, ps=2, workers=2, controller=False, warmup=5, evaluates=True, counted=True, saved=None, batches=20):
        printing = (lambda cluster: [cluster["controller"]]) if controller else (lambda cluster: cluster.workers())
        counts = 1 if controller else workers  # of the global step
        first = self.run_cluster(self.flags(*more, batches=batches), ps=ps, workers=workers, controller=controller)
        for i in range(ps):
            self.assertIn(f"Running parameter server {i}\n", first[f"ps {i}"].output)
        for process in printing(first):
            self.assertIn("Running warm up\n", process.output)
            self.assertEqual(process.output.count("total images/sec: "), 1)
            if counted:
                self.assertEqual(len(losses(process.output)), batches, process.output)
                self.assertLessEqual(max(losses(process.output)), 100)
        if not evaluates:
            return first
        if counted:
            self.assertEqual(checkpoints(self.train_dir), [counts * (batches + warmup)])
        second = self.run_cluster(self.flags(*more, batches=2 * batches), ps=ps, workers=workers, controller=controller)
        for before, process in zip(printing(first), printing(second)):
            if counted:
                self.assertEqual(len(losses(process.output)), batches - warmup, process.output)
                self.assertLessEqual(sum(losses(process.output)) / (batches - warmup), sum(losses(before.output)) / batches + 0.5)
                self.assertLessEqual(losses(process.output)[-1], 10)
        if counted:
            self.assertEqual(checkpoints(self.train_dir)[-1], counts * (2 * batches + warmup))
        self.assertEqual(self.evaluate(), [("1.0000", "1.0000")])
        return first

    def testParameterServer(self):
        first = self.train_and_eval()
        self.assertRegex(first["worker 1"].output, r"Devices:     \['/job:worker/replica:0/task:1/cpu:0', '/job:worker/replica:0/task:1/cpu:1'\]")
        self.assertIn("Sync:        True\n", first["worker 0"].output)
        self.assertIn("Batch size:  8 global\n", first["worker 0"].output)

    def testParameterServerStaged(self):
        first = self.train_and_eval("--staged_vars")
        self.assertIn("Staged vars: True\n", first["worker 0"].output)

    def testReplicated(self):
        self.train_and_eval("--variable_update=distributed_replicated")

    def testAllReducePsgpu(self):
        first = self.train_and_eval("--variable_update=distributed_all_reduce", "--all_reduce_spec=psgpu#4", ps=0, controller=True)
        for i in range(2):
            self.assertIn(f"Starting worker {i}\n", first[f"worker {i}"].output)
            self.assertEqual(losses(first[f"worker {i}"].output), [])
        self.assertIn("SingleSess:  True\n", first["controller"].output)
        self.assertIn("AllReduce:   psgpu#4\n", first["controller"].output)

    def testAllReducePscpuXring(self):
        self.train_and_eval("--variable_update=distributed_all_reduce", "--all_reduce_spec=pscpu:2k:xring", ps=0, controller=True)

    def testForwardOnly(self):
        first = self.train_and_eval("--forward_only", evaluates=False)
        for worker in first.workers():
            self.assertEqual(set(losses(worker.output)), {0.0})
        # It continues behind the steps of both workers.
        self.assertEqual(checkpoints(self.train_dir), [2 * (20 + 5)])
        second = self.run_cluster(self.flags("--forward_only", batches=40), ps=2, workers=2)
        for worker in second.workers():
            self.assertEqual(len(losses(worker.output)), 40 - (20 + 5))
        self.assertEqual(checkpoints(self.train_dir)[-1], 2 * (40 + 5))

    def testSingleWorkerAndPs(self):
        self.train_and_eval(ps=1, workers=1)

    def testThreeWorkersAndPses(self):
        self.train_and_eval(ps=3, workers=3)

    def testOneWorkerThreePses(self):
        self.train_and_eval(ps=3, workers=1)

    def testThreeWorkersOnePs(self):
        self.train_and_eval(ps=1, workers=3)

    def testNoPrintTrainingAccuracy(self):
        first = self.train_and_eval("--noprint_training_accuracy")
        self.assertNotIn("top_1_accuracy", first["worker 0"].output)

    def testRmspropParameterServer(self):
        self.train_and_eval("--optimizer=rmsprop", "--rmsprop_decay=0.8", "--rmsprop_momentum=0.6", "--rmsprop_epsilon=0.7",
                            "--init_learning_rate=0.01")

    def testMomentumReplicated(self):
        self.train_and_eval("--optimizer=momentum", "--momentum=0.8", "--variable_update=distributed_replicated")

    def testNoCrossReplicaSyncParameterServerStaged(self):
        first = self.train_and_eval("--nocross_replica_sync", "--staged_vars", counted=False)
        for worker in first.workers():
            self.assertIn("Sync:        False\n", worker.output)
            self.assertIn("Waiting for other replicas to finish warm up\n", worker.output)

    def testSingleGpu(self):
        self.train_and_eval("--num_gpus=1")

    def testBatchGroupSize(self):
        first = self.train_and_eval("--batch_group_size=4", warmup=8)
        self.assertIn("Round up warm up steps to 8 to match batch_group_size\n", first["worker 0"].output)

    def testFp16WithFp32Vars(self):
        self.train_and_eval("--use_fp16")

    def testFp16WithFp16Vars(self):
        self.train_and_eval("--use_fp16", "--fp16_vars", "--fp16_loss_scale=1")

    def testFp16Replicated(self):
        self.train_and_eval("--use_fp16", "--variable_update=distributed_replicated")

    # The 16-bit floats that are fast on CPUs.
    def test_bfloat16(self):
        self.train_and_eval("--use_bf16", "--fp16_vars")

    # All of these tests read files. The original's, which is skipped there, takes the real images of ImageNet.
    def testReplicatedRealData(self):
        self.train_and_eval("--variable_update=distributed_replicated", "--distortions")


class DistributedVariableUpdateTest(unittest.TestCase):
    """The losses of the original's oracle, loss = mean(x) A B, by definition, for every optimizer."""

    def losses_follow_the_definition(self, mode, ps, workers, replicas, more=()):
        with tempfile.TemporaryDirectory() as folder:
            addresses = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
            hosts = [",".join(addresses[:ps]), ",".join(addresses[ps:])]
            processes = [Process(f"{job} {task}", [cluster_check, job, task, *hosts, mode, replicas, *more], folder)
                         for job, count in (("ps", ps), ("worker", workers)) for task in range(count)]
            codes = []
            for process in processes:
                try:
                    codes.append(process.process.wait(180))
                except subprocess.TimeoutExpired:
                    process.kill()
                    codes.append(process.process.wait())
            text = "\n".join(process.output for process in processes)
            self.assertEqual(set(codes), {0}, text)
            self.assertEqual(text.count("follow their definition"), workers, text)
            return text

    def testVarUpdateDefault(self):
        for mode, ps, workers in (("parameter_server", 2, 1), ("distributed_replicated", 1, 2), ("all_reduce", 0, 2)):
            with self.subTest(mode):
                text = self.losses_follow_the_definition(mode, ps, workers, 1 if workers == 2 else 2)
                self.assertGreater(int(re.search(r"(\d+) optimizers", text).group(1)), 15)

    def testVarUpdateCpuAsLocalParamDevice(self):
        # Parameters are where the model runs; on CPUs that is the CPU, as asked for here.
        self.losses_follow_the_definition("parameter_server", 1, 2, 1)

    def testVarUpdateFp16(self):
        # Within the 3 % that the original allows.
        for mode in ("parameter_server", "distributed_replicated"):
            self.losses_follow_the_definition(mode, 2, 2, 1, ["fp16"])

    def testVarUpdateResourceVars(self):
        # There is one kind of variables.
        self.losses_follow_the_definition("distributed_replicated", 2, 2, 2)

    def test_staged_variables_are_exactly_one_step_late(self):
        self.losses_follow_the_definition("staged", 1, 2, 1)
        self.losses_follow_the_definition("staged", 2, 2, 2)

    def test_relaxed_gradients_are_applied_exactly_one_step_late(self):
        self.losses_follow_the_definition("relaxed", 1, 2, 1)
        self.losses_follow_the_definition("relaxed", 2, 2, 2)


class Checkpoints(ClusterTest):
    def resumed(self, *more, processes=None):
        result = subprocess.run([program, *[flag for flag in self.flags(*more, batches=40) if "rank_" not in flag]] if processes is None
                                else processes, capture_output=True, text=True, timeout=180,
                                env={**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_two_workers_of_two_continue_as_one_of_three_and_as_horovod(self):
        momentum = ["--optimizer=momentum", "--variable_consistency=relaxed"]
        self.run_cluster(self.flags(*momentum), ps=2, workers=2)
        self.assertEqual(checkpoints(self.train_dir), [50])
        one = self.resumed(*momentum, "--variable_update=replicated", "--gradient_reduction=mean", "--num_gpus=3", "--num_batches=70")
        self.assertEqual(len(losses(one.stdout)), 20)
        self.assertEqual(checkpoints(self.train_dir)[-1], 75)
        flags = [flag for flag in self.flags(*momentum, "--variable_update=horovod", "--num_gpus=1", "--num_batches=80")]
        self.resumed(processes=["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", program, *flags])
        self.assertEqual(checkpoints(self.train_dir)[-1], 85)
        # And back to servers, with another number of each.
        self.run_cluster(self.flags(*momentum, "--num_batches=30"), ps=1, workers=3)
        self.assertEqual(checkpoints(self.train_dir)[-1], 85 + 3 * (30 - 85 // 3 + 5))

    def test_what_is_saved_are_values_and_slots_and_delayed_gradients(self):
        self.run_cluster(self.flags("--optimizer=momentum", "--variable_consistency=relaxed"), ps=2, workers=2)
        alone = self.root / "alone"
        subprocess.run([program, *[flag for flag in self.flags("--optimizer=momentum", "--variable_consistency=relaxed", f"--train_dir={alone}")
                                   if "rank_" not in flag]], check=True, capture_output=True, timeout=120)
        def entries(folder):
            newest = max(folder.glob("model.ckpt-*"), key=lambda path: int(path.name.split("-")[-1]))
            tensors = json.loads((newest / "manifest.json").read_text())["tensors"]
            return {(tensor["name"], tuple(tensor["shape"])) for tensor in tensors if tensor["name"].startswith(("model/", "optimizer/"))}
        self.assertGreater(len(entries(alone)), 12)
        self.assertEqual(entries(self.train_dir), entries(alone))


class OwnPace(ClusterTest):
    """--cross_replica_sync=false: servers count the step of all workers."""

    def test_counts_add_up_and_the_watcher_says_when(self):
        batches, warmup = 30, 5
        log = self.root / "log"
        cluster = self.run_cluster(self.flags("--nocross_replica_sync", "--log_level=info", f"--benchmark_log_dir={log}", batches=batches),
                                   ps=2, workers=3)
        updates = [int(re.search(r"all workers have left: (\d+) updates", cluster[f"ps {i}"].output).group(1)) for i in range(2)]
        own_steps = 0
        for worker in cluster.workers():
            begin, end = (int(re.search(rf"{word} real work at step (\d+) at time \w{{3}} \w{{3}} [ \d]\d \d\d:\d\d:\d\d \d{{4}}\n", worker.output).group(1))
                          for word in ("Starting", "Finishing"))
            self.assertGreaterEqual(begin, 3 * warmup)
            self.assertGreaterEqual(end, 3 * (warmup + batches) - 1)
            self.assertLessEqual(end, 3 * (warmup + batches) + 2)
            own_steps += len(losses(worker.output)) + warmup
            if worker is cluster["worker 0"]:
                # The average carries the steps of all workers that it is of.
                metrics = [json.loads(line) for line in (log / "metric.log").read_text().splitlines()]
                averages = [metric["global_step"] for metric in metrics if metric["name"] == "average_examples_per_sec"]
                self.assertEqual(averages, [end - begin])
        self.assertEqual(checkpoints(self.train_dir), [own_steps])
        self.assertEqual(updates, [own_steps, own_steps])

    def test_a_slow_worker_loses_no_push(self):
        batches = 60
        cluster = self.start(self.flags("--nocross_replica_sync", batches=batches), ps=1, workers=2)
        slow = cluster["worker 1"]
        while cluster["worker 0"].code is None and "Starting real work" not in slow.output:
            time.sleep(0.005)
        for _ in range(6):
            slow.kill(signal.SIGSTOP)
            time.sleep(0.1)
            slow.kill(signal.SIGCONT)
            time.sleep(0.02)
        codes = cluster.wait()
        self.assertEqual(set(codes.values()), {0}, cluster.outputs())
        own_steps = sum(len(losses(worker.output)) + 5 for worker in cluster.workers())
        self.assertEqual(checkpoints(self.train_dir), [own_steps])


class TrainCommand(ClusterTest):
    """`trainyard train` with the roles of a cluster."""

    def flags(self, *more, batches=20):
        return ["train", *super().flags(*more, batches=batches)]

    def test_a_step_of_all_workers_is_one(self):
        # Lines, checkpoints and epochs count it once: 64 images, 8 of them a step. The first five steps are the warm-up.
        more = ["--save_model_steps=6", "--max_ckpts_to_keep=9", "--existing_run=keep"]
        first = self.run_cluster(self.flags(*more), ps=2, workers=2)
        self.assertEqual(checkpoints(self.train_dir), [6, 12, 18, 20])
        for worker in first.workers():
            self.assertEqual([int(step) for step, _ in STEP.findall(worker.output)], list(range(6, 21)), worker.output)
        self.assertRegex(first["worker 0"].output, r"\n20\timages/sec: [^\n]*\t2\.50\t0\.005\n")
        self.run_cluster(self.flags(*more, batches=30), ps=1, workers=2)
        self.assertEqual(checkpoints(self.train_dir), [6, 12, 18, 20, 24, 30])

    def recorded(self, name, replicas, every, more, run):
        """Loss and accuracy of each step as metrics.jsonl has them."""
        flags = [flag for flag in self.flags("--save_summaries_steps=1", "--deterministic", "--num_intra_threads=1", *more)
                 if not flag.startswith(("--display_every", "--train_dir", "--num_gpus"))]
        run([*flags, f"--num_gpus={replicas}", f"--display_every={every}", f"--train_dir={self.root / name}"])
        rows = [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]
        return {row["global_step"]: (row["total_loss"], row["top_1_accuracy"]) for row in rows if row["phase"] == "train"}

    def test_all_reduce_records_the_means_of_all_workers(self):
        # Whether a line shows the step or not, and what one process with as many replicas records.
        def alone(flags):
            words = [program, *[flag for flag in flags if "rank_" not in flag]]
            result = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual(result.returncode, 0, result.stderr)
        def together(flags):
            self.run_cluster(flags, ps=0, workers=2, controller=True)
        reduce = ["--variable_update=distributed_all_reduce", "--all_reduce_spec=psgpu#4"]
        each, few = self.recorded("each", 2, 1, reduce, together), self.recorded("few", 2, 7, reduce, together)
        self.assertEqual(sorted(each), list(range(1, 21)))
        self.assertEqual(few, each)
        one = self.recorded("one", 4, 1, ["--variable_update=replicated"], alone)
        for step, (loss, accuracy) in one.items():
            self.assertAlmostEqual(each[step][0], loss, delta=1e-3 * max(1, abs(loss)), msg=f"step {step}")
            self.assertEqual(each[step][1], accuracy, f"step {step}")


class Starts(ClusterTest):
    def test_a_worker_waits_for_a_late_server_and_says_so(self):
        cluster = self.start(self.flags("--log_level=info"), ps=2, workers=2, wait_for=["ps 1"])
        late = cluster.ps_hosts[1]
        end = time.monotonic() + 30
        while time.monotonic() < end and late not in cluster["worker 0"].output.replace("--ps_hosts", ""):
            time.sleep(0.05)
        self.assertIn(late, cluster["worker 0"].output)
        self.assertIsNone(cluster["worker 0"].code)
        cluster.start("ps 1", "ps", 1)
        codes = cluster.wait()
        self.assertEqual(set(codes.values()), {0}, cluster.outputs())

    def test_a_worker_gives_up_a_server_that_never_comes(self):
        cluster = self.start(self.flags("--rank_start_deadline=2"), ps=2, workers=2, wait_for=["ps 1"])
        codes = cluster.wait(60)
        for name, code in codes.items():
            self.assertNotIn(code, (0, None), f"{name}: {cluster.outputs()}")
        for worker in cluster.workers():
            self.assertRegex(worker.output, rf"server 1|ps 1|{cluster.ps_hosts[1]}")

    def test_workers_with_other_models_are_refused(self):
        cluster = self.start(self.flags(), ps=1, workers=2, more={"worker 1": ["--model=lenet"]})
        codes = cluster.wait(90)
        self.assertNotIn(0, (codes["worker 0"], codes["worker 1"]), cluster.outputs())
        self.assertIn("model", cluster["worker 1"].output)

    def test_launch_starts_a_cluster_and_names_who_died(self):
        words = [program, "launch", "--ps=1", "--workers=2", "--", *self.flags()]
        launch = Process("launch", words, self.root)
        self.assertEqual(launch.process.wait(120), 0, launch.output)
        self.assertEqual(len(losses(re.sub(r"^\[\d\] ", "", launch.output, flags=re.MULTILINE))), 40, launch.output)
        self.train_dir = self.root / "other"
        words = [program, "launch", "--ps=1", "--workers=2", "--", *self.flags(batches=1000000)]
        launch = Process("killed launch", words, self.root)
        end = time.monotonic() + 60
        while time.monotonic() < end and "images/sec" not in launch.output:
            time.sleep(0.05)
        victims = [pid for pid in os.listdir("/proc") if pid.isdigit() and self.is_worker(pid, 1)]
        self.assertEqual(len(victims), 1)
        os.kill(int(victims[0]), signal.SIGKILL)
        self.assertNotIn(launch.process.wait(120), (0, None))
        self.assertRegex(launch.output, r"worker 1 \(rank 2\) on .* signal 9|worker 1 \(rank 2\) on .*SIGKILL")

    def is_worker(self, pid, task):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            return False
        return "launch-rank" not in words and f"--task_index={task}" in words and "--job_name=worker" in words and \
            f"--train_dir={self.train_dir}" in words


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
