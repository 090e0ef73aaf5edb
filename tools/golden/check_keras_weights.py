#!/usr/bin/env python3
"""Loads what `trainyard export --format=hdf5` writes into Keras: check_keras_weights.py BUILD_FOLDER [MODEL...]

Needs Keras 3 with TensorFlow, PyTorch or JAX, of which KERAS_BACKEND names one (TensorFlow's without it), and h5py. Each model named keras/NAME gets random weights and statistics; the file goes into
keras.applications by load_weights(), by order and by name, and Keras' logits are compared with `trainyard predict`. Two
networks under other names that Keras has, too, go in by order alone; every other model's file is opened with h5py. Then
keras.models.load_model() opens what --format=keras writes of each model, and its logits are compared; models that it
refuses are named. Ends with 1 when logits differ by more than 1e-4 of the largest.
"""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import h5py
import keras
import numpy as np

import random_weights

APPLICATIONS = {"keras/resnet50": "ResNet50", "keras/resnet101": "ResNet101", "keras/resnet152": "ResNet152",
                "keras/vgg16": "VGG16", "keras/vgg19": "VGG19", "keras/mobilenet_v2": "MobileNetV2",
                "keras/densenet121": "DenseNet121", "keras/densenet169": "DenseNet169",
                "keras/densenet201": "DenseNet201", "keras/inception_v3": "InceptionV3"}
SAME_ELSEWHERE = {"vgg16": "VGG16", "mobilenet": "MobileNetV2", "torchvision/vgg16": "VGG16"}


def count_numbers(path):
    """All numbers of a file, as its attributes list them."""
    def names(group, name):
        if name in group.attrs:
            return [text.decode() for text in group.attrs[name]]
        parts = [key for key in group.attrs if key.startswith(name) and key[len(name):].isdigit()]
        return [text.decode() for key in sorted(parts, key=lambda key: int(key[len(name):])) for text in group.attrs[key]]

    with h5py.File(path) as file:
        return sum(file[layer][weight].size for layer in names(file, "layer_names")
                   for weight in names(file[layer], "weight_names"))


def logits(network, images):
    """Of images [N, C, H, W]."""
    return keras.ops.convert_to_numpy(network(images.transpose(0, 2, 3, 1), training=False))


def whole_model(program, model, dataset, weights, output):
    """Keras' model of what --format=keras writes, or what the program says when it refuses."""
    done = subprocess.run([program, "export", f"--model={model}", f"--data_name={dataset}", f"--weights={weights}",
                           "--format=keras", f"--output={output}"], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.splitlines()[0]
    keras.backend.clear_session()
    return keras.models.load_model(output, compile=False), ""


def main(build, wanted):
    program = os.path.join(build, "trainyard")
    worst = 0
    for model, dataset, size in random_weights.models(program, wanted):
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)
            random_weights.write(build, model, dataset, path("w.safetensors"))
            random_weights.run(program, "export", model, dataset, path("w.safetensors"), "--format=hdf5",
                               f"--output={path('w.h5')}")
            x = random_weights.images(size)
            np.save(path("x.npy"), x)
            random_weights.run(program, "predict", model, dataset, path("w.safetensors"), f"--input={path('x.npy')}",
                               f"--output={path('y.npy')}")
            expected = np.load(path("y.npy"))
            network, refusal = whole_model(program, model, dataset, path("w.safetensors"), path("whole.h5"))
            if network is None:
                print(f"{model:26} {dataset:9} whole: {refusal}", flush=True)
            else:
                error = random_weights.error(logits(network, x), expected)
                print(f"{model:26} {dataset:9} whole error {error:.1e} of the largest logit", flush=True)
                worst = max(worst, error) if error == error else float("inf")
            application = APPLICATIONS.get(model) or SAME_ELSEWHERE.get(model)
            if application is None:
                print(f"{model:26} {dataset:9} {count_numbers(path('w.h5'))} numbers", flush=True)
                continue
            for by_name in (False, True) if model in APPLICATIONS else (False,):
                keras.backend.clear_session()  # numbers layers without a name anew
                network = getattr(keras.applications, application)(weights=None, classifier_activation=None)
                network.load_weights(path("w.h5"), **({"by_name": True} if by_name else {}))
                assert count_numbers(path("w.h5")) == network.count_params(), f"{model}: other parameters than Keras'"
                error = random_weights.error(logits(network, x), expected)
                print(f"{model:26} {'by name' if by_name else 'by order':9} error {error:.1e} of the largest logit", flush=True)
                worst = max(worst, error) if error == error else float("inf")
    return 0 if worst <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
