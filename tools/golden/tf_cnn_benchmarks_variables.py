"""Names and shapes of the variables of tf_cnn_benchmarks' models, for trainyard/models/tf_cnn/variable_names_test.cpp.

usage: tf_cnn_benchmarks_variables.py FOLDER > trainyard/models/testdata/benchmark_variables.txt
FOLDER is scripts/tf_cnn_benchmarks of a checkout of tensorflow/benchmarks; needs TensorFlow 2. Prints for each model: name, data set,
number of variables, the CRC32C of their sorted lines "<name> <sizes>", and the line in the middle of those.
"""

import sys

import tensorflow

sys.path.insert(0, sys.argv[1])

import convnet_builder  # noqa: E402
from models import alexnet_model, googlenet_model, inception_model  # noqa: E402
from models import lenet_model, overfeat_model, resnet_model, trivial_model, vgg_model  # noqa: E402

tf = tensorflow.compat.v1


class Parameters:
    """Answers every question about a flag with nothing."""

    def __getattr__(self, name):
        return None


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def describe(dataset, name, make):
    classes = 1000 if dataset == "imagenet" else 10
    with tf.Graph().as_default():
        model = make()
        images = tf.zeros([2, model.image_size, model.image_size, 3])
        network = convnet_builder.ConvNetBuilder(images, 3, True, use_tf_layers=False, data_format="NHWC")
        model.add_inference(network)
        network.affine(classes, activation="linear")
        variables = tf.global_variables()
    lines = sorted("%s %s" % (each.op.name, "x".join(map(str, each.shape.as_list()))) for each in variables)
    text = "".join(line + "\n" for line in lines)
    print(name, dataset, len(lines), crc32c(text.encode()), lines[len(lines) // 2])


p = Parameters()
for name, make in {
    "alexnet": lambda: alexnet_model.AlexnetModel(p),
    "googlenet": lambda: googlenet_model.GooglenetModel(p),
    "inception3": lambda: inception_model.Inceptionv3Model(params=p),
    "inception4": lambda: inception_model.Inceptionv4Model(params=p),
    "lenet": lambda: lenet_model.Lenet5Model(p),
    "overfeat": lambda: overfeat_model.OverfeatModel(p),
    "resnet101": lambda: resnet_model.create_resnet101_model(p),
    "resnet101_v2": lambda: resnet_model.create_resnet101_v2_model(p),
    "resnet152": lambda: resnet_model.create_resnet152_model(p),
    "resnet152_v2": lambda: resnet_model.create_resnet152_v2_model(p),
    "resnet50": lambda: resnet_model.create_resnet50_model(p),
    "resnet50_v1.5": lambda: resnet_model.create_resnet50_v1_5_model(p),
    "resnet50_v2": lambda: resnet_model.create_resnet50_v2_model(p),
    "trivial": lambda: trivial_model.TrivialModel(p),
    "vgg11": lambda: vgg_model.Vgg11Model(p),
    "vgg16": lambda: vgg_model.Vgg16Model(p),
    "vgg19": lambda: vgg_model.Vgg19Model(p),
}.items():
    describe("imagenet", name, make)
for name, make in {
    "alexnet": lambda: alexnet_model.AlexnetCifar10Model(p),
    "trivial": lambda: trivial_model.TrivialCifar10Model(p),
}.items():
    describe("cifar10", name, make)
for layers in (20, 32, 44, 56, 110):
    for suffix in ("", "_v2"):
        make = getattr(resnet_model, "create_resnet%d%s_cifar_model" % (layers, suffix))
        describe("cifar10", "resnet%d%s" % (layers, suffix), lambda make=make: make(p))
