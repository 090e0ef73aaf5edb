#include "trainyard/data/datasets/recognise_tfrecords.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr ImageSize kCifar = {32, 32};

Error not_images(const std::string& shard, std::string problem, std::string actual) {
  return {ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = shard,
           .expected = "a TFRecord of tf.Examples with image/encoded and image/class/label",
           .actual = std::move(actual),
           .remedy = "check --data_dir, or name the data set with --data_name"}};
}

std::string first_record(core::FileSystem& files, const std::string& shard) {
  const auto file = files.open_read(shard);
  std::string record;
  try {
    formats::TfRecordReader reader(*file);
    if (reader.next(record)) return record;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
    throw not_images(shard, "the file is no TFRecord, or a damaged one", error.detail().problem);
  }
  throw not_images(shard, "the file holds no record", "0 bytes");
}

bool names(const std::vector<std::string>& classes, int64_t label, std::string_view text) {
  return label >= 0 && label < static_cast<int64_t>(classes.size()) && classes[static_cast<size_t>(label)] == text;
}

}  // namespace

std::string recognise_tfrecords(core::FileSystem& files, const std::string& shard) {
  const std::string record = first_record(files, shard);
  auto example = formats::ExampleView::parse(record);
  if (!example.ok()) {
    throw not_images(shard, "the first record is no tf.Example", example.error().detail().problem);
  }
  const bool boxed = example.value().has(formats::kImageSourceId) && !example.value().has(formats::kImageClassLabel);
  if (boxed) return "coco";
  auto encoded = example.value().bytes(formats::kImageEncoded);
  auto label = example.value().int64(formats::kImageClassLabel);
  constexpr const char* kNoImage = "the first record is no labelled image";
  if (!encoded.ok()) throw not_images(shard, kNoImage, encoded.error().detail().problem);
  if (!label.ok()) throw not_images(shard, kNoImage, label.error().detail().problem);
  auto text = example.value().bytes(formats::kImageClassText);
  const std::string_view name = text.ok() ? text.value() : "";
  if (names(shape_names(), label.value(), name)) return "shapes";
  auto size = read_image_size(std::as_bytes(std::span(encoded.value())));
  const bool small = size.ok() && size.value() == kCifar;
  const auto& cifar = cifar10_class_names();
  const bool its_label = label.value() >= 0 && label.value() < static_cast<int64_t>(cifar.size());
  // Other classes in CIFAR-10's form: their names are in a file next to the records, whose labels count from 0.
  const std::vector<std::string> listed = read_class_names(files, core::parent_path(shard));
  const bool other_classes = names(listed, label.value(), name) && !names(listed, label.value() - 1, name);
  const bool of_cifar = name.empty() ? its_label : names(cifar, label.value(), name) || other_classes;
  return small && of_cifar ? "cifar10" : "imagenet";
}

}  // namespace trainyard::data
