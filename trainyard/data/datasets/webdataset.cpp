#include "trainyard/data/datasets/webdataset.h"

#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/datasets/class_list.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr uint64_t kMaxLabelBytes = uint64_t{1} << 20;

// Key and extension, the latter in small letters; no extension: no part of a sample.
std::pair<std::string_view, std::string> split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) return {name, ""};
  return {name.substr(0, dot), core::lower_case(name.substr(dot + 1))};
}

}  // namespace

WebDataset::WebDataset(const DatasetOptions& options, const std::vector<std::string>& shards, int64_t label_count,
                       std::vector<std::string> label_names)
    : files_(*options.files), label_count_(label_count), label_names_(std::move(label_names)) {
  for (const std::string& path : shards) files_.add(path);
  std::vector<std::vector<Sample>> found(shards.size());
  core::for_each_parallel(shards.size(), core::available_cores(), [&](size_t shard) {
    found[shard] = group(formats::index_tar(*files_.open(shard)), static_cast<uint32_t>(shard));
  });
  for (const std::vector<Sample>& samples : found) samples_.insert(samples_.end(), samples.begin(), samples.end());
  if (samples_.empty()) {
    throw NoSuchSubset({.problem = "WebDataset shards hold no samples",
                        .where = fmt::format("{} shards in {}", shards.size(), options.directory),
                        .expected = "files KEY.jpg with KEY.cls or KEY.json"});
  }
  if (!labels_are_names()) return;
  KnownClasses known = options.classes;
  if (known.names.empty()) {
    known.names = label_names_;
    known.origin = "the data set of this name";
  }
  number_names(known, options.directory);
}

// A sample that cannot be read says nothing: read() tells what is wrong with it.
bool WebDataset::labels_are_names() const {
  for (const Sample& sample : samples_) {
    if (sample.image.offset == 0 || !sample.has_label()) continue;
    if (auto label = read_label(sample); label.ok()) return !label.value().is_number;
  }
  return false;
}

// The class of each sample, empty where it has none that can be read.
std::vector<std::string> WebDataset::read_names() const {
  std::vector<std::string> names(samples_.size());
  core::for_each_parallel(samples_.size(), core::available_cores(), [&](size_t i) {
    if (!samples_[i].has_label()) return;
    core::Result<WebLabel> label = read_label(samples_[i]);
    if (!label.ok()) return;
    if (label.value().is_number) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "labels are names and numbers",
                                                .where = describe(samples_[i]),
                                                .expected = "a name, as the first sample has",
                                                .actual = fmt::format("{}", label.value().number),
                                                .remedy = "write all labels as names, or all as numbers"});
    }
    names[i] = std::move(label.value().name);
  });
  return names;
}

void WebDataset::number_names(const KnownClasses& known, const std::string& where) {
  const std::vector<std::string> names = read_names();
  const std::set<std::string> different(names.begin(), names.end());
  std::vector<std::string> classes(different.begin(), different.end());
  std::erase(classes, "");
  label_names_ = known.names.empty() ? classes : known.names;
  label_count_ = static_cast<int64_t>(label_names_.size());
  std::vector<int64_t> labels(classes.size());
  std::iota(labels.begin(), labels.end(), 0);
  if (!known.names.empty()) labels = labels_of_classes(classes, known, where);
  std::vector<std::string> skipped;
  for (size_t i = 0; i < classes.size(); ++i) {
    numbers_[classes[i]] = labels[i];
    if (labels[i] < 0) skipped.push_back(classes[i]);
  }
  if (skipped.empty()) return;
  const size_t before = samples_.size();
  size_t kept = 0;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (names[i].empty() || numbers_.at(names[i]) >= 0) samples_[kept++] = samples_[i];
  }
  samples_.resize(kept);
  core::log::warning("{}: {} images of {} unknown classes are left out: {}", where, before - kept, skipped.size(),
                     quoted_classes(skipped));
  if (samples_.empty()) {
    throw NoSuchSubset({.problem = "WebDataset shards hold no samples of known classes", .where = where});
  }
}

