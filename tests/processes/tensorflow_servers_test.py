#!/usr/bin/env python3
"""The model of tf_cnn_benchmarks' variable update test, loss = mean(x) A B, trained by TensorFlow's own parameter servers
(tf.compat.v1.train.Server) and by ours, with SGD: losses step by step.

Usage: python3 tests/processes/tensorflow_servers_test.py CLUSTER_CHECK (build/trainyard_cluster_check).
Skipped where no Python has TensorFlow: that of this script, .venv-peers (scripts/setup --peers), or $TRAINYARD_TENSORFLOW_PYTHON.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from cluster import Process, free_ports

STEPS, SIXTEENTH = 4, 1 / 16
SERVER = r"""
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
cluster, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tf.compat.v1.disable_eager_execution()
server = tf.compat.v1.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task)
if job != "worker" or task != 0:
    server.join()
v1, steps, rate = tf.compat.v1, int(sys.argv[4]), float(sys.argv[5])
workers = len(cluster["worker"])
inputs = [v1.placeholder(tf.float32, [2]) for _ in range(workers)]
with v1.device(v1.train.replica_device_setter(cluster=tf.train.ClusterSpec(cluster))):
    a, b = v1.get_variable("a", initializer=1.0), v1.get_variable("b", initializer=2.0)
losses, gradients = [], []
for task in range(workers):
    with v1.device(f"/job:worker/task:{task}"):
        losses.append(tf.reduce_mean(inputs[task]) * a * b)
        gradients.append(tf.gradients(losses[task] + rate * (a * a + b * b) / 2, [a, b]))
with v1.device("/job:ps/task:0"):
    means = [tf.add_n(list(of_one)) / workers for of_one in zip(*gradients)]
base = tf.add_n(losses) / workers
with tf.control_dependencies([base, *means]):
    update = v1.train.GradientDescentOptimizer(rate).apply_gradients(list(zip(means, [a, b])))
with v1.Session(server.target) as session:
    session.run(v1.global_variables_initializer())
    for step in range(steps):
        first = [-1.0 + 2 * (step * workers + task) for task in range(workers)]
        value, _ = session.run([base, update], {inputs[task]: [first[task], first[task] + 1] for task in range(workers)})
        print("loss", step, repr(float(value)), flush=True)
os._exit(0)
"""


def tensorflow_python():
    peers = pathlib.Path(__file__).resolve().parents[2] / ".venv-peers" / "bin" / "python"
    for python in (os.environ.get("TRAINYARD_TENSORFLOW_PYTHON"), str(peers), sys.executable):
        if python and os.path.exists(python) and \
                subprocess.run([python, "-c", "import tensorflow"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def run(processes, waits_for, seconds=180):
    """Waits for some of the processes, and ends the others."""
    try:
        for process in waits_for:
            process.process.wait(seconds)
    finally:
        for process in processes:
            process.kill()
            process.process.wait()


def tensorflows_losses(python, ps, workers, folder):
    ports = free_ports(ps + workers)
    cluster = {"ps": [f"127.0.0.1:{port}" for port in ports[:ps]], "worker": [f"127.0.0.1:{port}" for port in ports[ps:]]}
    words = [python, "-c", SERVER, str(cluster).replace("'", '"')]
    others = [Process(f"tf {job} {task}", [*words, job, task, STEPS, SIXTEENTH], folder)
              for job, count in (("ps", ps), ("worker", workers)) for task in range(count) if (job, task) != ("worker", 0)]
    chief = Process("tf worker 0", [*words, "worker", 0, STEPS, SIXTEENTH], folder)
    run([*others, chief], [chief])
    found = [float(loss) for loss in re.findall(r"^loss \d+ (\S+)$", chief.output, re.MULTILINE)]
    if len(found) != STEPS:
        raise AssertionError(f"TensorFlow has no {STEPS} losses: {chief.output[-2000:]}")
    return found


def our_losses(check, ps, workers, folder):
    """None without gRPC."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
    hosts = [",".join(addresses[:ps]), ",".join(addresses[ps:])]
    processes = [Process(f"{job} {task}", [check, job, task, *hosts, "parameter_server", 1, "losses"], folder)
                 for job, count in (("ps", ps), ("worker", workers)) for task in range(count)]
    run(processes, processes)
    if any("this build has no gRPC" in process.output for process in processes):
        return None
    chief = processes[ps]
    found = [float(loss) for loss in re.findall(r"^\d+ (\S+)$", chief.output, re.MULTILINE)]
    if len(found) != STEPS:
        raise AssertionError("\n".join(process.output for process in processes))
    return found


def main():
    check = os.path.abspath(sys.argv[1])
    python = tensorflow_python()
    if python is None:
        print("skipped: needs TensorFlow (scripts/setup --peers installs it, or TRAINYARD_TENSORFLOW_PYTHON names a Python with it)")
        return 77
    for ps, workers in ((1, 2), (2, 1)):
        with tempfile.TemporaryDirectory() as folder:
            ours = our_losses(check, ps, workers, folder)
            if ours is None:
                print("skipped: needs a build with gRPC (libgrpc++-dev, protobuf-compiler-grpc)")
                return 77
            theirs = tensorflows_losses(python, ps, workers, folder)
        print(f"{ps} servers, {workers} workers: TensorFlow {theirs}, ours {ours}")
        for step, (their, our) in enumerate(zip(theirs, ours)):
            if abs(their - our) > 1e-5 * abs(their):
                print(f"step {step}: TensorFlow {their}, ours {our}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
