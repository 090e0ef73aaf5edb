#include "trainyard/formats/tensors/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace trainyard::formats {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxNumber = uint64_t{1} << 53;  // what every JSON reader agrees on
constexpr std::string_view kMetadataName = "__metadata__";

constexpr std::pair<std::string_view, TensorType> kTypeNames[] = {
    {"BOOL", TensorType::kBool},   {"U8", TensorType::kUint8},      {"I8", TensorType::kInt8},
    {"I16", TensorType::kInt16},   {"I32", TensorType::kInt32},     {"I64", TensorType::kInt64},
    {"F16", TensorType::kFloat16}, {"BF16", TensorType::kBfloat16}, {"F32", TensorType::kFloat32},
    {"F64", TensorType::kFloat64},
};

// Takes the parser's events: {"name": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}. Anything deeper is
// refused; other fields of an entry are passed over.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(const std::string& path, std::map<std::string, std::string>* metadata)
      : path_(path), metadata_(metadata) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  core::Error no_header() const { return error("file does not begin with a safetensors header", "an object in JSON"); }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return scalar(fmt::format("{}", value)); }
  bool number_unsigned(uint64_t value) override { return scalar(fmt::format("{}", value), value); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool string(std::string& text) override {
    if (place_ == Place::kEntry && field_ == Field::kType) return type(text);
    if (place_ == Place::kMetadata && metadata_ != nullptr) (*metadata_)[metadata_name_] = text;
    return scalar(fmt::format("\"{}\"", text.substr(0, 40)));
  }
  bool binary(Json::binary_t&) override { return true; }  // JSON has none

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTensors;
    } else if (place_ == Place::kTensors) {
      place_ = name_ == kMetadataName ? Place::kMetadata : Place::kEntry;
      entry_ = {};
      found_ = {};
    } else {
      throw nested();
    }
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::kTensors) {
      name_ = std::move(text);
    } else if (place_ == Place::kMetadata) {
      metadata_name_ = std::move(text);
    } else if (place_ == Place::kEntry) {
      field_ = text == "dtype"          ? Field::kType
               : text == "shape"        ? Field::kShape
               : text == "data_offsets" ? Field::kOffsets
                                        : Field::kOther;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry) finish_entry();
    place_ = place_ == Place::kTensors ? Place::kOutside : Place::kTensors;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kOutside) throw no_header();
    if (place_ == Place::kTensors || (place_ == Place::kEntry && field_ == Field::kType)) throw malformed();
    if (place_ != Place::kEntry) throw nested();
    place_ = Place::kList;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    if (field_ == Field::kShape) {
      found_.shape = true;
      entry_.tensor.shape.assign(numbers_.begin(), numbers_.end());
    }
    if (field_ == Field::kOffsets) {
      if (numbers_.size() != 2) throw malformed();
      found_.offsets = true;
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    return true;
  }

  // Said by parse_safetensors_header(), without the parser's excerpts of binary data.
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  enum class Place : uint8_t { kOutside, kTensors, kMetadata, kEntry, kList };
  enum class Field : uint8_t { kType, kShape, kOffsets, kOther };

  core::Error error(std::string problem, std::string expected = "", std::string actual = "") const {
    return safetensors_error(path_, name_, std::move(problem), std::move(expected), std::move(actual));
  }
  core::Error malformed() const { return error("safetensors header holds a malformed entry"); }
  core::Error nested() const { return error("safetensors header is nested too deeply"); }

  bool type(const std::string& text) {
    const auto known = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                    [&](const auto& each) { return each.first == text; });
    if (known == std::end(kTypeNames)) return scalar(fmt::format("\"{}\"", text.substr(0, 40)));
    entry_.tensor.type = known->second;
    found_.type = true;
    return true;
  }

  // A value that is no object, list or known type.
  bool scalar(const std::string& text, std::optional<uint64_t> whole = std::nullopt) {
    if (place_ == Place::kOutside) throw no_header();
    if (place_ == Place::kTensors) throw malformed();
    if (place_ == Place::kMetadata || field_ == Field::kOther) return true;
    if (field_ == Field::kType) {
      throw error("tensor of an unknown type", "BOOL, U8, I8 to I64, F16, BF16, F32 or F64", text);
    }
    if (place_ != Place::kList) throw malformed();
    if (!whole || *whole > kMaxNumber) {
      throw error("safetensors header holds an impossible number", "a whole number up to 2^53", text);
    }
    if (numbers_.size() == kMaxDimensions) {
      throw error("tensor has impossibly many dimensions", fmt::format("at most {}", kMaxDimensions));
    }
    numbers_.push_back(*whole);
    return true;
  }

  void finish_entry() {
    const char* const missing = !found_.type      ? "dtype"
                                : !found_.shape   ? "shape"
                                : !found_.offsets ? "data_offsets"
                                                  : nullptr;
    if (missing != nullptr) throw error(fmt::format("safetensors header has no '{}'", missing));
    entry_.tensor.name = name_;
    entry_.tensor.strides = contiguous_strides(entry_.tensor.shape);
    entries_.push_back(std::move(entry_));
  }

  struct Found {
    bool type = false, shape = false, offsets = false;
  };

  const std::string& path_;
  std::map<std::string, std::string>* const metadata_;
  std::string metadata_name_;
  Place place_ = Place::kOutside;
  Field field_ = Field::kOther;
  Found found_;
  std::string name_;
  SafetensorsEntry entry_;
  std::vector<uint64_t> numbers_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, const std::string& path,
                                                       std::map<std::string, std::string>* metadata) {
  HeaderReader reader(path, metadata);
  if (!Json::sax_parse(text, &reader)) throw reader.no_header();
  std::vector<SafetensorsEntry> entries = reader.take();
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw safetensors_error(path, *twice, "safetensors header names a tensor twice");
  }
  return entries;
}

std::string_view safetensors_type_name(TensorType type) {
  for (const auto& [name, known] : kTypeNames) {
    if (known == type) return name;
  }
  return "";
}

core::Error safetensors_error(const std::string& path, std::string_view tensor, std::string problem,
                              std::string expected, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = tensor_place(path, tensor),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "a weights file is safetensors or a state dict that torch.save wrote; get or write it again"}};
}

}  // namespace trainyard::formats
