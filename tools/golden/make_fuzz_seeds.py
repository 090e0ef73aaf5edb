#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, but for the images': make_fuzz_seeds.py trainyard/formats/testdata

Those of the other rooms are in the folders beside it. Standard library only. Small files that are whole, and ones that are broken
where a parser must look twice. What a fuzzer has found since, and scripts/fuzz --minimize has kept, is beside them.
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


def write(parser, room="formats", **seeds):
    for name, content in seeds.items():
        path = folder.parents[1] / room / "testdata" / "fuzz" / parser / name
        os.makedirs(path.parent, exist_ok=True)
        path.write_bytes(content)


def field(number, content):
    size = len(content)
    assert size < 1 << 14
    return bytes([number << 3 | 2] + ([size] if size < 128 else [size & 127 | 128, size >> 7])) + content


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

for name in ["float32_2x3", "int64_3", "float64_scalar", "fortran_2x3", "big_endian_2", "version_2_float32_2"]:
    write("npy", **{name: (folder / f"{name}.npy").read_bytes()})
huge = (folder / "float32_2x3.npy").read_bytes().replace(b"(2, 3), }      ", b"(2, 9223372036854775807)")
write("npy", huge=huge, cut=huge[:-1], empty=b"")


def value(tag, number):
    return field(1, field(1, tag) + b"\x15" + struct.pack("<f", number))


version = b"\x09" + struct.pack("<d", 1.7e9) + field(3, b"brain.Event:2")
scalars = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10\x64" + field(5, value(b"loss", 2.25) + value(b"", float("nan")))
histogram = b"".join(bytes([number << 3 | 1]) + struct.pack("<d", number) for number in range(1, 6))
histogram += field(6, struct.pack("<2d", 0.5, 1)) + field(7, struct.pack("<2d", 3, 4))
image = b"\x08\x02\x10\x03\x18\x03" + field(4, b"\x89PNG")
text = field(1, b"note") + field(9, field(1, field(1, b"text"))) + field(8, b"\x08\x07" + field(8, b"**bold**"))
others = b"\x10\x05" + field(5, field(1, field(1, b"h") + field(5, histogram)) + field(1, field(1, b"i") + field(4, image))
                                + field(1, text))
session = b"\x10\x07" + field(7, b"\x08\x01")
write("event_file", events=frame(version) + frame(scalars) + frame(session), others=frame(others), message=others,
      scalars=scalars, empty=b"", cut=frame(version)[:-3])

write("config_file", "core", whole=b"# a comment\nbatch_size: 16\neval: yes\nmomentum: 0.5\noptimizer: momentum\neval_steps: [1, 2]\n"
      b"data_dir: \"/data set\"\nnum_batches: null\n", alias=b"data_dir: &a x\nspec: *a\n", block=b"spec: |\n  a\n  b\n",
      folded=b"spec: >-\n  a\n  b\neval_steps:\n- 1\n- 'a,b'\n", empty_elements=b"eval_steps: ['', a, '']\n",
      nested=b"eval_steps: [a, [b]]\n", escapes=b'spec: "\\0\\x1b\\u263a\\n"\n', documents=b"---\neval: true\n---\n",
      deep=b"spec: " + b"[" * 200, tag=b"spec: !!str 12\nclip: .inf\n", empty=b"")
write("flag_value", "core", **{f"text{i}": text for i, text in enumerate(
    [b"true", b"0x1F", b"-9223372036854775808", b"1e308", b"a, b,,c", b"momentum", b"0-3,8", b"0-65535",
     b"granularity=fine,proclist=[0,1,{2,3}],explicit", b"compact,1,0", b"verbose,scatter,65535,65535", b""])})
write("sample_texts", "data", cls=b" 12\n", largest=b"9223372036854775807", too_large=b"9223372036854775808", name=b"tabby cat",
      json=b'{"label": 3, "class_name": "cat"}', words=b'{"class": "dog"}', both=b'{"label":" 7 ","classname":"\\u00e9"}',
      unsigned=b'{"label":18446744073709551615}', names=b"a\\nb\nc\\\\\n", deep=b"[" * 300, empty=b"")


def number(value):
    return struct.pack("<q", value)


def text_of(content):
    return number(len(content)) + content


write("group_message", "parallel", hello=b"\0" + text_of(b"token") + number(1) + number(2),
      texts=b"\1" + number(3) + text_of(b"seed") + number(1) + number(1) + text_of(b"a") + number(1) + text_of(b"") + number(0),
      activity=b"\2" + text_of(b"all-reduce") + b"".join(number(i) for i in (17, 4, 3, 0)),
      error=b"\3" + number(2) + b"".join(text_of(part) for part in (b"problem", b"where", b"", b"", b"")),
      bad_code=b"\3" + number(99) + text_of(b"") * 5, huge=b"\1" + number(3) + number(2**62), cut=b"\0" + number(5) + b"to")
write("hosts", "parallel", hosts=b"a:2,b:2", one=b"node-1.cluster", file=b"# machines\na slots=2\nb slots=4 # big\n\nc\n",
      spec=b"pscpu:32k:xring#2", long_spec=b"ring:1M:rechd#4:2G:shuffle", slots=b"a:4096,b:4097", empty=b"")


def manifest(tensors, values):
    identity = {"model": "lenet", "dataset": "shapes", "num_classes": 12}
    end = 16 + sum(tensor["bytes"] for tensor in tensors)
    return json.dumps({"format": "trainyard-checkpoint", "version": 1, "global_step": 5, "identity": identity,
                       "tensor_file_bytes": end, "tensors": tensors, "values": values})[:-1].encode() + b",\n"


weights = {"name": "weights", "dtype": "float32", "shape": [2, 3], "offset": 16, "bytes": 24, "crc32c": 7}
some = [{"name": "step", "integer": 5}, {"name": "rate", "real": "nan"}, {"name": "note", "text": "a"},
        {"name": "raw", "text_hex": "00ff"}]
write("checkpoint_manifest", "train", whole=manifest([weights], some), none=manifest([], []), twice=manifest([weights], some[:1] * 2),
      overlap=manifest([weights, {**weights, "name": "b"}], []), cut=manifest([weights], some)[:150], deep=b'{"a":' + b"[" * 40,
      large=manifest([{**weights, "shape": [2**62, 4], "bytes": 0}], []), empty=b"")

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
