#!/usr/bin/env python3
"""Prints the bytes that tf_example_test.cpp and tfrecord_test.cpp compare with.

Needs: pip install protobuf. The messages are encoded by protobuf itself, from TensorFlow's example.proto and
feature.proto as declared here; the checksum of the TFRecord frame is computed bit by bit.
"""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tfrecord import frame, masked_crc32c


def declare(packed):
    """TensorFlow's Example, with packed lists (as proto3 writes them) or with one tag a value."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package=f"p{int(packed)}", syntax="proto3")
    field_type = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        declared = file.message_type.add(name=name)
        for number, field_name, kind, repeated in fields:
            field = declared.field.add(
                name=field_name, number=number,
                label=field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL)
            if isinstance(kind, str):
                field.type = field_type.TYPE_MESSAGE
                field.type_name = f".{file.package}.{kind}"
            else:
                field.type = kind
                if repeated and kind in (field_type.TYPE_FLOAT, field_type.TYPE_INT64):
                    field.options.packed = packed
        return declared

    message("BytesList", (1, "value", field_type.TYPE_BYTES, True))
    message("FloatList", (1, "value", field_type.TYPE_FLOAT, True))
    message("Int64List", (1, "value", field_type.TYPE_INT64, True))
    feature = message("Feature", (1, "bytes_list", "BytesList", False), (2, "float_list", "FloatList", False),
                      (3, "int64_list", "Int64List", False))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    # A map field is a repeated message with key and value on the wire.
    message("Entry", (1, "key", field_type.TYPE_STRING, False), (2, "value", "Feature", False))
    message("Features", (1, "feature", "Entry", True))
    message("Example", (1, "features", "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Example"))


def show(name, data):
    print(f"{name}:", "".join(f"\\x{byte:02x}" for byte in data))


for packed in (True, False):
    example = declare(packed)()
    entry = example.features.feature.add(key="a")
    entry.value.int64_list.value.extend([1, 300, -3])
    entry = example.features.feature.add(key="b")
    entry.value.float_list.value.extend([1.0, 2.0])
    entry = example.features.feature.add(key="c")
    entry.value.bytes_list.value.append(b"\x00\xff")
    show("packed" if packed else "unpacked", example.SerializeToString())
example = declare(True)()
example.features.feature.add(key="a").value.int64_list.value.append(-3)
example.features.feature.add(key="b").value.float_list.value.extend([1.0, 2.0])
example.features.feature.add(key="c").value.bytes_list.value.append(b"\x00\xff")
show("built", example.SerializeToString())
show("TFRecord of 'abc'", frame(b"abc"))
print(f"masked crc32c of '123456789': {masked_crc32c(b'123456789'):#010x}")
