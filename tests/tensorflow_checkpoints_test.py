#!/usr/bin/env python3
"""Checkpoints that TensorFlow writes while this test runs: the values that tf.train.load_checkpoint reads, bit for bit, and the
logits of networks with tf_cnn_benchmarks' names of variables.

Usage: python3 tests/tensorflow_checkpoints_test.py FORMATS_TEST FRONTENDS_TEST (build/trainyard_formats_test, ...).
Skipped where no Python has TensorFlow: that of this script, .venv-peers (scripts/setup --peers), or $TRAINYARD_TENSORFLOW_PYTHON.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "processes"))
from tensorflow_servers_test import tensorflow_python  # noqa: E402

# Writes checkpoints of random variables into a folder, and for each what TensorFlow reads from it.
WRITE_VALUES = r"""
import os, pathlib, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf
v1, folder = tf.compat.v1, pathlib.Path(sys.argv[1])
kinds = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "bool"]

def save(seed):
    draw = np.random.default_rng(seed)
    devices = 1 + seed % 4
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"CPU": devices})) as session:
        for i in range(30 * (1 + seed)):
            shape = tuple(int(size) for size in draw.integers(0 if i % 5 == 0 else 1, 9, draw.integers(0, 5)))
            kind = kinds[draw.integers(len(kinds))]
            value = tf.bitcast(draw.integers(0, 256, shape + (tf.dtypes.as_dtype(kind).size,), "uint8"), kind) \
                if kind != "bool" and kind not in ("int8", "uint8") else tf.constant(draw.integers(0, 2, shape), kind)
            name = "/".join("scope%d" % part for part in draw.integers(0, 12, draw.integers(1, 9))) + "/x%d" % i
            with tf.device("/cpu:%d" % draw.integers(devices)):
                if len(shape) > 1 and shape[0] > 1 and 0 not in shape and kind in ("float32", "float64", "int32", "int64"):
                    parts = int(draw.integers(2, shape[0] + 1))
                    with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(parts)):
                        v1.get_variable(name, shape=shape, dtype=kind, use_resource=False,
                                        initializer=v1.random_uniform_initializer(-9, 9, dtype=kind, seed=i))
                else:
                    v1.Variable(value, name=name, use_resource=bool(i % 2))
        session.run(v1.global_variables_initializer())
        prefix = v1.train.Saver(sharded=devices > 1).save(session, str(folder / ("values%d" % seed)), write_meta_graph=False)
    reader = tf.train.load_checkpoint(prefix)
    lines = []
    for name, kind in sorted(reader.get_variable_to_dtype_map().items()):
        value = np.asarray(reader.get_tensor(name))
        label = "float16" if kind.name == "half" else kind.name
        lines.append("%s %s [%s] %s" % (name, label, ",".join(map(str, value.shape)), value.tobytes().hex() or "-"))
    (folder / ("values%d.txt" % seed)).write_text("\n".join(lines) + "\n")

for seed in range(4):
    save(seed)
"""

# Writes checkpoints of networks with random weights, two images, and their logits.
WRITE_NETWORKS = r"""
import os, pathlib, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf
v1, folder = tf.compat.v1, pathlib.Path(sys.argv[1])

class Network:
    # Variables as tf_cnn_benchmarks names them: each kind of layer is numbered through the network.
    def __init__(self, seed, outer):
        self.draw, self.outer, self.counts = np.random.default_rng(seed), outer, {}

    def number(self, kind):
        self.counts[kind] = self.counts.get(kind, -1) + 1
        return self.counts[kind]

    def variable(self, name, shape, low, high):
        value = self.draw.uniform(low, high, shape).astype(np.float32)
        v1.get_variable(self.outer + name + "/Momentum", initializer=value / 2, trainable=False)
        return v1.get_variable(self.outer + name, initializer=value)

    def statistic(self, name, size, low, high):
        return v1.get_variable(self.outer + name, initializer=self.draw.uniform(low, high, size).astype(np.float32),
                               trainable=False)

    def conv(self, x, channels, kernel, stride=1, scope="", centred=False):
        # `centred`: as many zeros on all sides, whatever the stride.
        scope = "%sconv%d/" % (scope, self.number("conv"))
        inputs = int(x.shape[3])
        reach = (6 / (kernel * kernel * inputs)) ** 0.5
        weight = self.variable(scope + "conv2d/kernel", (kernel, kernel, inputs, channels), -reach, reach)
        if centred and stride > 1:
            side = (kernel - 1) // 2
            x = tf.pad(x, [[0, 0], [side, side], [side, side], [0, 0]])
        x = tf.nn.conv2d(x, weight, [1, stride, stride, 1], "VALID" if centred and stride > 1 else "SAME")
        scope += "batchnorm%d/" % self.number("batchnorm")
        gamma, beta = self.variable(scope + "gamma", channels, 0.5, 1), self.variable(scope + "beta", channels, -0.2, 0.2)
        mean, variance = self.statistic(scope + "moving_mean", channels, -0.2, 0.2), \
            self.statistic(scope + "moving_variance", channels, 0.8, 1.5)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-5)

    def affine(self, x, classes):
        scope = "affine%d/" % self.number("affine")
        weight = self.variable(scope + "weights", (int(x.shape[1]), classes), -0.1, 0.1)
        return x @ weight + self.variable(scope + "biases", classes, -0.5, 0.5)

