#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets in trainyard/formats: make_fuzz_seeds.py trainyard/formats/testdata

Standard library only. Small files that are whole, and ones that are broken where a parser must look twice.
"""
import io
import os
import pathlib
import shutil
import struct
import sys
import tarfile

from tfrecord import frame

folder = pathlib.Path(sys.argv[1])


def write(parser, **seeds):
    for name, content in seeds.items():
        path = folder / "fuzz" / parser / name
        os.makedirs(path.parent, exist_ok=True)
        path.write_bytes(content)


def field(number, content):
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def feature(name, kind, encoded_list):
    return field(1, field(1, name.encode()) + field(2, field(kind, encoded_list)))


example = field(1, feature("image/encoded", 1, field(1, b"\xff\xd8\xff")) +
                feature("image/class/label", 3, field(1, b"\x83\x01")) +
                feature("image/object/bbox/xmin", 2, field(1, struct.pack("<2f", 0.25, 0.5))))
unpacked = field(1, feature("image/class/label", 3, b"\x08\x07\x08\x08") +
                 feature("image/object/bbox/xmin", 2, b"\x0d" + struct.pack("<f", 0.5)))
write("tf_example", whole=example, unpacked=unpacked, empty=b"", cut=example[:-3])
write("tfrecord", three=frame(b"first") + frame(b"") + frame(example), cut=frame(b"first")[:-2],
      huge_length=frame(b"1234", length=2 ** 60), damaged=frame(b"first").replace(b"first", b"fyrst"))

for name in ["cifar_python2_protocol2", "cifar_python3_protocol4", "cifar_python3_protocol5"]:
    os.makedirs(folder / "fuzz" / "cifar", exist_ok=True)
    shutil.copy(folder / f"{name}.pickle", folder / "fuzz" / "cifar" / name)
write("cifar", binary=(folder / "cifar_binary.bin").read_bytes(), runs_code=b"\x80\x02cos\nsystem\nU\x02ls\x85R.",
      circle=b"\x80\x02}q\x00U\x01ah\x00s.", marks=b"\x80\x02" + b"(" * 64 + b"t.")


def tar(format, members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue().rstrip(b"\0") + bytes(1024)  # without the padding to 10 KiB


members = [("a/0001.jpg", b"\xff\xd8"), ("a/0001.cls", b"3"), ("a/0002.png", b"\x89PNG"), ("a/0002.json", b'{"label": 4}')]
long_names = [("long/" * 30 + "name.jpg", b"\xff\xd8"), ("long/" * 30 + "name.cls", b"5")]
write("tar", ustar=tar(tarfile.USTAR_FORMAT, members), gnu_long=tar(tarfile.GNU_FORMAT, long_names),
      pax_long=tar(tarfile.PAX_FORMAT, long_names), cut=tar(tarfile.USTAR_FORMAT, members)[:700], empty=b"")
write("record_index", two=b"0 21\n21 316\n", no_line_break=b"0 21\n21 316", overflow=b"0 99999999999999999999\n",
      words=b"zero one\n", backwards=b"100 21\n0 21\n", empty=b"")
