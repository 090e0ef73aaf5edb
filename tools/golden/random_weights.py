"""What the scripts share that carry a model with random weights from the program into another one."""
import os
import subprocess

import numpy as np


def models(program, wanted):
    """Each model of `trainyard models`, or those of the names in `wanted`, as (name, data set, image size)."""
    lines = subprocess.run([program, "models"], check=True, capture_output=True, text=True).stdout.split("\n\n")[0].splitlines()
    rows = [(words[0], words[1], int(words[2])) for words in map(str.split, lines[1:])]
    return [row for row in rows if not wanted or row[0] in wanted]


def write(build, model, dataset, path):
    """Random weights and statistics of the model, by build/trainyard_train_test."""
    subprocess.run([os.path.join(build, "trainyard_train_test"), "--gtest_filter=Weights.OfAModelAtRandom"], check=True,
                   stdout=subprocess.DEVNULL,
                   env={**os.environ, "TRAINYARD_WEIGHTS_MODEL": f"{model} {dataset}", "TRAINYARD_WEIGHTS_FILE": path})


def images(height, width=None):
    """Two of them, as a model takes them; squares without a width."""
    return np.random.default_rng(1).standard_normal((2, 3, height, width or height), dtype=np.float32)


def run(program, command, model, dataset, weights, *arguments):
    subprocess.run([program, command, f"--model={model}", f"--data_name={dataset}", f"--weights={weights}", *arguments],
                   check=True, stdout=subprocess.DEVNULL)


def error(actual, expected):
    """The largest difference as a part of the largest logit."""
    return np.abs(actual - expected).max() / np.abs(expected).max()
