#!/usr/bin/env python3
"""TensorFlow's StepStats message, from TensorBoard's copy of it, parses the text that the library writes.

Usage: scripts/test_python tests/tensorboard_parses_step_stats.py TEST_PROGRAM (trainyard_formats_test).
"""
import os

from google.protobuf import text_format
from tensorboard.compat.proto.step_stats_pb2 import StepStats

from tensorboard_for_test import check, written_by


def main():
    with written_by("StepStats.WritesAFileForTensorBoard") as folder:
        with open(os.path.join(folder, "step_stats.txt"), encoding="ascii") as file:
            stats = text_format.Parse(file.read(), StepStats())
    check([device.device for device in stats.dev_stats],
          [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)], "devices")
    check([dict(device.thread_names) for device in stats.dev_stats], [{0: "trainer"}, {1: "replica 0"}], "threads")
    check(len(stats.dev_stats[0].node_stats), 0, "events of the first thread")
    inner, outer = stats.dev_stats[1].node_stats
    check((inner.node_name, outer.node_name), ('conv1 + "bn1"', "forward"), "names")
    check((inner.all_start_nanos, inner.all_end_rel_nanos), (1700000000000002200, 999), "nanoseconds")
    check((inner.all_start_micros, inner.op_end_rel_micros, inner.all_end_rel_micros), (1700000000000002, 1, 1),
          "microseconds")
    check(inner.thread_id, 1, "thread")
    check(inner.timeline_label, 'forward: conv1 + "bn1", kernel 3x3\n\u00e9, flops 1099511627776', "label")
    print("TensorFlow's StepStats parses a trace")


main()
