#include "trainyard/data/datasets/tfrecord_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/datasets/record_index_files.h"
#include "trainyard/formats/records/tf_example.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;

Error stale_index(const std::string& path, std::string expected, std::string actual) {
  return {ErrorCode::kCorruptData,
          {.problem = "index file is not of this shard",
           .where = path,
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "write it again with trainyard data index, or remove it"}};
}

core::Result<std::vector<Box>> read_boxes(const formats::ExampleView& example) {
  static constexpr std::array<std::pair<std::string_view, float Box::*>, 4> kSides = {
      {{formats::kImageBoxYMin, &Box::ymin},
       {formats::kImageBoxXMin, &Box::xmin},
       {formats::kImageBoxYMax, &Box::ymax},
       {formats::kImageBoxXMax, &Box::xmax}}};
  std::vector<Box> boxes;
  for (const auto& [name, side] : kSides) {
    std::vector<float> numbers;  // a list that is not there is an empty one
    if (example.has(name)) {
      auto values = example.float_list(name);
      if (!values.ok()) return values.error();
      numbers = std::move(values).value();
    }
    if (side == &Box::ymin) boxes.resize(numbers.size());
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

// Two classes of ImageNet share a text ("crane"), none a synset. `listed` is what the list of classes calls the label,
// which may be either; empty: there is no list.
std::string class_text(const formats::ExampleView& example, std::string_view listed) {
  std::string first;
  for (const std::string_view name : {formats::kImageClassSynset, formats::kImageClassText}) {
    if (!example.has(name)) continue;
    auto text = example.bytes(name);
    if (!text.ok() || text.value().empty()) continue;
    if (text.value() == listed) return std::string(listed);
    if (first.empty()) first = text.value();
  }
  return first;
}

}  // namespace

TfRecordDataset::TfRecordDataset(const DatasetOptions& options, const std::vector<std::string>& shards, Labels labels)
    : labels_(std::move(labels)), file_system_(*options.files), files_(*options.files), shards_(shards.size()) {
  if (options.use_index) require_index_folder(file_system_, options.index_directory);
  for (const std::string& path : shards) files_.add(path);
  core::for_each_parallel(shards.size(), core::available_cores(), [&](size_t shard) { count_records(options, shard); });
  for (Shard& shard : shards_) {
    shard.first = size_;
    size_ += static_cast<int64_t>(shard.records);
  }
  warn_of_missing_indexes(options);
  if (size_ == 0) {
    throw NoSuchSubset({.problem = "data set holds no records",
                        .where = fmt::format("{} shards in {}", shards.size(), options.directory),
                        .remedy = "write the TFRecords again"});
  }
}

void TfRecordDataset::warn_of_missing_indexes(const DatasetOptions& options) const {
  if (!options.use_index || options.index_directory.empty()) return;
  const auto missing = std::count_if(shards_.begin(), shards_.end(),
                                     [](const Shard& shard) { return shard.index_path.empty() || shard.kept; });
  if (missing == 0) return;
  core::log::warning("{} of {} {} shards have no index file in {}: their records are found by reading them", missing,
                     shards_.size(), subset_name(options.subset), options.index_directory);
}

void TfRecordDataset::count_records(const DatasetOptions& options, size_t number) {
  Shard& shard = shards_[number];
  if (options.use_index) {
    shard.index_path = find_index_file(file_system_, files_.path(number), options.index_directory);
    if (!shard.index_path.empty()) {
      shard.records = records_in(shard.index_path, number);
      return;
    }
    const std::string kept = kept_index_file(files_.path(number), files_.info(number));
    if (!kept.empty() && accept_kept_index(kept, number)) return;
    scan(number);
    keep_index(file_system_, kept, shard.index);
  } else {
    scan(number);
  }
  shard.records = shard.index.size();
}

void TfRecordDataset::scan(size_t number) const {
  shards_[number].index = formats::RecordIndex(formats::index_tfrecord(*files_.open(number)));
}

size_t TfRecordDataset::records_in(const std::string& index_path, size_t number) const {
  formats::RecordIndexSummary summary;
  try {
    summary = formats::summarize_record_index(file_system_.read_file(index_path, kMaxIndexBytes));
  } catch (const Error& error) {
    throw error.in(index_path);
  }
  if (summary.file_size != files_.size(number)) {
    throw stale_index(index_path, fmt::format("{} bytes, as {} has", files_.size(number), files_.path(number)),
                      fmt::format("{}", summary.file_size));
  }
  return summary.records;
}

// Whether an earlier run kept an index. Whatever is wrong with it, or with the disk it is on, the shard can be scanned.
bool TfRecordDataset::accept_kept_index(const std::string& path, size_t number) {
  Shard& shard = shards_[number];
  try {
    if (!file_system_.exists(path)) return false;
    shard.records = records_in(path, number);
  } catch (const Error& error) {
    core::log::debug("a kept index is not used: {}", error.what());
    return false;
  }
  shard.index_path = path;
  shard.kept = true;
  return true;
}

void TfRecordDataset::read_index(size_t number) const {
  const Shard& shard = shards_[number];
  if (shard.index_path.empty()) return;
  try {
    check_index(number);
  } catch (const Error& error) {
    if (!shard.kept) throw;
    scan(number);
    if (shard.index.size() == shard.records) return;
    throw stale_index(shard.index_path, fmt::format("{} records, as {} has", shard.index.size(), files_.path(number)),
                      fmt::format("{}", shard.records));
  }
}

// Reads the whole index file and looks at three records, so that an index of other records of the same size is noticed
// before a record is taken for damaged.
void TfRecordDataset::check_index(size_t number) const {
  const Shard& shard = shards_[number];
  formats::RecordIndex index;
  try {
    index = formats::parse_record_index(file_system_.read_file(shard.index_path, kMaxIndexBytes));
  } catch (const Error& error) {
    throw error.in(shard.index_path);
  }
  if (index.size() != shard.records || index.file_size() != files_.size(number)) {
    throw stale_index(shard.index_path, fmt::format("{} records, as at the start", shard.records),
                      fmt::format("{}", index.size()));
  }
  const auto file = files_.open(number);
  for (const size_t record : {size_t{0}, index.size() / 2, index.size() - 1}) {
    const formats::RecordSpan span = index.span(record);
    uint64_t length = 0;
    try {
      length = formats::read_tfrecord_length(*file, span.offset);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorruptData) throw;  // the disk's fault
      throw stale_index(shard.index_path, fmt::format("a record at offset {} of {}", span.offset, files_.path(number)),
                        error.detail().problem);
    }
    if (length != span.length) {
      throw stale_index(shard.index_path, fmt::format("{} bytes at offset {}", length, span.offset),
                        fmt::format("{}", span.length));
    }
  }
  shard.index = std::move(index);
}

