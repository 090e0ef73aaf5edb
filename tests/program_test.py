#!/usr/bin/env python3
"""The program as a user runs it: its files open in other programs' readers, and signals end it as documented.

Usage: scripts/test_python tests/program_test.py PROGRAM (build/trainyard).
"""
import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest

os.environ["KERAS_BACKEND"] = "jax"
import h5py
import keras
import numpy
import onnx
import onnxruntime
from PIL import Image
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

program = os.path.abspath(sys.argv.pop(1))


def run(*arguments, **kwargs):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, **kwargs)


def checkpoint_tensors(folder):
    """(name, numbers) of the float tensors of a checkpoint, by docs/formats/checkpoint.md alone."""
    content = (folder / "tensors.bin").read_bytes()
    for tensor in json.loads((folder / "manifest.json").read_text())["tensors"]:
        if tensor["dtype"] in ("float32", "float64"):
            end = tensor["offset"] + tensor["bytes"]
            yield tensor["name"], numpy.frombuffer(content[tensor["offset"]:end], tensor["dtype"])


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.data = cls.root / "shapes"
        made = run("data", "make-shapes", f"--output={cls.data}", "--train_count=96", "--validation_count=24")
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def flags(self, train_dir, *more):
        base = ["train", "--model=resnet20", f"--data_dir={self.data}", "--device=cpu", "--batch_size=8", "--num_batches=6",
                "--init_learning_rate=0.05", "--print_training_accuracy", "--save_summaries_steps=2",
                f"--train_dir={self.root / train_dir}"]
        given = {flag.split("=")[0] for flag in more}  # a sub-command refuses a repetition
        return [flag for flag in base if flag.split("=")[0] not in given] + list(more)

    def test_tensorboard_shows_the_first_images_of_a_batch(self):
        colours = [(200, 30, 40), (20, 60, 210)]
        for name, colour in zip(("red", "blue"), colours):
            (self.root / "two_colours" / "train" / name).mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (40, 30), colour).save(self.root / "two_colours" / "train" / name / f"{number}.png")
        for dialect, verbosity, normalization in ((), 3, "symmetric"), (("train",), 9, "mean_std"):
            board = self.root / f"board{verbosity}"
            done = run(*dialect, "--model=trivial", "--image_size=32", "--device=cpu", "--batch_size=4", "--num_batches=2",
                       "--num_warmup_batches=0", "--nodistortions", f"--data_dir={self.root / 'two_colours'}", "--data_name=imagenet",
                       f"--normalization={normalization}", "--save_summaries_steps=1", f"--summary_verbosity={verbosity}",
                       f"--train_dir={board}")
            self.assertEqual(done.returncode, 0, done.stderr)
            events = EventAccumulator(str(board), size_guidance={"images": 0})
            events.Reload()
            self.assertEqual(sorted(events.Tags()["images"]), [f"input/image/{number}" for number in range(3)])
            for tag in events.Tags()["images"]:
                self.assertEqual([shown.step for shown in events.Images(tag)], [1, 2])
                for shown in events.Images(tag):
                    pixels = numpy.asarray(Image.open(io.BytesIO(shown.encoded_image_string)), dtype=int)
                    self.assertEqual(pixels.shape, (32, 32, 3))
                    self.assertLessEqual(min(abs(pixels - colour).max() for colour in colours), 1)

    def test_files_open_in_other_readers(self):
        done = run(*self.flags("files", "--eval_during_training_every_n_steps=3", "--eval_exact", "--summary_verbosity=2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.root / "files"

        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        trained = [row for row in rows if row["phase"] == "train"]
        self.assertEqual([row["global_step"] for row in trained], [2, 4, 6])
        shares = [row[name] for row in trained for name in
                  ("input_share", "compute_share", "communication_share", "update_share")]
        self.assertTrue(all(0 <= share <= 1 for share in shares), shares)
        self.assertAlmostEqual(sum(shares), len(trained), delta=0.02 * len(trained))

        table = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
        self.assertEqual(len(table), len(rows))
        for row, cells in zip(rows, table):
            for name, value in row.items():
                self.assertEqual(cells[name], value) if isinstance(value, str) else self.assertAlmostEqual(
                    float(cells[name]), value, delta=1e-3)

        events = EventAccumulator(str(folder), size_guidance={"histograms": 0})  # all of them
        events.Reload()
        for tag in ("learning_rate", "total_loss"):
            shown = [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]
            self.assertEqual([step for step, _ in shown], [2, 4, 6])
            for (_, value), row in zip(shown, trained):
                self.assertAlmostEqual(value, row[tag], places=5)
        accuracy = events.Scalars("eval/Accuracy@1")
        self.assertEqual([scalar.step for scalar in accuracy], [3, 6])
        self.assertAlmostEqual(accuracy[-1].value, [row for row in rows if row["phase"] == "eval"][-1]["top_1_accuracy"],
                               places=6)

        self.assertEqual(events.Tags()["histograms"], ["log_gradients"])
        counted = events.Histograms("log_gradients")
        self.assertEqual([histogram.step for histogram in counted], [2, 4, 6])
        for histogram in counted:
            # The natural logarithms of a few hundred thousand gradients, most of them small.
            self.assertGreater(histogram.histogram_value.num, 250000)
            self.assertLess(histogram.histogram_value.sum / histogram.histogram_value.num, -2)

        summary = json.loads((folder / "run_summary.json").read_text())
        self.assertEqual((summary["model"], summary["global_step"]), ("resnet20", 6))

    def test_a_killed_run_leaves_its_record_and_no_row_twice(self):
        flags = self.flags("killed", "--num_batches=100000", "--display_every=1", "--save_summaries_steps=1", "--save_model_steps=3")
        process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("5\timages/sec"):
                break
        process.kill()
        process.communicate(timeout=60)
        folder = self.root / "killed"
        summary = json.loads((folder / "run_summary.json").read_text())
        self.assertEqual((summary["status"], summary["ended"]), ("running", None))
        self.assertEqual(summary["flags"]["num_batches"], 100000)
        written = [json.loads(line)["global_step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        saved = max(int(name.rsplit("-", 1)[1]) for name in os.listdir(folder) if name.startswith("model.ckpt-"))
        self.assertGreater(written[-1], saved)  # the killed run was ahead of its checkpoint
        end = saved + 4
        resumed = run(*self.flags("killed", f"--num_batches={end}", "--display_every=1", "--save_summaries_steps=1"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        expected = [str(step) for step in range(1, end + 1)]
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([str(row["global_step"]) for row in rows], expected)
        table = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
        self.assertEqual([row["global_step"] for row in table], expected)
        events = EventAccumulator(str(folder))
        events.Reload()
        self.assertEqual([str(scalar.step) for scalar in events.Scalars("total_loss")], expected)
        self.assertEqual(json.loads((folder / "run_summary.json").read_text())["status"], "finished")

    def test_a_signal_saves_and_the_same_command_goes_on(self):
        flags = self.flags("signal", "--num_batches=100000", "--display_every=1")
        process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("2\timages/sec"):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, errors)
        (saved,) = [name for name in os.listdir(self.root / "signal") if name.startswith("model.ckpt-")]
        step = int(saved.rsplit("-", 1)[1])
        self.assertGreaterEqual(step, 2)
        resumed = run(*self.flags("signal", f"--num_batches={step + 1}"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertTrue((self.root / "signal" / f"model.ckpt-{step + 1}").is_dir())

    def test_a_rate_that_is_too_high_ends_with_step_and_layer(self):
        flags = self.flags("nan", "--init_learning_rate=1e30", "--save_model_steps=1", "--print_training_accuracy=false",
                           "--summary_verbosity=0", "--save_summaries_steps=0")
        done = run(*flags, "--on_nan=stop")
        self.assertEqual(done.returncode, 1, done.stderr)
        step = int(re.search(r"global step (\d+)", done.stderr).group(1))
        self.assertIn(f"epoch 1, step {step}: ", done.stderr)
        self.assertRegex(done.stderr, r"(the loss is (NaN|inf)|the gradient of \S+ \S+ is not finite); it began with .* "
                                      r"layers? '[a-z0-9_.]+'")
        saved = [name for name in os.listdir(self.root / "nan") if name.startswith("model.ckpt-")]
        self.assertTrue(all(int(name.rsplit("-", 1)[1]) < step for name in saved), saved)
        for name in saved:
            for tensor, numbers in checkpoint_tensors(self.root / "nan" / name):
                self.assertTrue(numpy.isfinite(numbers).all(), (name, tensor))

        skipped = run(*self.flags("nan_skip", "--init_learning_rate=1e30", "--on_nan=skip", "--num_batches=300"))
        self.assertEqual(skipped.returncode, 1, skipped.stderr)
        self.assertIn("100 steps in a row were skipped", skipped.stderr)
        self.assertEqual(skipped.stderr.count("is skipped"), 1, skipped.stderr)

    def test_flags_alone_go_on_with_one_warning(self):
        done = run(*self.flags("nan_goes_on", "--init_learning_rate=1e30")[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("--on_nan=stop would end it"), 1, done.stderr)
        self.assertRegex(done.stderr, r"global step \d+: the (loss|gradient)")
        self.assertIn("total images/sec", done.stdout)

    def test_pictures_of_every_kind_are_predicted(self):
        self.assertEqual(run(*self.flags("predict")).returncode, 0)
        pixels = numpy.random.default_rng(1).integers(0, 255, (40, 56, 3), dtype=numpy.uint8)
        picture = Image.fromarray(pixels)
        files = {"rgb.jpg": picture, "gray.jpg": picture.convert("L"), "cmyk.jpg": picture.convert("CMYK"), "rgb.png": picture}
        for name, image in files.items():
            image.save(self.root / name)
        os.rename(self.root / "rgb.png", self.root / "png_named.JPEG")
        names = [str(self.root / name) for name in (*list(files)[:3], "png_named.JPEG")]
        done = run("predict", f"--train_dir={self.root / 'predict'}", "--json", *names)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["image"] for line in lines], names)
        for line in lines:
            self.assertEqual(len(line["top"]), 5)

    def test_a_model_runs_and_its_weights_open_elsewhere(self):
        self.assertEqual(run(*self.flags("export")).returncode, 0)
        model = f"--train_dir={self.root / 'export'}"
        images = numpy.random.default_rng(2).standard_normal((3, 3, 32, 32), dtype=numpy.float32)
        numpy.save(self.root / "images.npy", images)
        predicted = run("predict", model, f"--input={self.root / 'images.npy'}", f"--output={self.root / 'logits.npy'}")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        expected = numpy.load(self.root / "logits.npy")
        for form, file in (("onnx", "model.onnx"), ("hdf5", "model.h5"), ("keras", "whole.h5")):
            done = run("export", model, f"--format={form}", f"--output={self.root / file}")
            self.assertEqual(done.returncode, 0, done.stderr)

        onnx.checker.check_model(str(self.root / "model.onnx"), full_check=True)
        session = onnxruntime.InferenceSession(str(self.root / "model.onnx"), providers=["CPUExecutionProvider"])
        for batch in (1, 3):
            (logits,) = session.run(["logits"], {"input": images[:batch]})
            self.assertLess(numpy.abs(logits - expected[:batch]).max(), 1e-5 * numpy.abs(expected).max())

        whole = keras.models.load_model(self.root / "whole.h5", compile=False)
        logits = whole(images.transpose(0, 2, 3, 1))
        self.assertLess(numpy.abs(logits - expected).max(), 1e-5 * numpy.abs(expected).max())
        whole.load_weights(self.root / "whole.h5")

        # As Keras reads it: layers and their weights by the attributes that name them.
        with h5py.File(self.root / "model.h5") as file:
            layers = [name.decode() for name in file.attrs["layer_names"]]
            self.assertEqual((layers[0], layers[-1], file.attrs["backend"].decode()), ("conv1", "fc", "tensorflow"))
            weights = {name: file[layer][name][()] for layer in layers
                       for name in (text.decode() for text in file[layer].attrs["weight_names"])}
        initializers = {tensor.name: onnx.numpy_helper.to_array(tensor)
                        for tensor in onnx.load(self.root / "model.onnx").graph.initializer}
        numpy.testing.assert_array_equal(weights["conv1/kernel"], initializers["conv1.weight"].transpose(2, 3, 1, 0))
        numpy.testing.assert_array_equal(weights["bn1/moving_variance"], initializers["bn1.running_var"])
        numpy.testing.assert_array_equal(weights["fc/kernel"], initializers["fc.weight"].T)

    def test_graph_files_run_to_the_same_logits(self):
        """--graph_file holds the weights that a run begins with: those of the checkpoint that it goes on from."""
        self.assertEqual(run(*self.flags("graphs", "--num_batches=2")).returncode, 0)
        model = f"--train_dir={self.root / 'graphs'}"
        images = numpy.random.default_rng(2).standard_normal((2, 3, 32, 32), dtype=numpy.float32)
        numpy.save(self.root / "images.npy", images)
        predicted = run("predict", model, f"--input={self.root / 'images.npy'}", f"--output={self.root / 'graphs.npy'}")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        expected = numpy.load(self.root / "graphs.npy")
        resumed = run(*self.flags("graphs", "--num_batches=3", f"--graph_file={self.root / 'graph.onnx'}"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn(f"Writing GraphDef as binary to {self.root / 'graph.onnx'}\n", resumed.stdout)
        onnx.checker.check_model(str(self.root / "graph.onnx"), full_check=True)
        session = onnxruntime.InferenceSession(str(self.root / "graph.onnx"), providers=["CPUExecutionProvider"])
        (logits,) = session.run(["logits"], {"input": images})
        self.assertLess(numpy.abs(logits - expected).max(), 1e-5 * numpy.abs(expected).max())

    def test_images_of_another_size(self):
        """Trained, evaluated, predicted and exported at 24 x 40, which the checkpoint remembers; then at 40 x 16."""
        model = f"--train_dir={self.root / 'wide'}"
        trained = run(*self.flags("wide", "--image_size=24x40", "--num_batches=2"))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("images of 24x40, ", trained.stdout)
        resumed = run(*self.flags("wide", "--num_batches=3"))
        self.assertIn("images of 24x40, ", resumed.stdout, resumed.stderr)
        evaluated = run("eval", "--model=resnet20", f"--data_dir={self.data}", "--device=cpu", model)
        self.assertIn("images of 24x40, ", evaluated.stdout, evaluated.stderr)
        Image.new("RGB", (57, 31), (10, 200, 30)).save(self.root / "field.png")
        self.assertEqual(run("predict", model, str(self.root / "field.png")).returncode, 0)

        for more, height, width in (((), 24, 40), (("--image_size=40x16",), 40, 16)):
            images = numpy.random.default_rng(2).standard_normal((2, 3, height, width), dtype=numpy.float32)
            numpy.save(self.root / "wide.npy", images)
            predicted = run("predict", model, *more, f"--input={self.root / 'wide.npy'}",
                            f"--output={self.root / 'wide_logits.npy'}")
            self.assertEqual(predicted.returncode, 0, predicted.stderr)
            expected = numpy.load(self.root / "wide_logits.npy")
            done = run("export", model, *more, "--format=onnx", f"--output={self.root}/wide.onnx")
            self.assertEqual(done.returncode, 0, done.stderr)
            session = onnxruntime.InferenceSession(str(self.root / "wide.onnx"), providers=["CPUExecutionProvider"])
            self.assertEqual(session.get_inputs()[0].shape[1:], [3, height, width])
            (logits,) = session.run(["logits"], {"input": images})
            self.assertLess(numpy.abs(logits - expected).max(), 1e-5 * numpy.abs(expected).max())
            how = json.loads(session.get_modelmeta().custom_metadata_map["trainyard.input"])
            self.assertEqual((how["height"], how["width"]), (height, width))
        refused = run("predict", model, f"--input={self.root / 'wide.npy'}", f"--output={self.root / 'x.npy'}")
        self.assertIn("expected [N, 3, 24, 40]", refused.stderr)
        self.assertNotEqual(refused.returncode, 0)

    def test_exported_models_say_what_they_are(self):
        folder = self.root / "colours"
        colours = {"caf\u00e9": (120, 60, 20), "grass": (20, 200, 20), "line\nbreak": (200, 20, 200)}
        for subset in ("train", "val"):
            for name, colour in colours.items():
                (folder / subset / name).mkdir(parents=True)
                for i in range(4):
                    Image.new("RGB", (28, 28), colour).save(folder / subset / name / f"{i}.png")
        model = f"--train_dir={self.root / 'said'}"
        trained = run("train", "--model=lenet", "--data_name=imagenet", f"--data_dir={folder}", "--device=cpu",
                      "--batch_size=6", "--num_batches=40", "--num_warmup_batches=0", "--nodistortions",
                      "--init_learning_rate=0.01", "--optimizer=tf_nesterov", "--normalization=mean_std",
                      "--image_mean=100,110,120", "--image_std=50,60,70", "--eval_resize_size=32", model)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        for form in ("onnx", "safetensors"):
            done = run("export", model, f"--format={form}", f"--output={self.root}/said.{form}")
            self.assertEqual(done.returncode, 0, done.stderr)
        session = onnxruntime.InferenceSession(str(self.root / "said.onnx"), providers=["CPUExecutionProvider"])
        said = session.get_modelmeta().custom_metadata_map
        with safe_open(self.root / "said.safetensors", framework="np") as file:
            metadata = file.metadata()
        self.assertEqual(metadata.pop("format"), "pt")
        # An ONNX file is the graph.
        self.assertIn("nodes", json.loads(metadata.pop("trainyard.graph")))
        self.assertEqual(metadata, said)
        self.assertEqual((said["trainyard.model"], said["trainyard.num_classes"]), ("lenet", "3"))
        self.assertEqual(json.loads(said["trainyard.classes"]), {"first_output": 0, "names": sorted(colours)})
        how = json.loads(said["trainyard.input"])
        self.assertEqual((how["mean"], how["std"]), ([100, 110, 120], [50, 60, 70]))
        self.assertEqual((how["height"], how["width"], how["channel_order"]), (28, 28, "RGB"))

        # What the metadata say is enough for another program, and for ours.
        names = json.loads(said["trainyard.classes"])["names"]
        for name, colour in colours.items():
            pixels = numpy.broadcast_to(numpy.array(colour, numpy.float32), (28, 28, 3))
            image = ((pixels - how["mean"]) / how["std"]).transpose(2, 0, 1)[None].astype(numpy.float32)
            (logits,) = session.run(["logits"], {"input": image})
            self.assertEqual(names[int(logits.argmax())], name)
            predicted = run("predict", f"--weights={self.root}/said.safetensors", "--json",
                            str(folder / "val" / name / "0.png"))
            self.assertEqual(predicted.returncode, 0, predicted.stderr)
            top = json.loads(predicted.stdout)["top"]
            self.assertEqual(top[0]["name"], name)
            softmax = numpy.exp(logits[0] - logits.max()) / numpy.exp(logits[0] - logits.max()).sum()
            self.assertAlmostEqual(top[0]["probability"], float(softmax.max()), places=4)

    def test_a_class_that_val_lacks_shifts_no_label(self):
        folder = self.root / "folders"
        for subset, names in (("train", "abc"), ("val", "bc")):
            for name in names:
                (folder / subset / name).mkdir(parents=True)
                for i in range(4):
                    colour = [0, 0, 0]
                    colour["abc".index(name)] = 250
                    Image.new("RGB", (28, 28), tuple(colour)).save(folder / subset / name / f"{i}.png")
        flags = ["--model=lenet", "--data_name=imagenet", f"--data_dir={folder}", "--device=cpu", "--batch_size=6",
                 f"--train_dir={self.root / 'abc'}"]
        trained = run("train", *flags, "--num_batches=40", "--num_warmup_batches=0", "--nodistortions",
                      "--init_learning_rate=0.01", "--optimizer=tf_nesterov")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        evaluated = run("eval", *flags)
        self.assertIn("Accuracy @ 1 = 1.0000", evaluated.stdout, evaluated.stderr)
        self.assertIn("[8 examples]", evaluated.stdout)
        counts = json.loads((self.root / "abc" / "class_accuracy.json").read_text())["classes"]
        self.assertEqual([(c["name"], c["right"], c["total"]) for c in counts], [("a", 0, 0), ("b", 4, 4), ("c", 4, 4)])
        (folder / "train" / "b").rename(folder / "train" / "bee")
        resumed = run("train", *flags, "--num_batches=41", "--num_warmup_batches=0", "--eval_during_training_every_n_epochs=0")
        self.assertEqual(resumed.returncode, 2)
        self.assertIn("renamed: 'b' is now 'bee'", resumed.stderr)

    def test_a_broken_picture_is_one_line(self):
        self.assertEqual(run(*self.flags("broken")).returncode, 0)
        picture = self.root / "cut.jpg"
        Image.new("RGB", (64, 64), "red").save(picture)
        content = picture.read_bytes()
        wide = content.replace(b"\xff\xc0\x00\x11\x08\x00\x40\x00\x40", b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff")
        self.assertNotEqual(wide, content)
        for damaged in (b"", content[: len(content) // 2], wide):
            picture.write_bytes(damaged)
            done = run("predict", f"--train_dir={self.root / 'broken'}", str(picture))
            self.assertEqual(done.returncode, 1, done.stderr)
            errors = [line for line in done.stderr.splitlines() if " info " not in line]
            self.assertEqual(len(errors), 1, done.stderr)
            self.assertIn("cut.jpg", done.stderr)

    def test_images_of_every_format(self):
        photos = self.root / "photos"
        kinds = {"a.webp": {"lossless": True}, "b.gif": {}, "c.bmp": {}, "d.TIFF": {"compression": "tiff_lzw"}, "e.png": {}}
        for label in ("red", "blue"):
            for number, (name, options) in enumerate(kinds.items()):
                path = photos / label / name
                path.parent.mkdir(parents=True, exist_ok=True)
                # One colour, which a palette keeps.
                pixels = numpy.full((40, 40, 3), (250, 10 * number, 9) if label == "red" else (9, 10 * number, 250), numpy.uint8)
                Image.fromarray(pixels).save(path, path.suffix[1:].upper(), **options)
        verified = run("data", "verify", str(photos))
        self.assertEqual(verified.returncode, 0, verified.stderr)
        model = self.root / "of_photos"
        trained = run("train", "--model=trivial", "--data_name=cifar10", f"--data_dir={photos}", "--device=cpu", "--batch_size=4",
                      "--num_batches=2", "--num_warmup_batches=0", f"--train_dir={model}")
        self.assertEqual(trained.returncode, 0, trained.stderr)

        images = sorted(str(path) for path in photos.rglob("*") if path.is_file())
        whole = run("predict", f"--train_dir={model}", "--json", str(photos))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        lines = [json.loads(line) for line in whole.stdout.splitlines()]
        self.assertEqual(sorted(line["image"] for line in lines), images)
        # The same picture in another format is the same input.
        by_name = {line["image"]: line["top"] for line in lines}
        again = self.root / "again.png"
        for image in images:
            Image.open(image).convert("RGB").save(again)
            one = run("predict", f"--train_dir={model}", "--json", str(again))
            self.assertEqual(json.loads(one.stdout)["top"], by_name[image], image)

        broken = photos / "broken.webp"
        broken.write_bytes((photos / "red" / "a.webp").read_bytes()[:20])
        listed = run("predict", f"--train_dir={model}", "-", input="\n".join([images[0], str(broken), images[1]]) + "\n")
        self.assertEqual(listed.returncode, 1)
        self.assertEqual([line.rsplit(":", 1)[0] for line in listed.stdout.splitlines()], images[:2])
        self.assertEqual(listed.stderr.count("broken.webp"), 1, listed.stderr)

    def test_numbers_beyond_their_end_are_refused_at_once(self):
        for flag in ("num_intra_threads=100000", "num_gpus=1000", f"batch_size={2**62}", "batch_size=-1", "max_ckpts_to_keep=-1",
                     "autotune_threshold=-1", "datasets_num_private_threads=100000"):
            for command in (["train", "--synthetic", "--train_dir="], []):
                done = subprocess.run([program, *command, "--model=trivial", "--device=cpu", f"--{flag}"], capture_output=True,
                                      text=True, timeout=20)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("--" + flag.split("=")[0], done.stderr)
                self.assertNotIn("internal", done.stderr)


class TrainCtl(unittest.TestCase):
    """DALI's TensorFlow ResNet-N example: its files open in Keras and TensorBoard, and it ends as documented."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.data = cls.root / "records"
        for arguments in (("make-shapes", f"--output={cls.root / 'shapes'}", "--train_count=42", "--validation_count=16"),
                          ("convert", f"--from={cls.root / 'shapes'}", "--to=folder", f"--output={cls.root / 'images'}"),
                          ("convert", f"--from={cls.root / 'images'}", "--to=tfrecord", "--data_name=imagenet",
                           f"--output={cls.data}")):
            made = run("data", *arguments)
            assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def made(self, name):
        (self.root / name).mkdir()
        return self.root / name

    def flags(self, *more, model="trivial", image=32):
        return ["train-ctl", f"--model={model}", f"--image_width={image}", f"--image_height={image}", "-b", "4", "-u", "epoch",
                "--precision=fp32", f"--data_dir={self.data}", *more]

    def test_keras_opens_the_export(self):
        log, export = self.made("log"), self.made("export")
        done = run(*self.flags("-i1", f"--log_dir={log}", f"--export_dir={export}", model="resnet50", image=64))
        self.assertEqual(done.returncode, 0, done.stderr)
        images = numpy.random.default_rng(1).uniform(0, 255, (5, 3, 64, 64)).astype(numpy.float32)
        numpy.save(self.root / "images.npy", images)
        done = run("predict", f"--train_dir={log}", f"--input={self.root / 'images.npy'}", f"--output={self.root / 'logits.npy'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        logits = numpy.load(self.root / "logits.npy").astype(numpy.float64)
        expected = numpy.exp(logits - logits.max(1, keepdims=True))
        expected /= expected.sum(1, keepdims=True)
        self.assertGreater(expected.max() / expected.min(), 1.5)  # not all alike

        path = str(export / "saved_model_rn50.h5")
        model = keras.models.load_model(path)
        whole = model.predict(images.transpose(0, 2, 3, 1), verbose=0)
        numpy.testing.assert_allclose(whole, expected, atol=1e-4 * expected.max())
        again = keras.models.model_from_json(model.to_json())
        self.assertGreater(abs(again.predict(images.transpose(0, 2, 3, 1), verbose=0) - expected).max(), 1e-3 * expected.max())
        again.load_weights(path)
        numpy.testing.assert_allclose(again.predict(images.transpose(0, 2, 3, 1), verbose=0), expected,
                                      atol=1e-4 * expected.max())
        self.assertEqual([layer.name for layer in model.layers if layer.name.startswith("conv1")], ["conv1_pad", "conv1"])
        done = run("train-ctl", "--predict", "-b2", "--image_width=64", "--image_height=64", f"--export_dir={export}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("The loaded model predicts 6 images.\n"), done.stdout)

    def test_tensorboard_has_the_tags(self):
        board = self.made("board")
        done = run(*self.flags("-i2", f"--tensorboard_dir={board}"))
        self.assertEqual(done.returncode, 0, done.stderr)
        events = EventAccumulator(str(board))
        events.Reload()
        self.assertEqual(sorted(events.Tags()["scalars"]), sorted(
            ["train_loss", "train_top1", "train_top5", "val_loss", "val_top1", "val_top5", "learning_rate", "images_per_sec"]))
        lines = [line for line in done.stdout.splitlines() if line.startswith("loss: ")]
        losses = [float(re.search(r"val_loss: ([0-9.]+)", line)[1]) for line in lines]
        shown = events.Scalars("val_loss")
        self.assertEqual([scalar.step for scalar in shown], [10, 20])
        self.assertEqual(len(losses), len(shown), done.stdout)
        for scalar, loss in zip(shown, losses):
            self.assertAlmostEqual(scalar.value, loss, delta=1e-4)
        self.assertIn("traceEvents", json.loads((board / "train_step.trace.json").read_text()))

    def test_a_signal_saves_exports_and_the_same_command_goes_on(self):
        log, export = self.made("signal_log"), self.made("signal_export")
        flags = self.flags("-i", "100000", "--display_every=1", f"--log_dir={log}", f"--export_dir={export}")
        process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("global_step: 13 "):
                break
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, errors)
        self.assertRegex(out, r"Keyboard interrupt\nThe model is saved to .*saved_model_rn50.h5\n$")
        step = max(int(name.rsplit("-", 1)[1]) for name in os.listdir(log) if name.startswith("model.ckpt-"))
        self.assertGreaterEqual(step, 13)
        self.assertTrue((export / "saved_model_rn50.h5").exists())
        epochs = step // 10 + 2
        done = run(*self.flags("-i", str(epochs), f"--log_dir={log}"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Restored from {log}/model.ckpt-{step}\n", done.stdout)
        self.assertIn(f"Saved checkpoint for epoch {epochs}: {log}/model.ckpt-{10 * epochs}\n", done.stdout)

    def test_a_full_disk_is_one_line_and_loses_nothing(self):
        log, export = self.made("full_log"), self.made("full_export")
        good = self.flags(f"--log_dir={log}", f"--export_dir={export}", model="lenet")
        self.assertEqual(run(*good, "-i1").returncode, 0)
        saved = (export / "saved_model_rn50.h5").read_bytes()

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

        full = run(*good, "-i2", preexec_fn=limit)
        self.assertEqual(full.returncode, 1, full.stdout)
        errors = [line for line in full.stderr.splitlines() if " error " in line]
        self.assertEqual(len(errors), 1, full.stderr)
        self.assertIn(str(log), errors[0])
        self.assertEqual([name for name in os.listdir(log) if name.startswith("model.ckpt")], ["model.ckpt-10"])
        self.assertEqual((export / "saved_model_rn50.h5").read_bytes(), saved)
        done = run(*good, "-i2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"Restored from {log}/model.ckpt-10\n", done.stdout)

    def test_what_cannot_be_is_named(self):
        for flags, said in (
                (("--batchsize=3",), "Unknown flag 'batchsize'; did you mean --batch_size?"),
                (("--precision=fp64",), "fp32"),
                (("-b", "many"), "batch_size"),
                (("-b", "-1"), "the parameter batch_size cannot be used"),
                (("--log_dir=/nowhere",), "log_dir"),
                (("--model=resnet5", "--precision=fp32"), "resnet5")):
            done = run("train-ctl", *flags)
            self.assertEqual(done.returncode, 2, (flags, done.stderr))
            self.assertIn(said, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class Display(unittest.TestCase):
    """What a run draws on a real terminal."""

    FLAGS = ["--model=resnet20", "--data_name=shapes", "--synthetic", "--train_dir=", "--device=cpu", "--batch_size=16", "--display_every=20",
             "--init_learning_rate=0.05", "--num_intra_threads=1", "--num_batches=40"]

    def on_terminal(self, *arguments, columns=100, **environment):
        """(stdout, what stderr drew) with stderr on a pseudo-terminal."""
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=secondary, text=True,
                                   env={**clean, "TERM": "xterm", **environment})
        os.close(secondary)
        drawn = []

        def read():
            try:
                while chunk := os.read(primary, 65536):
                    drawn.append(chunk)
            except OSError:
                pass  # the other side is closed

        reader = threading.Thread(target=read)
        reader.start()
        out, _ = process.communicate(timeout=120)
        reader.join()
        os.close(primary)
        text = b"".join(drawn).decode()
        self.assertEqual(process.returncode, 0, text)
        return out, text

    def bars(self, text):
        """The lines that were drawn and erased."""
        return [part.split("\r")[0].split("\n")[0] for part in text.split("\r\x1b[K") if part.startswith("resnet20 ")]

    def test_the_bar_knows_epoch_percent_speed_loss_rate_and_time(self):
        out, text = self.on_terminal("train", *self.FLAGS)
        bars = self.bars(text)
        full = re.compile(r"resnet20 epoch 1/1 (\d+) % (\d+)/40 [\d.]+ images/s loss [\d.]+ rate 0\.05 left \d+:\d\d")
        shown = [full.fullmatch(bar) for bar in bars]
        self.assertTrue(any(shown), text)
        steps = [int(match.group(2)) for match in shown if match]
        self.assertEqual(steps, sorted(steps))
        self.assertTrue(all(int(match.group(1)) == 100 * int(match.group(2)) // 40 for match in shown if match))
        self.assertNotIn("\x1b", out)
        self.assertIn("images/sec", out)
        self.assertIn("\r\x1b[K", text[text.rfind(" left "):])  # the last one is erased

    def test_a_narrow_terminal_cuts_the_bar(self):
        _, text = self.on_terminal("train", *self.FLAGS, columns=30)
        # What matters less is left out first: rate, percentage, model and epoch.
        bars = [part.split("\r")[0].split("\n")[0] for part in text.split("\r\x1b[K") if re.match(r"\d+/40 ", part)]
        self.assertTrue(bars, text)
        self.assertEqual(max(len(bar) for bar in bars), 29, bars)

    def test_an_evaluation_says_so(self):
        _, text = self.on_terminal("train", *self.FLAGS, "--eval_during_training_every_n_steps=20", "--num_eval_batches=40")
        self.assertRegex(text, r"resnet20 epoch 1/1 50 % 20/40 evaluating \d+/40")

    def test_dumb_terminals_and_colours(self):
        _, text = self.on_terminal("train", *self.FLAGS, TERM="dumb")
        self.assertNotIn("\x1b", text)
        self.assertNotIn("resnet20 epoch", text)
        _, text = self.on_terminal("train", *self.FLAGS, "--progress=off")
        self.assertIn("\x1b[32m", text)  # the word info
        _, text = self.on_terminal("train", *self.FLAGS, "--progress=off", NO_COLOR="1")
        self.assertNotIn("\x1b", text)
        self.assertIn("info", text)

    def test_the_log_level_is_the_least_that_is_shown(self):
        for level, shown in (("info", True), ("error", False)):
            done = run(*self.FLAGS, "--num_batches=1", f"--log_level={level}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(" info " in done.stderr, shown, done.stderr)

    def test_nothing_is_drawn_where_there_is_no_terminal(self):
        done = run("train", *self.FLAGS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stderr + done.stdout)
        self.assertNotIn("resnet20 epoch", done.stderr)

    def test_flags_alone_print_the_same_to_a_script_and_a_person(self):
        alone, text = self.on_terminal(*self.FLAGS, "--num_warmup_batches=1")
        self.assertNotIn("\x1b", alone)
        self.assertEqual(alone.splitlines()[0], "TensorFlow:  2.13")
        self.assertEqual(len([line for line in alone.splitlines() if "images/sec" in line]), 4, alone)  # 1, 20, 40 and the total
        self.assertIn("resnet20 epoch", text)


class Version(unittest.TestCase):
    """One version: CMakeLists.txt says it, the program prints it, the library's name has it."""

    def test_is_the_projects(self):
        project = (pathlib.Path(__file__).parent.parent / "CMakeLists.txt").read_text()
        version = re.search(r"project\(trainyard VERSION (\S+)", project).group(1)
        done = run("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, rf"^trainyard {re.escape(version)} \(([0-9a-f]+\+?|unknown)\)\n$")
        needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
        soname = "libtrainyard.so." + version.rpartition(".")[0]
        self.assertIn(f"[{soname}]", needed)
        library = pathlib.Path(program).parent / soname
        self.assertEqual(library.resolve().name, "libtrainyard.so." + version)


class InstructionSets(unittest.TestCase):
    """The limit on what the processor is used for: TRAINYARD_MAX_CPU_ISA and --max_cpu_isa."""

    FLAGS = ["--model=trivial", "--data_name=shapes", "--synthetic", "--train_dir=", "--device=cpu", "--batch_size=8", "--num_batches=2",
             "--num_warmup_batches=0"]
    LIMITED = "AVX2, limited by TRAINYARD_MAX_CPU_ISA=avx2"

    def run_with(self, *arguments, **environment):
        clean = {name: value for name, value in os.environ.items() if name != "TRAINYARD_MAX_CPU_ISA"}
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, env={**clean, **environment})
        return done.returncode, done.stdout, done.stderr

    def test_the_variable_limits_each_command(self):
        code, out, _ = self.run_with("doctor", TRAINYARD_MAX_CPU_ISA="avx2")
        self.assertEqual(code, 0)
        self.assertRegex(out, rf"in use +{self.LIMITED}")
        self.assertRegex(out, r"kernels +AVX2\n")
        self.assertNotIn("limited by", self.run_with("doctor")[1])
        code, _, log = self.run_with(*self.FLAGS, TRAINYARD_MAX_CPU_ISA="avx2")
        self.assertEqual(code, 0, log)
        self.assertIn(f"instruction set: {self.LIMITED}", log)

    def test_the_flag_does_and_stands_over_the_variable(self):
        for environment in ({}, {"TRAINYARD_MAX_CPU_ISA": "avx512"}):
            code, _, log = self.run_with(*self.FLAGS, "--max_cpu_isa=avx2", **environment)
            self.assertEqual(code, 0, log)
            self.assertEqual(log.count(f"instruction set: {self.LIMITED}"), 1, log)

    def test_8_bits_without_their_instruction_are_said_to_be_slow(self):
        frozen = [*(flag for flag in self.FLAGS if flag != "--train_dir="), "--forward_only", "--freeze_when_forward_only"]
        said = "no instruction for products of 8-bit integers (VNNI)"
        code, _, log = self.run_with(*frozen, "--trt_mode=INT8", TRAINYARD_MAX_CPU_ISA="avx2")
        self.assertEqual(code, 0, log)
        self.assertEqual(log.count(said), 1, log)
        code, _, log = self.run_with(*frozen, TRAINYARD_MAX_CPU_ISA="avx2")
        self.assertEqual(code, 0, log)
        self.assertNotIn(said, log)

    def test_unknown_ones_are_usage_errors_that_list_what_is_known(self):
        for arguments, environment in ((["doctor"], {"TRAINYARD_MAX_CPU_ISA": "avx10"}), (self.FLAGS, {"TRAINYARD_MAX_CPU_ISA": "AVX2"}),
                                       ([*self.FLAGS, "--max_cpu_isa=sse4"], {})):
            code, _, log = self.run_with(*arguments, **environment)
            self.assertEqual(code, 2, log)
            self.assertRegex(log, "auto'?, '?avx2'?(,| or) '?avx512")


class Threads(unittest.TestCase):
    """What the kernel says of the threads of a run."""

    FLAGS = ["--model=trivial", "--data_name=shapes", "--train_dir=", "--device=cpu", "--batch_size=64", "--num_batches=100000000",
             "--num_warmup_batches=0", "--display_every=1"]

    def watch(self, *flags, **environment):
        """(CPUs of each thread as [(name, list)], environment, header, log) of a run that is ended after two steps"""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
        process = subprocess.Popen([program, *self.FLAGS, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**clean, **environment})
        header = ""
        for line in process.stdout:
            header += line
            if line.startswith("2\timages/sec"):
                break
        folder = pathlib.Path(f"/proc/{process.pid}")
        threads = []
        for status in folder.glob("task/*/status"):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            threads.append((fields["Name"], fields["Cpus_allowed_list"]))
        variables = dict(text.split("=", 1) for text in (folder / "environ").read_text().split("\0") if "=" in text)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, log)
        return threads, variables, header, log

    def setUp(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.first, self.last = str(cpus[0]), str(cpus[-1])
        fields = pathlib.Path("/proc/self/status").read_text().split("Cpus_allowed_list:\t", 1)
        self.all = fields[1].splitlines()[0]
        self.both = f"proclist=[{self.first},{self.last}],explicit"
        self.leader = self.first if self.first == self.last else (
            f"{self.first}-{self.last}" if int(self.last) == int(self.first) + 1 else f"{self.first},{self.last}")

    def test_nothing_is_placed_unless_asked_for(self):
        threads, variables, header, log = self.watch("--num_intra_threads=2")
        self.assertEqual({cpus for _, cpus in threads}, {self.all})
        self.assertEqual((variables["GOMP_SPINCOUNT"], variables["OMP_WAIT_POLICY"]), ("10000", "active"))
        self.assertIn("NUMA bind:   False\n", header)
        self.assertNotIn("threads: ", log)

    def test_only_the_replica_is_placed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("data", "make-shapes", f"--output={folder}", "--train_count=96").returncode, 0)
            threads, _, _, _ = self.watch(f"--data_dir={folder}", "--datasets_num_private_threads=2",
                                            "--num_intra_threads=1", f"--kmp_affinity={self.both}")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first], threads)
        others = [cpus for name, cpus in threads if name not in ("replica 0", "trainyard")]
        self.assertGreaterEqual(len(others), 3, threads)  # the input's, and the one that waits for signals
        self.assertEqual(set(others), {self.all}, threads)

    def test_each_member_of_a_team_is_on_its_place(self):
        threads, _, _, log = self.watch("--num_intra_threads=2", f"--kmp_affinity=verbose,{self.both}")
        team = sorted(cpus for name, cpus in threads if name == "replica 0")
        self.assertEqual(team, sorted([self.leader, self.last]))
        self.assertIn(f"threads: replica 0 CPUs {self.first} | {self.last}\n", log)

    def test_replicas_of_one_thread_have_a_cpu_each(self):
        threads, _, _, _ = self.watch("--num_gpus=2", "--num_intra_threads=2", f"--kmp_affinity={self.both}")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first])
        self.assertEqual([cpus for name, cpus in threads if name == "replica 1"], [self.last])

    def test_mkl_makes_the_defaults_count(self):
        threads, variables, _, log = self.watch("--mkl", "--num_intra_threads=1")
        self.assertEqual([cpus for name, cpus in threads if name == "replica 0"], [self.first])
        self.assertEqual(variables["GOMP_SPINCOUNT"], "0")
        self.assertIn("threads: GOMP_SPINCOUNT=0\n", log)
        self.assertNotIn("warning", log)

    def test_blocktime_is_the_spin_count_of_the_runtime(self):
        self.assertEqual(self.watch("--kmp_blocktime=5")[1]["GOMP_SPINCOUNT"], "500000")
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "run.yaml")
            config.write_text("kmp_blocktime: 3\n")
            self.assertEqual(self.watch(f"--config={config}")[1]["GOMP_SPINCOUNT"], "300000")

    def test_flags_stand_over_the_environment_and_that_over_our_default(self):
        self.assertEqual(self.watch(GOMP_SPINCOUNT="7")[1]["GOMP_SPINCOUNT"], "7")
        self.assertNotIn("GOMP_SPINCOUNT", self.watch(OMP_WAIT_POLICY="passive")[1])
        _, variables, _, log = self.watch("--kmp_blocktime=1", GOMP_SPINCOUNT="7")
        self.assertEqual(variables["GOMP_SPINCOUNT"], "100000")
        self.assertNotIn("warning", log)
        _, variables, _, log = self.watch("--mkl", GOMP_SPINCOUNT="7")
        self.assertEqual(variables["GOMP_SPINCOUNT"], "0")
        self.assertIn("mkl: the default of kmp_blocktime replaces GOMP_SPINCOUNT=7", log)

    def test_two_placements_are_an_error(self):
        done = run(*self.FLAGS, "--kmp_affinity=compact", env={**os.environ, "OMP_PROC_BIND": "true"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("OMP_PROC_BIND=true", done.stderr)

    def test_a_machine_of_one_node_says_so(self):
        threads, _, header, log = self.watch("--use_numa_affinity")
        self.assertIn("NUMA bind:   True\n", header)
        nodes = list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))
        if len(nodes) == 1:
            self.assertIn("use_numa_affinity: this machine has one NUMA node\n", log)
            self.assertEqual({cpus for _, cpus in threads}, {self.all})


if __name__ == "__main__":
    unittest.main()
