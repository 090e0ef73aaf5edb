#include "trainyard/formats/tensors/tensorflow_bundle.h"

#include <bit>
#include <utility>

#include <fmt/format.h>
#include <protozero/pbf_reader.hpp>

namespace trainyard::formats {
namespace {

using protozero::pbf_wire_type;
using protozero::tag_and_type;

// Field numbers of tensor_bundle.proto, tensor_shape.proto, tensor_slice.proto and versions.proto.
constexpr uint32_t kHeaderShards = 1, kHeaderEndianness = 2, kHeaderVersion = 3, kVersionMinConsumer = 2;
constexpr uint32_t kEntryType = 1, kEntryShape = 2, kEntryShard = 3, kEntryOffset = 4, kEntrySize = 5, kEntryCrc = 6,
                   kEntrySlices = 7;
constexpr uint32_t kShapeDimension = 2, kShapeUnknownRank = 3, kDimensionSize = 1;
constexpr uint32_t kSliceExtent = 1, kExtentStart = 1, kExtentLength = 2;

constexpr int64_t kVersion = 1;  // of the format, which TensorFlow 1.0 to 2.21 write

struct TypeName {
  std::string_view name;
  std::optional<TensorType> type{};
};

// By the numbers of types.proto.
constexpr TypeName kTypes[] = {
    {"invalid"},
    {"float", TensorType::kFloat32},
    {"double", TensorType::kFloat64},
    {"int32", TensorType::kInt32},
    {"uint8", TensorType::kUint8},
    {"int16", TensorType::kInt16},
    {"int8", TensorType::kInt8},
    {"string"},
    {"complex64"},
    {"int64", TensorType::kInt64},
    {"bool", TensorType::kBool},
    {"qint8"},
    {"quint8"},
    {"qint32"},
    {"bfloat16", TensorType::kBfloat16},
    {"qint16"},
    {"quint16"},
    {"uint16", TensorType::kUint16},
    {"complex128"},
    {"half", TensorType::kFloat16},
    {"resource"},
    {"variant"},
    {"uint32", TensorType::kUint32},
    {"uint64", TensorType::kUint64},
    {"float8_e5m2"},
    {"float8_e4m3fn"},
};

core::Error malformed(std::string problem, std::string actual) {
  return {core::ErrorCode::kCorruptData, {.problem = std::move(problem), .actual = std::move(actual)}};
}

// Returns nothing for a shape that is not fully known.
std::optional<std::vector<int64_t>> parse_shape(protozero::pbf_reader shape) {
  std::vector<int64_t> sizes;
  while (shape.next()) {
    switch (shape.tag_and_type()) {
      case tag_and_type(kShapeDimension, pbf_wire_type::length_delimited): {
        protozero::pbf_reader dimension = shape.get_message();
        int64_t size = 0;
        while (dimension.next()) {
          if (dimension.tag_and_type() == tag_and_type(kDimensionSize, pbf_wire_type::varint)) {
            size = dimension.get_int64();
          } else {
            dimension.skip();
          }
        }
        if (size < 0 || sizes.size() == kMaxDimensions) return std::nullopt;
        sizes.push_back(size);
        break;
      }
      case tag_and_type(kShapeUnknownRank, pbf_wire_type::varint):
        if (shape.get_bool()) return std::nullopt;
        break;
      default:
        shape.skip();
    }
  }
  return sizes;
}

BundleExtent parse_extent(protozero::pbf_reader message) {
  BundleExtent extent;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kExtentStart, pbf_wire_type::varint):
        extent.start = message.get_int64();
        break;
      case tag_and_type(kExtentLength, pbf_wire_type::varint):
        extent.length = message.get_int64();
        break;
      default:
        message.skip();
    }
  }
  return extent;
}

// Returns nothing for a slice of more than kMaxDimensions dimensions.
std::optional<BundleSlice> parse_slice(protozero::pbf_reader message) {
  BundleSlice slice;
  while (message.next()) {
    if (message.tag_and_type() == tag_and_type(kSliceExtent, pbf_wire_type::length_delimited)) {
      if (slice.size() == kMaxDimensions) return std::nullopt;
      slice.push_back(parse_extent(message.get_message()));
    } else {
      message.skip();
    }
  }
  return slice;
}

// TensorFlow's ordered code (core/lib/strings/ordered_code.cc), whose texts sort as the values do.
void append_number(std::string& key, uint64_t value) {
  std::string digits;
  for (; value > 0; value >>= 8) digits.insert(digits.begin(), static_cast<char>(value & 0xFF));
  key.push_back(static_cast<char>(digits.size()));
  key += digits;
}

