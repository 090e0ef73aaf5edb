#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets in trainyard/formats: make_fuzz_seeds.py trainyard/formats/testdata

Standard library only. Small files that are whole, and ones that are broken where a parser must look twice.
"""
import io
import json
import os
import pathlib
import shutil
import struct
import sys
import tarfile
import zipfile

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


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def u8(size, begin, end):
    return {"dtype": "U8", "shape": [size], "data_offsets": [begin, end]}


write("safetensors", whole=(folder / "tensors.safetensors").read_bytes(), none=safetensors({}), empty=b"",
      metadata=safetensors({"__metadata__": {"format": "pt"}, "a": u8(2, 0, 2)}, b"12"),
      huge_length=safetensors({}, length=2**62), overlap=safetensors({"a": u8(2, 0, 2), "b": u8(2, 1, 3)}, b"123"),
      gap=safetensors({"a": u8(1, 1, 2)}, b"12"), behind=safetensors({"a": u8(9, 0, 9)}, b"12"),
      huge_shape=safetensors({"a": {"dtype": "F64", "shape": [2**53, 2**53, 0], "data_offsets": [0, 0]}}),
      nested=safetensors(b'{"a":' + b"[" * 300), twice=safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(u8(0, 0, 0)).encode(),) * 2)))


def zip_archive(members, method=zipfile.ZIP_STORED, comment=b""):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def with_zip64_end(content):
    """The same archive with a Zip64 directory's end, as in files of more than 4 GiB."""
    end = content[-22:]
    entries, size, offset = struct.unpack("<HII", end[10:20])
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, entries, entries, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(content) - 22, 1)
    return content[:-22] + end64 + locator + end[:10] + b"\xff\xff" + b"\xff" * 8 + end[20:]


plain = zip_archive([("a/data.pkl", b"\x80\x02}."), ("a/data/0", b"1234")])
write("zip", plain=plain, comment=zip_archive([("a", b"1")], comment=b"PK\x05\x06" * 6), cut=plain[:-9], empty=b"",
      deflated=zip_archive([("a", b"1" * 50)], zipfile.ZIP_DEFLATED), zip64=with_zip64_end(plain), none=zip_archive([]))

state_dict = folder / "tensors.pth"
with zipfile.ZipFile(state_dict) as archive:
    described = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
with zipfile.ZipFile(folder / "module.pth") as archive:
    module = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
write("torch_state_dict", file=state_dict.read_bytes(), checkpoint=(folder / "checkpoint.pth").read_bytes(),
      pickle=described, calls_code=b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", module=module,
      circle=b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.", deep=b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".",
      legacy=(folder / "legacy.pth").read_bytes())

# tools/golden/tensorflow_checkpoints.py has written these, and reads their blocks.
tables = {name: (folder / f"tensorflow/{name}.index").read_bytes() for name in ("types", "compressed", "parts-7")}


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def handle(data, at):
    """The place of a block: offset and size."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return data[offset:offset + size], at


def index_block(table):
    _, at = handle(table, len(table) - 48)
    return handle(table, at)[0]


first = index_block(tables["types"])
key_bytes = varint(first, 1)[0]
offset, at = varint(first[3 + key_bytes:], 0)
size, _ = varint(first[3 + key_bytes:], at)
write("tensorflow_checkpoint", **{f"index_{name}": table for name, table in tables.items()},
      block=tables["types"][offset:offset + size], snappy=index_block(tables["compressed"]),
      # A float of [5, 3] in two parts.
      entry=bytes.fromhex("080112081202080512020803" "3a080a04080010030a00" "3a080a04080310020a00"))
