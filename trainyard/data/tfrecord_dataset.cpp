#include "trainyard/data/tfrecord_dataset.h"

#include <array>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "trainyard/formats/tf_example.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// "train-00000-of-00002" for the prefix "train".
bool is_shard(std::string_view name, std::string_view prefix) {
  return name.starts_with(fmt::format("{}-", prefix)) && name.find("-of-", prefix.size() + 1) != std::string_view::npos;
}

core::Result<std::vector<Box>> read_boxes(const formats::ExampleView& example) {
  static constexpr std::array<std::pair<std::string_view, float Box::*>, 4> kSides = {
      {{formats::kImageBoxYMin, &Box::ymin},
       {formats::kImageBoxXMin, &Box::xmin},
       {formats::kImageBoxYMax, &Box::ymax},
       {formats::kImageBoxXMax, &Box::xmax}}};
  std::vector<Box> boxes;
  for (const auto& [name, side] : kSides) {
    if (!example.has(name)) continue;
    auto values = example.float_list(name);
    if (!values.ok()) return values.error();
    const std::vector<float>& numbers = values.value();
    if (boxes.empty()) boxes.resize(numbers.size());
    if (numbers.size() != boxes.size()) {
      return Error(ErrorCode::kCorruptData, {.problem = fmt::format("{} has another length than its fellows", name),
                                             .expected = fmt::format("{} numbers", boxes.size()),
                                             .actual = fmt::format("{}", numbers.size())});
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!(numbers[i] >= 0 && numbers[i] <= 1)) {
        return Error(ErrorCode::kCorruptData, {.problem = fmt::format("{} is out of range", name),
                                               .expected = "a part of the image in [0, 1]",
                                               .actual = fmt::format("{}", numbers[i])});
      }
      boxes[i].*side = numbers[i];
    }
  }
  return boxes;
}

}  // namespace

std::vector<std::string> list_shards(const DatasetOptions& options, std::string_view prefix) {
  if (!options.files->exists(options.directory)) {
    throw Error(ErrorCode::kNotFound, {.problem = "data directory does not exist",
                                       .where = options.directory,
                                       .remedy = "pass the directory that holds the data set as --data_dir"});
  }
  std::vector<std::string> shards;
  for (const std::string& name : options.files->list(options.directory)) {
    if (is_shard(name, prefix)) shards.push_back(core::join_path(options.directory, name));
  }
  return shards;
}

std::vector<std::string> find_shards(const DatasetOptions& options, std::string_view prefix,
                                     std::string_view other_forms) {
  std::vector<std::string> shards = list_shards(options, prefix);
  if (!shards.empty()) return shards;
  throw Error(
      ErrorCode::kNotFound,
      {.problem = fmt::format("Found no files in --data_dir matching: {}",
                              core::join_path(options.directory, fmt::format("{}-*-of-*", prefix))),
       .remedy = fmt::format("pass the directory that holds the data set's TFRecords{} as --data_dir", other_forms)});
}

TfRecordDataset::TfRecordDataset(const DatasetOptions& options, const std::vector<std::string>& shards, Labels labels)
    : labels_(std::move(labels)), cache_(options.cache_records) {
  for (const std::string& path : shards) {
    shards_.push_back(options.files->open_read(path));
    for (const formats::RecordSpan& span : formats::index_tfrecord(*shards_.back())) {
      records_.push_back({static_cast<uint32_t>(shards_.size() - 1), span});
    }
  }
  if (records_.empty()) {
    throw Error(ErrorCode::kNotFound, {.problem = "data set holds no records",
                                       .where = fmt::format("{} shards in {}", shards.size(), options.directory),
                                       .remedy = "write the TFRecords again"});
  }
  if (cache_) cached_.resize(records_.size());
}

std::string TfRecordDataset::describe(const Place& place) const {
  return fmt::format("{} at offset {}", shards_[place.shard]->path(), place.span.offset);
}

core::Result<Record> TfRecordDataset::read(int64_t index) const {
  const Place& place = records_[index];
  if (cache_) {
    std::unique_lock lock(mutex_);
    if (const auto example = cached_[index]) {
      lock.unlock();
      return parse(*example, place);
    }
  }
  static thread_local std::string buffer;  // grows to the longest record
  auto example = formats::read_tfrecord(*shards_[place.shard], place.span, buffer);
  if (!example.ok()) return example.error();
  auto record = parse(example.value(), place);
  if (cache_) {
    std::lock_guard lock(mutex_);
    cached_[index] = std::make_shared<const std::string>(example.value());
  }
  return record;
}

core::Result<Record> TfRecordDataset::parse(std::string_view bytes, const Place& place) const {
  Record record;
  record.where = describe(place);
  auto example = formats::ExampleView::parse(bytes);
  if (!example.ok()) return example.error().in(record.where);
  auto encoded = example.value().bytes(formats::kImageEncoded);
  if (!encoded.ok()) return encoded.error().in(record.where);
  auto label = example.value().int64(formats::kImageClassLabel);
  if (!label.ok()) return label.error().in(record.where);
  if (label.value() < 0 || label.value() >= labels_.count) {
    return Error(ErrorCode::kCorruptData, {.problem = "label is out of range",
                                           .where = record.where,
                                           .expected = fmt::format("[0, {})", labels_.count),
                                           .actual = fmt::format("{}", label.value()),
                                           .remedy = "check that --data_name is the name of this data set"});
  }
  auto boxes = read_boxes(example.value());
  if (!boxes.ok()) return boxes.error().in(record.where);
  record.label = label.value();
  record.boxes = std::move(boxes).value();
  record.bytes.resize(encoded.value().size());
  if (!record.bytes.empty()) std::memcpy(record.bytes.data(), encoded.value().data(), record.bytes.size());
  record.encoding = encoded.value().starts_with("\x89PNG") ? Encoding::kPng : Encoding::kJpeg;
  return record;
}

}  // namespace trainyard::data
