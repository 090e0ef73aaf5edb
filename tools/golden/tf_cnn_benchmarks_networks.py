"""The networks of tf_cnn_benchmarks itself, for tf_cnn_benchmarks_models.py and tf_cnn_benchmarks_variables.py. Needs TensorFlow 2.

Its models on slim and on the official models need packages that are gone. Its DenseNets are not the paper's.
"""

import sys

import tensorflow

tf = tensorflow.compat.v1


class Parameters:
    """Answers every question about a flag with nothing."""

    def __getattr__(self, name):
        return None


def makers():
    """Yields data set, name and what makes the model."""
    from models import alexnet_model, googlenet_model, inception_model
    from models import lenet_model, overfeat_model, resnet_model, trivial_model, vgg_model
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
        yield "imagenet", name, make
    for name, make in {
        "alexnet": lambda: alexnet_model.AlexnetCifar10Model(p),
        "trivial": lambda: trivial_model.TrivialCifar10Model(p),
    }.items():
        yield "cifar10", name, make
    for layers in (20, 32, 44, 56, 110):
        for suffix in ("", "_v2"):
            make = getattr(resnet_model, "create_resnet%d%s_cifar_model" % (layers, suffix))
            yield "cifar10", "resnet%d%s" % (layers, suffix), lambda make=make: make(p)


def each_network(folder):
    """Yields data set, name, all variables and the trainable ones of each model of the checkout's scripts/tf_cnn_benchmarks."""
    sys.path.insert(0, folder)
    import convnet_builder
    for dataset, name, make in makers():
        with tf.Graph().as_default():
            model = make()
            images = tf.zeros([2, model.image_size, model.image_size, 3])
            network = convnet_builder.ConvNetBuilder(images, 3, True, use_tf_layers=False, data_format="NHWC")
            model.add_inference(network)
            network.affine(1000 if dataset == "imagenet" else 10, activation="linear")
            yield dataset, name, tf.global_variables(), tf.trainable_variables()
