"""Trainable variables of tf_cnn_benchmarks' models, for trainyard/models/tf_cnn/benchmark_test.cpp.

usage: tf_cnn_benchmarks_models.py FOLDER     scripts/tf_cnn_benchmarks of a checkout of tensorflow/benchmarks; needs
TensorFlow 2. Prints `{"<model>", "<data set>", <parameters>},` at 1,000 and 10 classes. NASNet's number is Keras'.
"""

import sys

import tensorflow
from tf_cnn_benchmarks_networks import each_network

for dataset, name, _, trainable in each_network(sys.argv[1]):
    print('{"%s", "%s", %d},' % (name, dataset, sum(variable.shape.num_elements() for variable in trainable)))
for name, network, size in (("nasnet", tensorflow.keras.applications.NASNetMobile, 224),
                            ("nasnetlarge", tensorflow.keras.applications.NASNetLarge, 331)):
    keras = network(weights=None, input_shape=(size, size, 3))
    print('{"%s", "imagenet", %d},' % (name, sum(weight.shape.num_elements() for weight in keras.trainable_weights)))
