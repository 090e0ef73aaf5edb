#!/usr/bin/env python3
"""Writes small checkpoints with TensorFlow and what it reads from them into trainyard/formats/testdata/tensorflow.

Made with TensorFlow 2.21. Two of them TensorFlow does not write any more, but reads: an index with compressed blocks, and
numbers in big-endian order. They are made here from the others, with blocks that TensorFlow's own Snappy compresses, and
TensorFlow reads the same values from them.
"""

import argparse
import os
import pathlib
import shutil
import struct

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import dataset_pb2, tensor_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

v1 = tf.compat.v1
MAGIC = 0xDB4775248B80FB57


def crc32c_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


TABLE = crc32c_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def take_varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def read_block(data, offset, size):
    """Returns the entries of an uncompressed block."""
    block, kind = data[offset : offset + size], data[offset + size]
    assert kind == 0
    end = size - 4 - 4 * struct.unpack_from("<I", block, size - 4)[0]
    at, key, entries = 0, b"", []
    while at < end:
        shared, at = take_varint(block, at)
        more, at = take_varint(block, at)
        length, at = take_varint(block, at)
        key = key[:shared] + block[at : at + more]
        entries.append((key, block[at + more : at + more + length]))
        at += more + length
    return entries


def read_table(data):
    at = len(data) - 48
    _, at = take_varint(data, at)
    _, at = take_varint(data, at)
    offset, at = take_varint(data, at)
    size, at = take_varint(data, at)
    entries = []
    for _, handle in read_block(data, offset, size):
        place, at = take_varint(handle, 0)
        length, _ = take_varint(handle, at)
        entries += read_block(data, place, length)
    return entries


def snappy(data):
    """Returns the bytes as TensorFlow's own Snappy compresses them, in the element of a data set."""
    element = tf.raw_ops.CompressElement(components=[tf.constant([data])])
    content = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(element).numpy()).tensor_content
    length, at = take_varint(content, 0)
    variant = tensor_pb2.VariantTensorDataProto.FromString(content[at : at + length])
    compressed = dataset_pb2.CompressedElement.FromString(variant.metadata).data
    length, _ = take_varint(compressed, 0)
    assert length == len(data), (length, len(data))
    return compressed


def make_block(entries, compress):
    """Returns a block and its trailer: one restart point every 16 entries, as LevelDB and TensorFlow have them."""
    out, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % 16 == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    out += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    block = (snappy(out) + b"\1") if compress else (out + b"\0")
    return block + struct.pack("<I", masked_crc32c(block))


def make_table(entries, compress, entries_a_block=8):
    out, index = b"", []
    for i in range(0, len(entries), entries_a_block):
        part = entries[i : i + entries_a_block]
        block = make_block(part, compress)
        index.append((part[-1][0], varint(len(out)) + varint(len(block) - 5)))
        out += block
    meta = make_block([], False)
    handles = varint(len(out)) + varint(len(meta) - 5)
    out += meta
    block = make_block(index, compress)
    handles += varint(len(out)) + varint(len(block) - 5)
    out += block
    return out + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def arrays():
    ramp = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 8 - 1
    found = {
        "float": ramp,
        "double": ramp.astype(np.float64) / 3,
        "half": ramp.astype(np.float16),
        "bfloat16": tf.cast(ramp, tf.bfloat16).numpy(),
        "scalar": np.float32(7.5),
        "empty": np.zeros((0, 3), np.float32),
        "bool": np.array([True, False, True]),
        "global_step": np.int64(12345678901),
        "complex64": np.array([1 + 2j], np.complex64),
        "string": np.array([b"one", b"", b"three"], object),
        "with/a/long/scope/of/names/kernel": ramp[:, :, 0],
        "with/a/long/scope/of/names/kernel/Momentum": ramp[:, :, 1],
    }
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        limits = np.iinfo(kind)
        found[kind] = np.array([limits.min, 1, limits.max], kind)
    return found


