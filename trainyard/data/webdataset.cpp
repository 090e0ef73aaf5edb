#include "trainyard/data/webdataset.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/parallel.h"
#include "trainyard/core/thread.h"

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
  std::string extension(name.substr(dot + 1));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return {name.substr(0, dot), extension};
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
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
}

std::vector<WebDataset::Sample> WebDataset::group(const std::vector<formats::TarMember>& members, uint32_t shard) {
  std::vector<Sample> samples;
  Sample sample{.shard = shard};
  std::string_view current;
  std::string image_extension;
  const auto finish = [&] {
    if (sample.image.offset != 0 || sample.label.offset != 0) samples.push_back(sample);
    sample = {.shard = shard};
    image_extension.clear();
  };
  for (const formats::TarMember& member : members) {
    const auto [key, extension] = split_name(member.name);
    if (extension.empty()) continue;
    const bool image = extension == "jpg" || extension == "jpeg" || extension == "png";
    const bool label = extension == "cls" || (extension == "json" && sample.label.offset == 0);
    // Two files of one name are two samples, as after `cat`; 0001.jpg and 0001.png are the image and a mask of it.
    if (key != current || (image && extension == image_extension)) finish();
    current = key;
    if (image && sample.image.offset == 0) {
      sample.image = {member.offset, member.size};
      image_extension = extension;
    }
    if (label) {
      sample.label = {member.offset, member.size};
      sample.json = extension == "json";
    }
  }
  finish();
  return samples;
}

core::Result<Record> WebDataset::read(int64_t index) const {
  const Sample& sample = samples_[index];
  const uint64_t offset = std::max(sample.image.offset, sample.image.offset == 0 ? sample.label.offset : 0);
  Record record{.where = fmt::format("{} at offset {}", files_.path(sample.shard), offset)};
  if (sample.image.offset == 0 || sample.label.offset == 0) {
    return Error(ErrorCode::kCorruptData, {.problem = "sample is incomplete",
                                           .where = record.where,
                                           .expected = "KEY.jpg, KEY.jpeg or KEY.png, and KEY.cls or KEY.json",
                                           .actual = sample.image.offset == 0 ? "no image" : "no label"});
  }
  if (sample.label.size > kMaxLabelBytes) {
    return Error(
        ErrorCode::kCorruptData,
        {.problem = "label is too long", .where = record.where, .actual = fmt::format("{} bytes", sample.label.size)});
  }
  const auto file = files_.open(sample.shard);
  for (const Part& part : {sample.image, sample.label}) formats::check_tar_header(*file, part.offset, part.size);
  std::string text(sample.label.size, '\0');
  file->read_at(sample.label.offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  auto label = parse_label(sample, text);
  if (!label.ok()) return label.error().in(record.where);
  record.label = label.value();
  record.bytes.resize(sample.image.size);
  file->read_at(sample.image.offset, record.bytes);
  return record;
}

core::Result<int64_t> WebDataset::parse_label(const Sample& sample, const std::string& text) const {
  int64_t label = -1;
  if (sample.json) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("label") || !json["label"].is_number_integer()) {
      return Error(ErrorCode::kCorruptData,
                   {.problem = "JSON of a sample has no label", .expected = "an object with a whole number \"label\""});
    }
    label = json["label"].get<int64_t>();
  } else {
    const std::string_view digits = stripped(text);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), label);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return Error(ErrorCode::kCorruptData, {.problem = "label is no number", .expected = "a whole number as text"});
    }
  }
  if (label < 0 || label >= label_count_) {
    return Error(ErrorCode::kCorruptData, {.problem = "label is out of range",
                                           .expected = fmt::format("[0, {})", label_count_),
                                           .actual = fmt::format("{}", label),
                                           .remedy = "check that --data_name is the name of this data set"});
  }
  return label;
}

}  // namespace trainyard::data