TfRecordDataset::Place TfRecordDataset::place_of(int64_t index) const {
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                      [](int64_t i, const Shard& shard) { return i < shard.first; });
  const Shard& shard = *std::prev(after);
  const auto number = static_cast<size_t>(&shard - shards_.data());
  std::call_once(shard.indexed, [&] { read_index(number); });
  return {number, shard.index.span(static_cast<size_t>(index - shard.first))};
}

std::string TfRecordDataset::describe(const Place& place) const {
  return fmt::format("{} at offset {}", files_.path(place.shard), place.span.offset);
}

core::Result<Record> TfRecordDataset::read(int64_t index) const {
  const Place place = place_of(index);
  static thread_local std::string buffer;  // grows to the longest record
  auto example = formats::read_tfrecord(*files_.open(place.shard), place.span, buffer);
  if (!example.ok()) return example.error();
  return parse(example.value(), place);
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
  const int64_t number = label.value() - labels_.first;
  const bool listed = number >= 0 && number < std::ssize(labels_.names);
  record.label_text =
      class_text(example.value(), listed ? std::string_view(labels_.names[static_cast<size_t>(number)]) : "");
  record.boxes = std::move(boxes).value();
  record.bytes.resize(encoded.value().size());
  if (!record.bytes.empty()) std::memcpy(record.bytes.data(), encoded.value().data(), record.bytes.size());
  record.encoding = encoded.value().starts_with("\x89PNG") ? Encoding::kPng : Encoding::kJpeg;
  return record;
}

}  // namespace trainyard::data