def resnet20(n, x):
    x = n.conv(x, 16, 3)
    for channels, first in ((16, 1), (32, 2), (64, 2)):
        for stride in (first, 1, 1):
            past = x
            if stride > 1:
                side = (channels - int(x.shape[3])) // 2
                past = tf.pad(x[:, ::stride, ::stride, :], [[0, 0], [0, 0], [0, 0], [side, side]])
            y = tf.nn.relu(n.conv(x, channels, 3, stride))
            x = tf.nn.relu(past + n.conv(y, channels, 3))
    return n.affine(tf.reduce_mean(x, [1, 2]), 11)

def bottlenecks(n, x, version):
    x = tf.nn.relu(n.conv(x, 64, 7, 2, centred=True))
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            narrow, stride = 64 << stage, 2 if stage > 0 and i == 0 else 1
            scope = "resnet_%s%d/" % (version, n.number("block"))
            past = n.conv(x, 4 * narrow, 1, stride, scope) if i == 0 else x
            y = tf.nn.relu(n.conv(x, narrow, 1, stride if version == "v1" else 1, scope))
            y = tf.nn.relu(n.conv(y, narrow, 3, 1 if version == "v1" else stride, scope, centred=True))
            x = tf.nn.relu(past + n.conv(y, 4 * narrow, 1, 1, scope))
    return n.affine(tf.reduce_mean(x, [1, 2]), 1001)

lines = []
for seed, (name, dataset, side, classes, outer, build) in enumerate((
        ("resnet20", "cifar10", 32, 11, "v0/cg/", resnet20),
        ("resnet50", "imagenet", 96, 1001, "v/cg/", lambda n, x: bottlenecks(n, x, "v1")),
        ("resnet50_v1.5", "imagenet", 96, 1001, "v/cg/", lambda n, x: bottlenecks(n, x, "v1.5")))):
    images = np.random.default_rng(100 + seed).uniform(-1, 1, (2, side, side, 3)).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        logits = build(Network(seed, outer), tf.constant(images))
        session.run(v1.global_variables_initializer())
        session.run(step.assign(110))
        (folder / name).mkdir()
        v1.train.Saver().save(session, str(folder / name / "model.ckpt"), global_step=110)
        np.save(folder / name / "images.npy", np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        np.save(folder / name / "logits.npy", session.run(logits))
    lines.append("%s %s %d %d" % (name, dataset, side, classes))
(folder / "networks.txt").write_text("\n".join(lines) + "\n")
"""


def run_test(program, test, **variables):
    result = subprocess.run([os.path.abspath(program), f"--gtest_filter={test}"], capture_output=True, text=True, check=False,
                            env={**os.environ, **variables})
    print(result.stdout)
    if result.returncode != 0:
        raise AssertionError(result.stderr)


def check_values(python, program, folder):
    subprocess.run([python, "-c", WRITE_VALUES, folder], check=True)
    checked = 0
    for expected in sorted(pathlib.Path(folder).glob("values?.txt")):
        ours = expected.with_suffix(".ours")
        run_test(program, "TensorFlowBundle.WritesTheValuesOfACheckpoint",
                 TRAINYARD_TENSORFLOW_CHECKPOINT=str(expected.with_suffix("")), TRAINYARD_TENSORFLOW_VALUES=str(ours))
        if ours.read_text() != expected.read_text():
            for line, (mine, theirs) in enumerate(zip(ours.read_text().splitlines(), expected.read_text().splitlines())):
                if mine != theirs:
                    raise AssertionError(f"{expected} line {line}: TensorFlow has {theirs[:200]}, ours is {mine[:200]}")
            raise AssertionError(f"{expected}: another number of tensors")
        checked += len(expected.read_text().splitlines())
    if checked < 250:
        raise AssertionError(f"only {checked} tensors were compared")
    print(f"{checked} tensors have the bits that TensorFlow reads")


def main():
    formats_test, frontends_test = sys.argv[1:]
    python = tensorflow_python()
    if python is None:
        print("skipped: needs TensorFlow (scripts/setup --peers installs it, or TRAINYARD_TENSORFLOW_PYTHON names a Python with it)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        check_values(python, formats_test, folder)
        subprocess.run([python, "-c", WRITE_NETWORKS, folder], check=True)
        run_test(frontends_test, "TensorFlowRun.HasItsLogits", TRAINYARD_TENSORFLOW_RUN=folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