def save_all_types(prefix):
    """One shard, by the operation that tf.train.Saver uses."""
    values = arrays()
    names = sorted(values)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(values[name]) for name in names],
    )


def save_partitioned(prefix):
    """Variables in parts on two devices: two shards."""
    with tf.Graph().as_default():
        config = v1.ConfigProto(device_count={"CPU": 2})
        with v1.Session(config=config) as session:
            rows = np.arange(15, dtype=np.float32).reshape(5, 3)
            many = np.arange(200, dtype=np.int32).reshape(2, 100)
            init = lambda value: lambda shape, dtype, partition_info: value[
                tuple(slice(o, o + s) for o, s in zip(partition_info.var_offset, shape))
            ]
            with v1.variable_scope("p", partitioner=v1.fixed_size_partitioner(2)):
                with tf.device("/cpu:0"):
                    v1.get_variable("rows", shape=rows.shape, initializer=init(rows), use_resource=False)
            with v1.variable_scope("q", partitioner=v1.fixed_size_partitioner(3, axis=1)):
                with tf.device("/cpu:1"):
                    v1.get_variable("many", shape=many.shape, dtype=tf.int32, initializer=init(many), use_resource=False)
            with tf.device("/cpu:1"):
                v1.get_variable("whole", initializer=np.float32([1, 2, 3]), use_resource=False)
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver(sharded=True)
            saver.save(session, str(prefix), global_step=7, write_meta_graph=False)


def rewrite(source, target, compress=False, big_endian=False):
    """Copies a checkpoint of one shard with a compressed index, or with its numbers in the other order of bytes."""
    entries = read_table(pathlib.Path(f"{source}.index").read_bytes())
    data = bytearray(pathlib.Path(f"{source}.data-00000-of-00001").read_bytes())
    out = []
    for key, value in entries:
        if big_endian and key == b"":
            header = tensor_bundle_pb2.BundleHeaderProto.FromString(value)
            header.endianness = tensor_bundle_pb2.BundleHeaderProto.BIG
            value = header.SerializeToString()
        elif big_endian:
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
            kind = tf.dtypes.as_dtype(entry.dtype)
            if kind in (tf.string, tf.complex64):
                continue
            swapped = np.frombuffer(bytes(data[entry.offset : entry.offset + entry.size]), f"u{kind.size}").byteswap()
            data[entry.offset : entry.offset + entry.size] = swapped.tobytes()
            entry.crc32c = masked_crc32c(swapped.tobytes())
            value = entry.SerializeToString()
        out.append((key, value))
    pathlib.Path(f"{target}.index").write_bytes(make_table(out, compress))
    pathlib.Path(f"{target}.data-00000-of-00001").write_bytes(bytes(data))


def lines_of(prefix):
    """What tf.train.load_checkpoint reads: name, type, shape and the bytes of all elements, little-endian."""
    reader = tf.train.load_checkpoint(str(prefix))
    kinds = reader.get_variable_to_dtype_map()
    for name in sorted(kinds):
        shape = ",".join(map(str, reader.get_variable_to_shape_map()[name]))
        if kinds[name] in (tf.string, tf.complex64):
            yield f"{prefix.name} {name} unread:{kinds[name].name} [{shape}] -"
            continue
        value = np.asarray(reader.get_tensor(name))
        kind = {"half": "float16"}.get(kinds[name].name, kinds[name].name)
        yield f"{prefix.name} {name} {kind} [{shape}] {value.tobytes().hex() or '-'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output", type=pathlib.Path, default=root / "trainyard/formats/testdata/tensorflow")
    folder = parser.parse_args().output
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_partitioned(folder / "parts")
    save_all_types(folder / "types")
    rewrite(folder / "types", folder / "compressed", compress=True)
    rewrite(folder / "types", folder / "big_endian", big_endian=True)
    (folder / "checkpoint").unlink()  # it has the folder's full path
    names = ["parts-7", "types", "compressed", "big_endian"]
    lines = [line for name in names for line in lines_of(folder / name)]
    (folder / "values.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
