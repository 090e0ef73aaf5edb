#!/usr/bin/env python3
"""TensorBoard's own reader opens the event files that the library writes.

Usage: scripts/test_python tests/tensorboard_reads_events.py TEST_PROGRAM (trainyard_formats_test).
"""
import os

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tensorboard_for_test import check, written_by


def main():
    with written_by("EventFileWriter.WritesFilesForTensorBoard") as folder:
        check(sorted(os.listdir(folder)),
              ["events.out.tfevents.1700000000.test", "events.out.tfevents.1700000100.test"], "files")
        events = EventAccumulator(folder)
        events.Reload()

        check(events.file_version, 2.0, "file version")
        scalars = [(scalar.step, round(scalar.value, 6)) for scalar in events.Scalars("loss")]
        check(scalars, [(step, round(1 / (step + 1), 6)) for step in range(8)] + [(step, -1.0) for step in range(8, 12)],
              "scalars, with steps 8 and 9 of the first file dropped by the restart")

        (histogram,) = events.Histograms("weights")
        value = histogram.histogram_value
        check(histogram.step, 12, "step of the histogram")
        check((round(value.min, 6), round(value.max, 6), value.num), (-0.5, 1.5, 201.0), "range of the histogram")
        check(round(value.sum, 3), 100.5, "sum of the histogram")
        check(sum(value.bucket), 201.0, "values in the buckets")
        below_zero = sum(count for limit, count in zip(value.bucket_limit, value.bucket) if limit <= 0)
        check(below_zero, 50.0, "values below zero")

        (image,) = events.Images("input")
        check((image.width, image.height), (1, 1), "size of the image")
        check(image.encoded_image_string[:8], b"\x89PNG\r\n\x1a\n", "image")
    print("TensorBoard reads scalars, a restart, a histogram and an image")


main()
