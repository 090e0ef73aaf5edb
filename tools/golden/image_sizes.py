"""Logits of torchvision's and Keras' networks on images that are not of their own size, for
trainyard/models/image_sizes_test.cpp.

usage: image_sizes.py FILE     (torch, torchvision, and Keras 3 on its PyTorch backend)

Weights, statistics and images are a formula of a tensor's name and an element's index (drawn.py), names and shapes being
torchvision's; Keras' tensors take those of the same layer here. Each line of FILE is

  MODEL HxW LOGIT...      of CLASSES classes and BATCH images, in evaluation, computed in double

torchvision's ViT takes squares only, by an assertion; here its patches are those of the whole image, row by row, and its
position embedding has a vector for each. Nothing else of it depends on the image.
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy
import torch
import torchvision

import drawn

CLASSES, BATCH = 10, 2
TORCHVISION = [("resnet18", 160, 192), ("mobilenet_v2", 160, 192), ("vgg11", 160, 192), ("vit_b_16", 160, 192),
               ("swin_t", 160, 192), ("swin_t", 180, 260), ("alexnet", 160, 192), ("squeezenet1_1", 161, 130),
               ("inception_v3", 160, 192), ("densenet121", 96, 224), ("regnet_y_400mf", 65, 97)]
KERAS = [("mobilenet_v2", "MobileNetV2", 160, 192), ("resnet50", "ResNet50", 97, 130), ("vgg16", "VGG16", 64, 96),
         ("densenet121", "DenseNet121", 96, 128), ("inception_v3", "InceptionV3", 107, 140)]


def images(height, width):
    return torch.from_numpy(drawn.draw("images", (BATCH, 3, height, width)))


def rectangular(vit, height, width):
    """A ViT that was made for squares, for images of that size."""
    rows, columns = height // vit.patch_size, width // vit.patch_size
    vit.encoder.pos_embedding = torch.nn.Parameter(torch.zeros(1, 1 + rows * columns, vit.hidden_dim))
    vit._process_input = lambda x: vit.conv_proj(x).flatten(2).permute(0, 2, 1)
    return vit


def of_torchvision(name, height, width):
    options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    model = getattr(torchvision.models, name)(num_classes=CLASSES, **options)
    if name.startswith("vit_"):
        model = rectangular(model, height, width)
    model = model.double().eval()
    with torch.no_grad():
        for tensor_name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(drawn.start(tensor_name, tuple(tensor.shape))))
        return model(images(height, width)).numpy()


def drawn_for_keras(layer, variable, flattened):
    """The variable's numbers; those of the layer here are [out, in, height, width] or [out, in]."""
    shape = tuple(variable.shape)
    name = {"kernel": "weight", "depthwise_kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias",
            "moving_mean": "running_mean", "moving_variance": "running_var"}[variable.name]
    name = "%s.%s" % (layer.name, name)
    if isinstance(layer, keras.layers.DepthwiseConv2D):
        return drawn.start(name, (shape[2], 1) + shape[:2]).transpose(2, 3, 0, 1)
    if len(shape) == 4:
        return drawn.start(name, (shape[3], shape[2], shape[0], shape[1])).transpose(2, 3, 1, 0)
    if len(shape) == 2 and flattened:  # of [height, width, channels] there, of [channels, height, width] here
        height, width, channels = flattened
        start = drawn.start(name, (shape[1], shape[0])).reshape(shape[1], channels, height, width)
        return start.transpose(2, 3, 1, 0).reshape(shape)
    if len(shape) == 2:
        return drawn.start(name, (shape[1], shape[0])).T
    return drawn.start(name, shape)


def of_keras(application, height, width):
    keras.backend.clear_session()  # numbers layers without a name anew
    model = getattr(keras.applications, application)(weights=None, input_shape=(height, width, 3), classes=CLASSES,
                                                     classifier_activation=None)
    flattened = None
    for layer in model.layers:
        if isinstance(layer, keras.layers.Flatten):
            flattened = layer.input.shape[1:]
        for variable in layer.weights:
            variable.assign(drawn_for_keras(layer, variable, flattened))
        if layer.weights:
            flattened = None
    with torch.no_grad():
        return model(images(height, width).permute(0, 2, 3, 1), training=False).numpy()


def main(path):
    keras.config.set_floatx("float64")
    with open(path, "w") as file:
        def write(name, height, width, logits):
            print(name, height, width, "largest logit %.3g" % numpy.abs(logits).max(), flush=True)
            file.write("%s %dx%d %s\n" % (name, height, width, " ".join("%.7g" % x for x in logits.flatten())))

        for name, height, width in TORCHVISION:
            write("torchvision/" + name, height, width, of_torchvision(name, height, width))
        for name, application, height, width in KERAS:
            write("keras/" + name, height, width, of_keras(application, height, width))


if __name__ == "__main__":
    main(sys.argv[1])
