#!/usr/bin/env python3
"""TensorBoard's own reader finds scalars, histograms, images and texts that a trainer's monitors got.

Usage: scripts/test_python tests/tensorboard_reads_monitors.py TEST_PROGRAM (trainyard_train_test).
"""
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tensorboard_for_test import check, written_by


def main():
    with written_by("TensorBoardMonitor.WritesAllFourKindsForTensorBoard") as folder:
        events = EventAccumulator(folder)
        events.Reload()
        tags = events.Tags()
        check(sorted(tags["scalars"]), ["loss", "val/top_1_accuracy"], "names of the scalars")
        check([(scalar.step, scalar.value) for scalar in events.Scalars("loss")], [(7, 2.5)], "a scalar")
        check(tags["histograms"], ["weights"], "names of the histograms")
        check(events.Histograms("weights")[0].histogram_value.num, 3.0, "values of the histogram")
        check(sorted(tags["images"]), ["batch/image/0", "batch/image/1", "one"], "names of the images")
        (image,) = events.Images("one")
        check((image.step, image.width, image.height), (7, 2, 2), "size of the image")
        check(image.encoded_image_string[:8], b"\x89PNG\r\n\x1a\n", "form of the image")
        check(list(events.PluginTagToContent("text")), ["note"], "names of the texts, for the plugin that shows them")
        (text,) = events.Tensors("note")
        check((text.step, list(text.tensor_proto.string_val), len(text.tensor_proto.tensor_shape.dim)),
              (7, ["a **bold** word, für ∞".encode()], 0), "the text")
    print("TensorBoard reads scalars, a histogram, images and a text")


main()
