#include "trainyard/formats/records/tf_example.h"

#include <exception>
#include <utility>

#include <fmt/format.h>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "trainyard/core/base/enum_name.h"

namespace trainyard::formats {
namespace {

// Field numbers of tensorflow/core/example/{example,feature}.proto.
constexpr uint32_t kExampleFeatures = 1;
constexpr uint32_t kFeaturesEntry = 1;
constexpr uint32_t kEntryName = 1;
constexpr uint32_t kEntryFeature = 2;
constexpr uint32_t kFeatureBytesList = 1;
constexpr uint32_t kFeatureFloatList = 2;
constexpr uint32_t kFeatureInt64List = 3;
constexpr uint32_t kListValue = 1;

using protozero::pbf_wire_type;
using protozero::tag_and_type;

std::string_view to_string_view(protozero::data_view view) {
  return {view.data(), view.size()};
}

core::Error malformed(std::string where, std::string_view detail) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "tf.Example is malformed",
           .where = std::move(where),
           .actual = std::string(detail),
           .remedy = "check that the records hold tf.Example messages"}};
}

core::Error wrong_feature(std::string_view name, std::string expected, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "tf.Example does not follow its schema",
           .where = fmt::format("feature {}", name),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "check that the data set is the one that was meant"}};
}

// The numbers of a list: packed, or one field each of the wire type `single`; a message may contain both.
template <typename T, typename PackedRange>
core::Result<std::vector<T>> number_list(std::string_view name, core::Result<std::string_view> list,
                                         pbf_wire_type single, PackedRange (protozero::pbf_reader::*get_packed)(),
                                         T (protozero::pbf_reader::*get_single)()) {
  if (!list.ok()) return list.error();
  std::vector<T> values;
  try {
    protozero::pbf_reader reader(list.value().data(), list.value().size());
    while (reader.next(kListValue)) {
      if (reader.wire_type() == pbf_wire_type::length_delimited) {
        for (const T value : (reader.*get_packed)()) values.push_back(value);
      } else if (reader.wire_type() == single) {
        values.push_back((reader.*get_single)());
      } else {
        reader.skip();
      }
    }
  } catch (const protozero::exception& error) {
    return malformed(fmt::format("feature {}", name), error.what());
  }
  return values;
}

template <typename T>
core::Result<T> single(std::string_view name, core::Result<std::vector<T>> values) {
  if (!values.ok()) return values.error();
  if (values.value().size() != 1) {
    return wrong_feature(name, "one value", fmt::format("{}", values.value().size()));
  }
  return values.value().front();
}

}  // namespace

std::string_view ExampleView::kind_name(Kind kind) {
  return core::enum_name<Kind::kInt64>(kind,
                                       {"an empty feature", "a list of bytes", "a list of floats", "a list of int64"});
}

ExampleView::Feature ExampleView::parse_entry(std::string_view encoded) {
  Feature feature;
  protozero::pbf_reader entry(encoded.data(), encoded.size());
  while (entry.next()) {
    switch (entry.tag_and_type()) {
      case tag_and_type(kEntryName, pbf_wire_type::length_delimited):
        feature.name = to_string_view(entry.get_view());
        break;
      case tag_and_type(kEntryFeature, pbf_wire_type::length_delimited): {
        protozero::pbf_reader value = entry.get_message();
        while (value.next()) {
          switch (value.tag_and_type()) {
            case tag_and_type(kFeatureBytesList, pbf_wire_type::length_delimited):
              feature.kind = Kind::kBytes;
              feature.list = to_string_view(value.get_view());
              break;
            case tag_and_type(kFeatureFloatList, pbf_wire_type::length_delimited):
              feature.kind = Kind::kFloat;
              feature.list = to_string_view(value.get_view());
              break;
            case tag_and_type(kFeatureInt64List, pbf_wire_type::length_delimited):
              feature.kind = Kind::kInt64;
              feature.list = to_string_view(value.get_view());
              break;
            default:
              value.skip();
          }
        }
        break;
      }
      default:
        entry.skip();
    }
  }
  return feature;
}

core::Result<ExampleView> ExampleView::parse(std::string_view record) {
  ExampleView example;
  try {
    protozero::pbf_reader message(record.data(), record.size());
    while (message.next()) {
      if (message.tag_and_type() != tag_and_type(kExampleFeatures, pbf_wire_type::length_delimited)) {
        message.skip();
        continue;
      }
      protozero::pbf_reader features = message.get_message();
      while (features.next()) {
        if (features.tag_and_type() == tag_and_type(kFeaturesEntry, pbf_wire_type::length_delimited)) {
          example.features_.push_back(parse_entry(to_string_view(features.get_view())));
        } else {
          features.skip();
        }
      }
    }
  } catch (const protozero::exception& error) {
    return malformed("", error.what());
  }
  return example;
}

