// Events as protocol buffer messages: tensorflow/core/util/event.proto, framework/summary.proto,
// framework/histogram.proto, framework/tensor.proto.
#include <optional>
#include <utility>

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "trainyard/formats/logs/event_file.h"

namespace trainyard::formats {
namespace {

enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
constexpr uint32_t kSummaryValue = 1;
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9 };
enum MetadataField : uint32_t { kPluginData = 1, kDataClass = 4 };
constexpr uint32_t kPluginName = 1;
constexpr int32_t kDataClassTensor = 2;
constexpr const char* kTextPlugin = "text";
enum TensorField : uint32_t { kDtype = 1, kShape = 2, kStringValue = 8 };
constexpr int32_t kDtypeString = 7;
enum ImageField : uint32_t { kHeight = 1, kWidth = 2, kColorspace = 3, kEncodedImage = 4 };
enum HistogramField : uint32_t { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimits = 6, kBuckets = 7 };
constexpr uint32_t kSessionStatus = 1;
constexpr int32_t kSessionStatusStart = 1;

using protozero::pbf_wire_type, protozero::tag_and_type;

constexpr auto kDelimited = pbf_wire_type::length_delimited;

void encode_histogram(const Histogram& histogram, protozero::pbf_writer& value) {
  protozero::pbf_writer message(value, kHistogram);
  message.add_double(kMin, histogram.min);
  message.add_double(kMax, histogram.max);
  message.add_double(kNum, histogram.count);
  message.add_double(kSum, histogram.sum);
  message.add_double(kSumSquares, histogram.sum_squares);
  message.add_packed_double(kLimits, histogram.bucket_limits.begin(), histogram.bucket_limits.end());
  message.add_packed_double(kBuckets, histogram.buckets.begin(), histogram.buckets.end());
}

void encode_image(const EncodedImage& image, protozero::pbf_writer& value) {
  protozero::pbf_writer message(value, kImage);
  message.add_int32(kHeight, image.height);
  message.add_int32(kWidth, image.width);
  message.add_int32(kColorspace, image.channels);
  message.add_bytes(kEncodedImage, image.data);
}

// As TensorFlow's tf.summary.text: a string in a tensor without dimensions, for the plugin "text".
void encode_text(const SummaryText& text, protozero::pbf_writer& value) {
  {
    protozero::pbf_writer tensor(value, kTensor);
    tensor.add_enum(kDtype, kDtypeString);
    tensor.add_message(kShape, std::string());
    tensor.add_bytes(kStringValue, text.markdown);
  }
  protozero::pbf_writer metadata(value, kMetadata);
  {
    protozero::pbf_writer plugin(metadata, kPluginData);
    plugin.add_string(kPluginName, kTextPlugin);
  }
  metadata.add_enum(kDataClass, kDataClassTensor);
}

// Doubles of a packed or a single unpacked field.
void decode_doubles(protozero::pbf_reader& message, std::vector<double>& values) {
  if (message.wire_type() == kDelimited) {
    for (const double value : message.get_packed_double()) values.push_back(value);
  } else {
    values.push_back(message.get_double());
  }
}

Histogram decode_histogram(protozero::pbf_reader message) {
  Histogram histogram;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kMin, pbf_wire_type::fixed64):
        histogram.min = message.get_double();
        break;
      case tag_and_type(kMax, pbf_wire_type::fixed64):
        histogram.max = message.get_double();
        break;
      case tag_and_type(kNum, pbf_wire_type::fixed64):
        histogram.count = message.get_double();
        break;
      case tag_and_type(kSum, pbf_wire_type::fixed64):
        histogram.sum = message.get_double();
        break;
      case tag_and_type(kSumSquares, pbf_wire_type::fixed64):
        histogram.sum_squares = message.get_double();
        break;
      case tag_and_type(kLimits, kDelimited):
      case tag_and_type(kLimits, pbf_wire_type::fixed64):
        decode_doubles(message, histogram.bucket_limits);
        break;
      case tag_and_type(kBuckets, kDelimited):
      case tag_and_type(kBuckets, pbf_wire_type::fixed64):
        decode_doubles(message, histogram.buckets);
        break;
      default:
        message.skip();
    }
  }
  return histogram;
}

EncodedImage decode_image(protozero::pbf_reader message) {
  EncodedImage image;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kHeight, pbf_wire_type::varint):
        image.height = message.get_int32();
        break;
      case tag_and_type(kWidth, pbf_wire_type::varint):
        image.width = message.get_int32();
        break;
      case tag_and_type(kColorspace, pbf_wire_type::varint):
        image.channels = message.get_int32();
        break;
      case tag_and_type(kEncodedImage, kDelimited):
        image.data = message.get_bytes();
        break;
      default:
        message.skip();
    }
  }
  return image;
}

