#!/usr/bin/env python3
"""One process of a cluster of TensorFlow's own parameter servers (tf.compat.v1.train.Server) that trains a network of
tf.keras.applications on synthetic images. Worker 0 prints one JSON line (measured.py), whose images are those of all workers.

usage: train_tensorflow_servers.py CLUSTER JOB TASK MODEL BATCH STEPS THREADS

CLUSTER is JSON, {"ps": ["127.0.0.1:5000"], "worker": [...]}; BATCH is a worker's; THREADS are those of an operation. Worker 0 runs
the graph of all: variables on the servers, a copy of the network on each worker, the means of their gradients and SGD on the servers.
Beyond that a step has nothing: no decay, and no averages of batch normalization, which tf_cnn_benchmarks has on the servers, too.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, which reads it

import tensorflow as tf

from measured import measure
from train_tensorflow import build

v1 = tf.compat.v1
RATE = 1e-3


def make_step(model_name, batch, cluster):
    """The operation of a step, whose value is the mean loss."""
    spec = tf.train.ClusterSpec(cluster)
    with v1.device(v1.train.replica_device_setter(cluster=spec)):
        model = build(model_name)
    variables = [variable.value for variable in model.trainable_variables]
    losses, gradients = [], []
    for task in range(len(cluster["worker"])):
        with v1.device(f"/job:worker/task:{task}"):
            images = v1.get_local_variable(f"images_{task}", initializer=tf.random.normal((batch, *model.input_shape[1:])), use_resource=True)
            labels = v1.get_local_variable(f"labels_{task}", use_resource=True,
                                           initializer=tf.random.uniform((batch,), 0, model.output_shape[-1], dtype=tf.int32))
            losses.append(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))))
            gradients.append(tf.gradients(losses[-1], variables))
    means = []
    for variable, of_all in zip(variables, zip(*gradients)):
        with v1.device(variable.device):
            means.append(tf.add_n(list(of_all)) / len(of_all))
    # No value is changed that a worker still reads.
    with tf.control_dependencies(means):
        update = v1.train.GradientDescentOptimizer(RATE).apply_gradients(list(zip(means, variables)))
    with tf.control_dependencies([update]):
        return tf.add_n(losses) / len(losses)


def main(cluster, job, task, model, batch, steps, threads):
    v1.disable_eager_execution()
    config = v1.ConfigProto(intra_op_parallelism_threads=threads)
    server = v1.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task, config=config)
    if (job, task) != ("worker", 0):
        server.join()
    step = make_step(model, batch, cluster)
    with v1.Session(server.target) as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        measure(batch * len(cluster["worker"]), steps, lambda: session.run(step))
    os._exit(0)  # servers do not end


if __name__ == "__main__":
    if len(sys.argv) != 8:
        sys.exit(__doc__)
    main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:]))