void append_text(std::string& key, std::string_view text) {
  for (const char c : text) {
    key.push_back(c);
    if (c == '\0') key.push_back('\xff');
    if (c == '\xff') key.push_back('\0');
  }
  key += std::string_view("\0\1", 2);
}

// As many leading ones as there are bytes, then the number in two's complement; a negative one has all of that
// inverted.
void append_signed(std::string& key, int64_t value) {
  const auto magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  const auto length = static_cast<size_t>(std::bit_width(magnitude)) / 7 + 1;
  std::string bytes(10, value < 0 ? '\xff' : '\0');
  for (size_t i = 0; i < 8; ++i) bytes[9 - i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  bytes.erase(0, 10 - length);
  const auto ones = static_cast<uint16_t>(0xFFFFU << (16 - length));
  bytes[0] = static_cast<char>(bytes[0] ^ static_cast<char>(ones >> 8));
  if (length > 1) bytes[1] = static_cast<char>(bytes[1] ^ static_cast<char>(ones & 0xFFU));
  key += bytes;
}

}  // namespace

core::Result<BundleHeader> parse_bundle_header(std::string_view bytes) try {
  BundleHeader header;
  int64_t oldest_reader = 0;
  protozero::pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kHeaderShards, pbf_wire_type::varint):
        header.shards = message.get_int32();
        break;
      case tag_and_type(kHeaderEndianness, pbf_wire_type::varint): {
        const int32_t order = message.get_enum();
        if (order != 0 && order != 1) return malformed("the order of bytes is unknown", fmt::format("{}", order));
        header.big_endian = order == 1;
        break;
      }
      case tag_and_type(kHeaderVersion, pbf_wire_type::length_delimited): {
        protozero::pbf_reader version = message.get_message();
        while (version.next()) {
          if (version.tag_and_type() == tag_and_type(kVersionMinConsumer, pbf_wire_type::varint)) {
            oldest_reader = version.get_int32();
          } else {
            version.skip();
          }
        }
        break;
      }
      default:
        message.skip();
    }
  }
  if (oldest_reader > kVersion) {
    return malformed("the checkpoint is of a newer format", fmt::format("version {}", oldest_reader));
  }
  if (header.shards < 1) return malformed("the number of shards is impossible", fmt::format("{}", header.shards));
  return header;
} catch (const protozero::exception& error) {
  return malformed("the header is malformed", error.what());
}

core::Result<BundleEntry> parse_bundle_entry(std::string_view bytes) try {
  BundleEntry entry;
  protozero::pbf_reader message(bytes.data(), bytes.size());
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kEntryType, pbf_wire_type::varint):
        entry.type = message.get_enum();
        break;
      case tag_and_type(kEntryShape, pbf_wire_type::length_delimited): {
        auto shape = parse_shape(message.get_message());
        if (!shape) return malformed("the shape is unknown or impossible", "");
        entry.shape = *std::move(shape);
        break;
      }
      case tag_and_type(kEntryShard, pbf_wire_type::varint):
        entry.shard = message.get_int32();
        break;
      case tag_and_type(kEntryOffset, pbf_wire_type::varint):
        entry.offset = message.get_int64();
        break;
      case tag_and_type(kEntrySize, pbf_wire_type::varint):
        entry.size = message.get_int64();
        break;
      case tag_and_type(kEntryCrc, pbf_wire_type::fixed32):
        entry.checksum = message.get_fixed32();
        break;
      case tag_and_type(kEntrySlices, pbf_wire_type::length_delimited): {
        auto slice = parse_slice(message.get_message());
        if (!slice) return malformed("a part has impossibly many dimensions", "");
        entry.slices.push_back(*std::move(slice));
        break;
      }
      default:
        message.skip();
    }
  }
  return entry;
} catch (const protozero::exception& error) {
  return malformed("the entry is malformed", error.what());
}

std::string bundle_slice_key(std::string_view name, const BundleSlice& slice) {
  std::string key;
  append_number(key, 0);
  append_text(key, name);
  append_number(key, slice.size());
  for (const BundleExtent& extent : slice) {
    append_signed(key, extent.start);
    append_signed(key, extent.length);
  }
  return key;
}

std::optional<TensorType> tensor_type_of_tensorflow(int64_t type) {
  if (type < 0 || type >= static_cast<int64_t>(std::size(kTypes))) return std::nullopt;
  return kTypes[type].type;
}

std::string tensorflow_type_name(int64_t type) {
  if (type < 0 || type >= static_cast<int64_t>(std::size(kTypes))) return fmt::format("type {}", type);
  return std::string(kTypes[type].name);
}

}  // namespace trainyard::formats