// Returns the first of a field's strings in a message, and nothing where there is none.
std::optional<std::string> first_string(protozero::pbf_reader message, uint32_t field) {
  std::optional<std::string> found;
  while (message.next()) {
    if (!found && message.tag_and_type() == tag_and_type(field, kDelimited)) {
      found = message.get_string();
    } else {
      message.skip();
    }
  }
  return found;
}

SummaryValue decode_value(protozero::pbf_reader message) {
  SummaryValue value;
  std::optional<std::string> text, plugin_data;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case tag_and_type(kTag, kDelimited):
        value.tag = message.get_string();
        break;
      case tag_and_type(kSimpleValue, pbf_wire_type::fixed32):
        value.value = message.get_float();
        break;
      case tag_and_type(kImage, kDelimited):
        value.value = decode_image(message.get_message());
        break;
      case tag_and_type(kHistogram, kDelimited):
        value.value = decode_histogram(message.get_message());
        break;
      case tag_and_type(kTensor, kDelimited):
        text = first_string(message.get_message(), kStringValue);
        break;
      case tag_and_type(kMetadata, kDelimited):
        plugin_data = first_string(message.get_message(), kPluginData);
        break;
      default:
        message.skip();
    }
  }
  if (text && plugin_data && first_string(protozero::pbf_reader(*plugin_data), kPluginName) == kTextPlugin) {
    value.value = SummaryText{*text};
  }
  return value;
}

bool decode_session_start(protozero::pbf_reader message) {
  bool start = false;
  while (message.next()) {
    if (message.tag_and_type() == tag_and_type(kSessionStatus, pbf_wire_type::varint)) {
      start = message.get_enum() == kSessionStatusStart;
    } else {
      message.skip();
    }
  }
  return start;
}

}  // namespace

std::string encode_event(const Event& event) {
  std::string encoded;
  protozero::pbf_writer message(encoded);
  message.add_double(kWallTime, event.wall_time);
  if (event.step != 0) message.add_int64(kStep, event.step);
  if (!event.file_version.empty()) message.add_string(kFileVersion, event.file_version);
  if (event.session_start) {
    protozero::pbf_writer log(message, kSessionLog);
    log.add_enum(kSessionStatus, kSessionStatusStart);
  }
  if (event.values.empty()) return encoded;
  protozero::pbf_writer summary(message, kSummary);
  for (const SummaryValue& item : event.values) {
    protozero::pbf_writer value(summary, kSummaryValue);
    value.add_string(kTag, item.tag);
    if (const auto* scalar = std::get_if<float>(&item.value)) value.add_float(kSimpleValue, *scalar);
    if (const auto* histogram = std::get_if<Histogram>(&item.value)) encode_histogram(*histogram, value);
    if (const auto* image = std::get_if<EncodedImage>(&item.value)) encode_image(*image, value);
    if (const auto* text = std::get_if<SummaryText>(&item.value)) encode_text(*text, value);
  }
  summary.commit();
  return encoded;
}

core::Result<Event> decode_event(std::string_view encoded) {
  Event event;
  try {
    protozero::pbf_reader message(encoded.data(), encoded.size());
    while (message.next()) {
      switch (message.tag_and_type()) {
        case tag_and_type(kWallTime, pbf_wire_type::fixed64):
          event.wall_time = message.get_double();
          break;
        case tag_and_type(kStep, pbf_wire_type::varint):
          event.step = message.get_int64();
          break;
        case tag_and_type(kFileVersion, kDelimited):
          event.file_version = message.get_string();
          break;
        case tag_and_type(kSessionLog, kDelimited):
          event.session_start = decode_session_start(message.get_message());
          break;
        case tag_and_type(kSummary, kDelimited): {
          protozero::pbf_reader summary = message.get_message();
          while (summary.next()) {
            if (summary.tag_and_type() == tag_and_type(kSummaryValue, kDelimited)) {
              event.values.push_back(decode_value(summary.get_message()));
            } else {
              summary.skip();
            }
          }
          break;
        }
        default:
          message.skip();
      }
    }
  } catch (const protozero::exception& error) {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = "event is malformed",
                                                       .actual = error.what(),
                                                       .remedy = "check that it is a TensorBoard event file"});
  }
  return event;
}

}  // namespace trainyard::formats
