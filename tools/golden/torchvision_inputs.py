"""How torchvision makes images for each file of weights that it publishes, for
trainyard/cli/published_input_test.cpp.

usage: torchvision_inputs.py FILE     (torchvision)

A line of FILE: network, name of the set of weights, file name, pixels that are cut out, pixels of the shorter side before that,
interpolation, mean and standard deviation of red, green and blue.
"""

import sys

from torchvision import models

with open(sys.argv[1], "w") as file:
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            transforms = weights.transforms()
            numbers = " ".join("%.6g" % number for number in (*transforms.mean, *transforms.std))
            file.write("%s %s %s %d %d %s %s\n" % (name, weights.name, weights.url.rsplit("/", 1)[-1], transforms.crop_size[0],
                                                   transforms.resize_size[0], transforms.interpolation.value, numbers))
