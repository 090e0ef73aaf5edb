#!/usr/bin/env python3
"""Writes what TensorFlow's all-reduce algorithms make of small tensors, bit by bit, for all_reduce_order_test.cpp:
all_reduce.py TF_CNN_BENCHMARKS > trainyard/parallel/testdata/all_reduce.txt

Needs tensorflow (2.21) and a folder with tf_cnn_benchmarks' sources (scripts/tf_cnn_benchmarks of tensorflow/benchmarks), whose
hierarchical copy it runs. The other algorithms are those of tensorflow/python/distribute/v1/all_reduce.py.

Each line: algorithm as in an all_reduce_spec, number of machines, replicas of each, elements, then the sum's bits. The values of a
replica are those of values().
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy
import tensorflow.compat.v1 as tf
from tensorflow.python.distribute.v1 import all_reduce

ELEMENTS = (1, 5, 37, 96)
RINGS = ((1, 4, 1), (1, 4, 2), (1, 8, 4), (1, 6, 3), (2, 3, 2), (2, 4, 2), (2, 2, 2), (4, 1, 1))  # machines, replicas, subchunks


def values(rank, elements):
    i = numpy.arange(elements)
    whole = ((i * 7919 + rank * 104729 + 17) % 2003 - 1001).astype(numpy.float32)
    return whole / numpy.float32(7) * numpy.exp2((i + 3 * rank) % 5 - 2).astype(numpy.float32)


def cpu(worker):
    return f"/job:worker/task:{worker}/device:CPU:0"


def run(build, machines, replicas, elements):
    """Returns the sum that build(tensors, devices) gives on all replicas."""
    with tf.Graph().as_default() as graph:
        tensors = []
        for rank in range(machines * replicas):
            with tf.device(f"/job:worker/task:{rank // replicas}/device:GPU:{rank % replicas}"):
                tensors.append(tf.constant(values(rank, elements)))
        outputs = [tf.identity(each) for each in build(tensors)]
        names = [each.name for each in outputs]
    # The devices have decided who adds what. The steps run on one.
    definition = graph.as_graph_def()
    for node in definition.node:
        node.device = ""
    with tf.Graph().as_default():
        fetched = tf.import_graph_def(definition, return_elements=names, name="")
        # Without rewrites of the graph, which could change the order of additions.
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        with tf.Session(config=config) as session:
            results = session.run(fetched)
    bits = [result.view(numpy.uint32) for result in results]
    assert all((each == bits[0]).all() for each in bits)
    return bits[0]


def write(name, build, machines, replicas, can=lambda elements: True):
    for elements in ELEMENTS:
        if can(elements):
            bits = run(build, machines, replicas, elements)
            print(name, machines, replicas, elements, " ".join(f"{each:08x}" for each in bits))


def rings(machines, replicas, subchunks):
    return lambda tensors: all_reduce.build_ring_all_reduce(tensors, machines, subchunks, list(range(replicas)), tf.add)


def hierarchical(topology):
    import batch_allreduce
    import constants
    algorithm = batch_allreduce.HierarchicalCopyAlgorithm(constants.NetworkTopology(topology))
    return lambda tensors: [each[0] for each in algorithm._do_batch_all_reduce([[tensor] for tensor in tensors])]


def main(folder):
    sys.path.insert(0, folder)
    tf.disable_eager_execution()
    print(f"# tools/golden/all_reduce.py: tensorflow {tf.__version__}")
    for ranks in range(2, 9):
        write("ring", rings(1, ranks, 1), 1, ranks)
    for machines, replicas, subchunks in RINGS:
        write(f"xring#{subchunks}", rings(machines, replicas, subchunks), machines, replicas)
    for ranks in 2, 4, 8:
        write("rechd", lambda tensors: all_reduce.build_recursive_hd_all_reduce(tensors, tf.add), 1, ranks,
              can=lambda elements: elements % ranks == 0)
    for ranks, shards in ((2, 1), (3, 2), (5, 3), (8, 1), (8, 4)):
        places = [f"/job:worker/task:0/device:GPU:{i * ranks // shards}" for i in range(shards)]
        write(f"shuffle#{shards}", lambda tensors: all_reduce.build_shuffle_all_reduce(tensors, places, tf.add_n), 1, ranks,
              can=lambda elements: elements >= shards)
    for machines, replicas in ((1, 4), (2, 2), (2, 4), (3, 2)):
        cpus = [cpu(worker) for worker in range(machines)]
        write("pscpu/pscpu", lambda tensors: all_reduce.build_shuffle_then_shuffle(tensors, cpus, [cpus[0]], tf.add_n),
              machines, replicas)
        write("pscpu/xring", lambda tensors: all_reduce.build_shuffle_then_ring(tensors, cpus, 1, tf.add_n, tf.add),
              machines, replicas)
    for ranks in 2, 4, 6, 8:
        write("hierarchical_copy/dgx1", hierarchical("dgx1"), 1, ranks)
    write("hierarchical_copy/gcp_v100", hierarchical("gcp_v100"), 1, 8)


if __name__ == "__main__":
    main(sys.argv[1])
