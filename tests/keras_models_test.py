#!/usr/bin/env python3
"""What `trainyard export --format=keras` writes of ten models, opened by Keras and compared with `trainyard predict`.

Usage: scripts/test_python tests/keras_models_test.py PROGRAM (build/trainyard). tools/golden/check_keras_weights.py does so with all
models, and with Keras' other backends.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ["KERAS_BACKEND"] = "jax"
import h5py
import keras
import numpy

# Weights come from the files: drawing others first takes nine tenths of the time that loading takes.
keras.initializers.GlorotUniform.__call__ = lambda self, shape, dtype=None: numpy.zeros(shape, "float32")

program = os.path.abspath(sys.argv.pop(1))


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)


class KerasModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_ten_models_open_in_keras(self):
        """On JAX here. Its PyTorch backend refuses names that the others take, so names are looked at by themselves."""
        models = ("resnet50_v1.5", "torchvision/resnet18", "torchvision/mobilenet_v2", "torchvision/mobilenet_v3_small",
                  "torchvision/shufflenet_v2_x1_0", "torchvision/squeezenet1_1", "torchvision/mnasnet1_0",
                  "torchvision/regnet_y_400mf", "torchvision/efficientnet_b0", "keras/mobilenet_v2")
        images = numpy.random.default_rng(4).standard_normal((2, 3, 64, 64), dtype=numpy.float32)
        numpy.save(self.root / "zoo.npy", images)
        for number, model in enumerate(models):
            with self.subTest(model):
                folder = f"--train_dir={self.root / f'zoo{number}'}"
                for command in (["train", f"--model={model}", "--data_name=imagenet", "--synthetic", "--device=cpu", "--image_size=64",
                                 "--num_classes=7", "--batch_size=4", "--num_batches=1", "--init_learning_rate=0.01", folder],
                                ["predict", folder, f"--input={self.root / 'zoo.npy'}",
                                 f"--output={self.root / 'zoo_logits.npy'}"],
                                ["export", folder, "--format=keras", f"--output={self.root / 'zoo.h5'}"]):
                    done = run(*command)
                    self.assertEqual(done.returncode, 0, done.stderr)
                expected = numpy.load(self.root / "zoo_logits.npy")
                with h5py.File(self.root / "zoo.h5") as file:
                    config = json.loads(file.attrs["model_config"])["config"]
                    groups = set(file["model_weights"])
                names = [layer["config"]["name"] for layer in config["layers"]]
                for name in (config["name"], *names):
                    self.assertRegex(name, r"\A[\w-]+\Z")
                self.assertEqual(len(set(names)), len(names))
                self.assertLessEqual(groups, set(names))
                network = keras.models.load_model(self.root / "zoo.h5", compile=False)
                logits = network.predict(images.transpose(0, 2, 3, 1), verbose=0)
                self.assertLess(numpy.abs(logits - expected).max(), 1e-4 * numpy.abs(expected).max())


if __name__ == "__main__":
    unittest.main()
