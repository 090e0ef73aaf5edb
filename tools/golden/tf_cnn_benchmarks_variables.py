"""Names and shapes of the variables of tf_cnn_benchmarks' models, for trainyard/models/tf_cnn/variable_names_test.cpp.

usage: tf_cnn_benchmarks_variables.py FOLDER > trainyard/models/testdata/benchmark_variables.txt
FOLDER is scripts/tf_cnn_benchmarks of a checkout of tensorflow/benchmarks; needs TensorFlow 2. Prints for each model: name, data set,
number of variables, the CRC32C of their sorted lines "<name> <sizes>", and the line in the middle of those.
"""

import sys

from tf_cnn_benchmarks_networks import each_network


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


for dataset, name, variables, _ in each_network(sys.argv[1]):
    lines = sorted("%s %s" % (each.op.name, "x".join(map(str, each.shape.as_list()))) for each in variables)
    text = "".join(line + "\n" for line in lines)
    print(name, dataset, len(lines), crc32c(text.encode()), lines[len(lines) // 2])