std::vector<WebDataset::Sample> WebDataset::group(const std::vector<formats::TarMember>& members, uint32_t shard) {
  std::vector<Sample> samples;
  Sample sample{.shard = shard};
  std::string_view current;
  std::string image_extension;
  const auto finish = [&] {
    if (sample.image.offset != 0 || sample.has_label()) samples.push_back(sample);
    sample = {.shard = shard};
    image_extension.clear();
  };
  for (const formats::TarMember& member : members) {
    const auto [key, extension] = split_name(member.name);
    if (extension.empty()) continue;
    const bool image = is_image_extension(extension);
    // Two files of one name are two samples, as in archives that `tar --concatenate` has joined; 0001.jpg and 0001.png
    // are the image and a mask of it.
    const bool again = (image && extension == image_extension) || (extension == "cls" && sample.cls.offset != 0) ||
                       (extension == "json" && sample.json.offset != 0);
    if (key != current || again) finish();
    current = key;
    if (image && sample.image.offset == 0) {
      sample.image = {member.offset, member.size};
      image_extension = extension;
    }
    if (extension == "cls") sample.cls = {member.offset, member.size};
    if (extension == "json") sample.json = {member.offset, member.size};
  }
  finish();
  return samples;
}

std::string WebDataset::describe(const Sample& sample) const {
  const uint64_t offset = sample.image.offset != 0 ? sample.image.offset
                          : sample.cls.offset != 0 ? sample.cls.offset
                                                   : sample.json.offset;
  return fmt::format("{} at offset {}", files_.path(sample.shard), offset);
}

core::Result<std::string> WebDataset::read_text(const Sample& sample, const Part& part) const {
  if (part.size > kMaxLabelBytes) {
    return Error(ErrorCode::kCorruptData,
                 {.problem = "label is too long", .actual = fmt::format("{} bytes", part.size)});
  }
  const auto file = files_.open(sample.shard);
  formats::check_tar_header(*file, part.offset, part.size);
  std::string text(part.size, '\0');
  file->read_at(part.offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

core::Result<WebLabel> WebDataset::read_label(const Sample& sample) const {
  const bool cls = sample.cls.offset != 0;
  auto text = read_text(sample, cls ? sample.cls : sample.json);
  if (!text.ok()) return text.error();
  auto label = cls ? parse_cls_label(text.value()) : parse_json_label(text.value());
  if (!cls || !label.ok() || !label.value().is_number || sample.json.offset == 0) return label;
  // The JSON of other programs may hold anything: what is not of this number is none of its name.
  auto json = read_text(sample, sample.json);
  if (!json.ok()) return label;
  auto named = parse_json_label(json.value());
  if (named.ok() && (!named.value().is_number || named.value().number == label.value().number)) {
    label.value().name = std::move(named.value().name);
  }
  return label;
}

core::Result<Record> WebDataset::read(int64_t index) const {
  const Sample& sample = samples_[index];
  Record record{.where = describe(sample)};
  if (sample.image.offset == 0 || !sample.has_label()) {
    return Error(ErrorCode::kCorruptData,
                 {.problem = "sample is incomplete",
                  .where = record.where,
                  .expected = fmt::format("KEY with {}, and KEY.cls or KEY.json", image_extension_names()),
                  .actual = sample.image.offset == 0 ? "no image" : "no label"});
  }
  auto label = read_label(sample);
  if (!label.ok()) return label.error().in(record.where);
  auto number = label_of(label.value());
  if (!number.ok()) return number.error().in(record.where);
  record.label = number.value();
  record.label_text = std::move(label.value().name);
  const auto file = files_.open(sample.shard);
  formats::check_tar_header(*file, sample.image.offset, sample.image.size);
  record.bytes.resize(sample.image.size);
  file->read_at(sample.image.offset, record.bytes);
  return record;
}

core::Result<int64_t> WebDataset::label_of(const WebLabel& label) const {
  if (!numbers_.empty()) {
    const auto found = numbers_.find(label.name);
    if (!label.is_number && found != numbers_.end()) return found->second;
    return Error(ErrorCode::kCorruptData, {.problem = "label has changed since the start"});
  }
  if (!label.is_number) {
    return Error(ErrorCode::kCorruptData, {.problem = "label is no number",
                                           .expected = "a whole number, as the first sample has",
                                           .actual = quoted_class(label.name)});
  }
  if (label.number < 0 || label.number >= label_count_) {
    return Error(ErrorCode::kCorruptData, {.problem = "label is out of range",
                                           .expected = fmt::format("[0, {})", label_count_),
                                           .actual = fmt::format("{}", label.number),
                                           .remedy = "check that --data_name is the name of this data set"});
  }
  return label.number;
}

}  // namespace trainyard::data
