// Reads and writes tf.Example messages: named lists of bytes, floats or integers, the content of TensorFlow's TFRecords
// (docs/formats/tf_example.md).
//
//   core::Result<formats::ExampleView> example = formats::ExampleView::parse(record);
//   core::Result<std::string_view> jpeg = example.value().bytes(formats::kImageEncoded);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::formats {

// Feature names of the ImageNet schema of TensorFlow's data set scripts.
inline constexpr std::string_view kImageEncoded = "image/encoded";           // bytes: the JPEG
inline constexpr std::string_view kImageClassLabel = "image/class/label";    // int64
inline constexpr std::string_view kImageClassText = "image/class/text";      // bytes
inline constexpr std::string_view kImageClassSynset = "image/class/synset";  // bytes: ImageNet's "n01440764"
inline constexpr std::string_view kImageHeight = "image/height";             // int64, pixels
inline constexpr std::string_view kImageWidth = "image/width";               // int64, pixels
inline constexpr std::string_view kImageFilename = "image/filename";         // bytes
// Boxes: four floats lists of equal length, each a fraction of the height or width.
inline constexpr std::string_view kImageBoxXMin = "image/object/bbox/xmin";
inline constexpr std::string_view kImageBoxYMin = "image/object/bbox/ymin";
inline constexpr std::string_view kImageBoxXMax = "image/object/bbox/xmax";
inline constexpr std::string_view kImageBoxYMax = "image/object/bbox/ymax";

// The schema of TensorFlow's object detection: one value a box in each list.
inline constexpr std::string_view kImageSourceId = "image/source_id";              // bytes: the image's id, decimal
inline constexpr std::string_view kImageFormat = "image/format";                   // bytes: "jpeg"
inline constexpr std::string_view kObjectClassLabel = "image/object/class/label";  // int64: category ids
inline constexpr std::string_view kObjectClassText = "image/object/class/text";    // bytes: category names
inline constexpr std::string_view kObjectIsCrowd = "image/object/is_crowd";        // int64: 0 or 1
inline constexpr std::string_view kObjectArea = "image/object/area";               // floats: pixels of the mask

// The features of one message, without copies: all views point into the record, which must outlive them. Both packed
// and unpacked lists are read. The last one of several features with the same name is used, as in protocol buffers.
class ExampleView {
 public:
  // Parses a record. Returns kCorruptData when it is not a tf.Example.
  static core::Result<ExampleView> parse(std::string_view record);

  // Returns true when there is such a feature, of whatever kind and length.
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }

  // Each returns the one value of a feature, or kCorruptData when the feature is absent, of another kind, malformed, or
  // not of length 1.
  core::Result<std::string_view> bytes(std::string_view name) const;
  core::Result<int64_t> int64(std::string_view name) const;
  core::Result<float> float32(std::string_view name) const;

  // Each returns all values of a feature, or kCorruptData as above, whatever the length.
  core::Result<std::vector<std::string_view>> bytes_list(std::string_view name) const;
  core::Result<std::vector<int64_t>> int64_list(std::string_view name) const;
  core::Result<std::vector<float>> float_list(std::string_view name) const;

 private:
  enum class Kind : uint8_t { kNone, kBytes, kFloat, kInt64 };
  struct Feature {
    std::string_view name{};
    Kind kind = Kind::kNone;
    std::string_view list{};  // the encoded BytesList, FloatList or Int64List
  };

  const Feature* find(std::string_view name) const;
  core::Result<std::string_view> encoded_list(std::string_view name, Kind kind) const;
  static Feature parse_entry(std::string_view encoded);
  static std::string_view kind_name(Kind kind);

  std::vector<Feature> features_;
};

// Encodes a tf.Example. Features are written in the order in which they are added.
class ExampleBuilder {
 public:
  void add_bytes(std::string_view name, std::string_view value);
  void add_int64(std::string_view name, int64_t value);
  void add_floats(std::string_view name, std::span<const float> values);
  void add_bytes_list(std::string_view name, std::span<const std::string> values);
  void add_int64_list(std::string_view name, std::span<const int64_t> values);

  // Returns the encoded message.
  [[nodiscard]] std::string build() const;

 private:
  void add_feature(std::string_view name, uint32_t kind_field, std::string_view encoded_list);

  std::string features_;
};

}  // namespace trainyard::formats
