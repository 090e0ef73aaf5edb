"""What tf_cnn_benchmarks' networks compute, for trainyard/models/tf_cnn/networks_test.cpp.

usage: tf_models.py FOLDER [NAME...]     (tensorflow; tf_networks.py, tf_residual_networks.py and tf_ssd.py have the networks)

Writes FOLDER/<model>.<data set>.txt: lines, weights, statistics, images and the loss are those of torchvision_models.py,
all in double; SIZES are the images'.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy
import tensorflow as tf

import drawn
import tf_networks
import tf_residual_networks
import tf_ssd

CLASSES, BATCH = 10, 2
# Name, data set, size of the images, network.
MODELS = [
    ("alexnet", "imagenet", 99, tf_networks.alexnet),
    ("alexnet", "cifar10", 32, tf_networks.cifar_alexnet),
    ("overfeat", "imagenet", 107, tf_networks.overfeat),
    ("vgg11", "imagenet", 64, tf_networks.vgg11),
    ("googlenet", "imagenet", 66, tf_networks.googlenet),
    ("inception3", "imagenet", 107, tf_networks.inception3),
    ("inception4", "imagenet", 107, tf_networks.inception4),
    ("lenet", "imagenet", 28, tf_networks.lenet),
    ("trivial", "cifar10", 32, tf_networks.trivial),
    ("resnet50", "imagenet", 66, tf_residual_networks.resnet50),
    ("resnet50_v2", "imagenet", 66, tf_residual_networks.resnet50_v2),
    ("official_resnet18", "imagenet", 66, tf_residual_networks.official_resnet18),
    ("official_resnet50", "imagenet", 66, tf_residual_networks.official_resnet50),
    ("official_resnet50_v2", "imagenet", 66, tf_residual_networks.official_resnet50_v2),
    ("mobilenet", "imagenet", 66, tf_residual_networks.mobilenet),
    ("resnet20", "cifar10", 32, tf_residual_networks.resnet20),
    ("resnet20_v2", "cifar10", 32, tf_residual_networks.resnet20_v2),
    ("densenet40_k12", "cifar10", 32, tf_residual_networks.densenet40_k12),
    ("nasnet", "cifar10", 32, tf_residual_networks.cifar_nasnet),
    ("nasnet", "imagenet", 66, tf_residual_networks.nasnet),
    ("ssd300", "coco", 300, tf_ssd.ssd300),
]


def write(folder, name, dataset, size, build):
    batch = 1 if dataset == "coco" else BATCH
    images = tf.constant(drawn.draw("images", (batch, 3, size, size)).transpose(0, 2, 3, 1))
    logits = build(tf_networks.Network(drawn.start, CLASSES, training=False), images).numpy()
    lines = ["size %d" % size] + drawn.output_lines(logits)
    network = tf_networks.Network(drawn.start, CLASSES, training=True)
    with tf.GradientTape() as tape:
        logits = build(network, images)
        loss = tf.reduce_mean(logits * drawn.draw("cotangent", logits.shape))
    gradients = tape.gradient(loss, network.variables)
    for variable, gradient in gradients.items():
        values, shape = gradient.numpy(), gradient.shape
        lines.append("gradient %s [%s] %.6g %.6g" % (variable, ", ".join(map(str, shape)), numpy.linalg.norm(values),
                                                     (values * drawn.draw("probe " + variable, shape)).sum()))
    with open("%s/%s.%s.txt" % (folder, name, dataset), "w") as file:
        file.write("\n".join(lines) + "\n")
    print(name, dataset, "largest logit %.3g" % numpy.abs(logits).max(), flush=True)


for model in MODELS:
    if not sys.argv[2:] or model[0] in sys.argv[2:]:
        write(sys.argv[1], *model)
