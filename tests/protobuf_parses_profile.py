#!/usr/bin/env python3
"""Protobuf, with TensorFlow's description of ProfileProto, parses the profile that the library writes.

Usage: scripts/test_python tests/protobuf_parses_profile.py TEST_PROGRAM (trainyard_formats_test).
"""
import os
import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tensorboard_for_test import check, written_by

# By tools/golden/profile_description.py, from TensorFlow's package.
DESCRIPTION = pathlib.Path(__file__).parent.parent / "trainyard/formats/testdata/profile_proto.descriptor"


def profile_class():
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.tfprof.ProfileProto"))


def main():
    with written_by("TfProfile.WritesAFileForProtobuf") as folder:
        with open(os.path.join(folder, "profile.pb"), "rb") as file:
            profile = profile_class().FromString(file.read())
    check(profile.FindInitializationErrors(), [], "what is missing")
    check(list(profile.steps), [0, 7], "steps")
    check(sorted(profile.nodes), [0, 1], "nodes")
    conv = profile.nodes[1]
    cpu = "/job:localhost/replica:0/task:0/device:CPU:0"
    other = cpu[:-1] + "1"
    check((conv.name, conv.op, list(conv.op_types), conv.id), ("conv?", "convolution", ["convolution"], 1), "node")
    check((dict(conv.inputs), list(conv.shape), conv.float_ops), ({0: 0}, [2, 8, 4, 4], 6912), "inputs, shape, flops")
    check(conv.canonical_device, cpu, "device")
    first = conv.execs[0]
    check((first.run_count, first.all_start_micros, first.latest_end_micros, list(first.devices)),
          (3, 1700000000000000, 1700000000000050, [cpu, other]), "runs of the first step")
    check([list(time.int64_values) for time in first.cpu_execs[cpu].times],
          [[1700000000000000, 30], [1700000000000040, 5]], "times on the first device")
    check([list(time.int64_values) for time in first.cpu_execs[other].times], [[1700000000000010, 40]],
          "times on the second device")
    check(conv.execs[7].run_count, 1, "runs of another step")
    check(len(profile.nodes[0].execs), 0, "runs of the input")
    print("protobuf parses a ProfileProto")


main()
