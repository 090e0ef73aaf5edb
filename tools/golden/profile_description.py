#!/usr/bin/env python3
"""Writes TensorFlow's description of its ProfileProto, for tests/protobuf_parses_profile.py:
profile_description.py trainyard/formats/testdata/profile_proto.descriptor

Needs tensorflow (benchmarks/peers/requirements.txt). The file is a google.protobuf.FileDescriptorSet: tfprof_log.proto of
TensorFlow's package and what it imports.
"""
import sys

from google.protobuf import descriptor_pb2
from tensorflow.core.profiler import tfprof_log_pb2


def main():
    description = descriptor_pb2.FileDescriptorSet()
    seen = set()

    def add(file):
        if file.name in seen:
            return
        seen.add(file.name)
        for imported in file.dependencies:
            add(imported)
        file.CopyToProto(description.file.add())

    add(tfprof_log_pb2.DESCRIPTOR)
    with open(sys.argv[1], "wb") as out:
        out.write(description.SerializeToString(deterministic=True))


main()