const ExampleView::Feature* ExampleView::find(std::string_view name) const {
  // A dozen features: a search is quicker than a map is made.
  for (auto feature = features_.rbegin(); feature != features_.rend(); ++feature) {
    if (feature->name == name) return &*feature;
  }
  return nullptr;
}

core::Result<std::string_view> ExampleView::encoded_list(std::string_view name, Kind kind) const {
  const Feature* feature = find(name);
  if (feature == nullptr) return wrong_feature(name, std::string(kind_name(kind)), "no such feature");
  if (feature->kind != kind) {
    return wrong_feature(name, std::string(kind_name(kind)), std::string(kind_name(feature->kind)));
  }
  return feature->list;
}

core::Result<std::vector<std::string_view>> ExampleView::bytes_list(std::string_view name) const {
  core::Result<std::string_view> list = encoded_list(name, Kind::kBytes);
  if (!list.ok()) return list.error();
  std::vector<std::string_view> values;
  try {
    protozero::pbf_reader reader(list.value().data(), list.value().size());
    while (reader.next()) {
      if (reader.tag_and_type() == tag_and_type(kListValue, pbf_wire_type::length_delimited)) {
        values.push_back(to_string_view(reader.get_view()));
      } else {
        reader.skip();
      }
    }
  } catch (const protozero::exception& error) {
    return malformed(fmt::format("feature {}", name), error.what());
  }
  return values;
}

core::Result<std::vector<int64_t>> ExampleView::int64_list(std::string_view name) const {
  return number_list<int64_t>(name, encoded_list(name, Kind::kInt64), pbf_wire_type::varint,
                              &protozero::pbf_reader::get_packed_int64, &protozero::pbf_reader::get_int64);
}

core::Result<std::vector<float>> ExampleView::float_list(std::string_view name) const {
  return number_list<float>(name, encoded_list(name, Kind::kFloat), pbf_wire_type::fixed32,
                            &protozero::pbf_reader::get_packed_float, &protozero::pbf_reader::get_float);
}

core::Result<std::string_view> ExampleView::bytes(std::string_view name) const {
  return single(name, bytes_list(name));
}

core::Result<int64_t> ExampleView::int64(std::string_view name) const {
  return single(name, int64_list(name));
}

core::Result<float> ExampleView::float32(std::string_view name) const {
  return single(name, float_list(name));
}

void ExampleBuilder::add_feature(std::string_view name, uint32_t kind_field, std::string_view encoded_list) {
  protozero::pbf_writer features(features_);
  protozero::pbf_writer entry(features, kFeaturesEntry);
  entry.add_string(kEntryName, name.data(), name.size());
  protozero::pbf_writer feature(entry, kEntryFeature);
  feature.add_message(kind_field, encoded_list.data(), encoded_list.size());
}

void ExampleBuilder::add_bytes(std::string_view name, std::string_view value) {
  std::string list;
  protozero::pbf_writer(list).add_bytes(kListValue, value.data(), value.size());
  add_feature(name, kFeatureBytesList, list);
}

void ExampleBuilder::add_bytes_list(std::string_view name, std::span<const std::string> values) {
  std::string list;
  protozero::pbf_writer writer(list);
  for (const std::string& value : values) writer.add_bytes(kListValue, value.data(), value.size());
  add_feature(name, kFeatureBytesList, list);
}

void ExampleBuilder::add_int64(std::string_view name, int64_t value) {
  add_int64_list(name, {&value, 1});
}

void ExampleBuilder::add_int64_list(std::string_view name, std::span<const int64_t> values) {
  std::string list;
  protozero::pbf_writer(list).add_packed_int64(kListValue, values.begin(), values.end());
  add_feature(name, kFeatureInt64List, list);
}

void ExampleBuilder::add_floats(std::string_view name, std::span<const float> values) {
  std::string list;
  protozero::pbf_writer(list).add_packed_float(kListValue, values.begin(), values.end());
  add_feature(name, kFeatureFloatList, list);
}

std::string ExampleBuilder::build() const {
  std::string encoded;
  protozero::pbf_writer(encoded).add_message(kExampleFeatures, features_);
  return encoded;
}

}  // namespace trainyard::formats
