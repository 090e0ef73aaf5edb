#include "trainyard/data/cache/decoded_store.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/system/system_random.h"
#include "trainyard/data/datasets/file_walk.h"
#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::string_view kIndexSuffix = ".index", kPixelsSuffix = ".pixels";
// Before the boxes: sample, label, place of the pixels (8 bytes each), height, width, checksum, boxes (4 each). Behind
// them: the class's text.
constexpr size_t kEntryBytes = 3 * 8 + 4 * 4;
// In the number of boxes: their labels are behind them, and they are turned as the image. Earlier releases turned the
// image alone.
constexpr uint32_t kBoxesHaveLabels = uint32_t{1} << 31, kBoxesAreTurned = uint32_t{1} << 30;

// Hashes names, sizes and times, and folders by their names alone.
class Identity : public FileVisitor {
 public:
  void visit(const std::string& name, const core::FileInfo& info) override {
    hash_ = core::stable_hash(fmt::format("{} {} {}\n", core::base_name(name), info.is_directory ? 0 : info.size,
                                          info.is_directory ? 0 : info.modified_ns),
                              hash_);
    if (info.is_directory) return;
    ++count_;
    bytes_ += info.size;
  }
  std::string text() const { return fmt::format("{} files, {} bytes, {:016x}", count_, bytes_, hash_); }

 private:
  uint64_t count_ = 0, bytes_ = 0, hash_ = core::stable_hash("");
};

// Another one than any other run's: in containers, on several machines, runs have the same process number.
std::string segment_name() {
  return fmt::format("decoded-{:08x}{:08x}", core::system_random(), core::system_random());
}

std::string_view pixels_of(const Image& image) {
  return {reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()};
}

}  // namespace

std::string identity_of_files(core::FileSystem& files, const std::vector<std::string>& paths) {
  Identity identity;
  for (const std::string& path : paths) walk_files(files, path, identity);
  return identity.text();
}

struct DecodedStore::Entry {
  Segment* segment = nullptr;
  uint64_t offset = 0;  // of the pixels
  int64_t label = 0;
  int height = 0, width = 0;
  uint32_t checksum = 0;
  std::vector<Box> boxes;
  std::vector<int64_t> box_labels;
  std::string label_text;
  bool checked = false;

  size_t bytes() const { return size_t{3} * height * width; }
};

// A pair of files. While it is written, what was flushed can be read.
struct DecodedStore::Segment {
  std::string pixels_path;
  std::shared_ptr<const core::ReadableFile> pixels;  // null: not opened yet
  std::unique_ptr<core::WritableFile> pixels_out;
  std::unique_ptr<formats::TfRecordWriter> index_out;
  uint64_t end = 0;   // bytes written
  bool lost = false;  // cannot be read
};

// A cache: once, not for each image. What a full disk has kept of this run's segment can still be read.
void DecodedStore::give_up(Segment& segment, const Error& error) {
  if (&segment == own_) {
    writes_ = false;
    own_ = nullptr;
    segment.pixels_out.reset();
    segment.index_out.reset();
    core::log::warning("decoded images are not kept from here on: {}", error.what());
  } else if (!segment.lost) {
    segment.lost = true;
    core::log::warning("cached decoded images cannot be read: {}", error.what());
  }
}

DecodedStore::DecodedStore(core::FileSystem& files, const std::string& directory, const std::string& identity,
                           bool turns_images)
    : files_(files), directory_(directory), identity_(identity), turns_images_(turns_images) {
  files_.make_directories(directory_);
  for (const std::string& name : files_.list(directory_)) {
    if (name.ends_with(kIndexSuffix)) load(core::join_path(directory_, name));
  }
}

DecodedStore::~DecodedStore() {
  if (own_ == nullptr) return;
  try {
    own_->pixels_out->close();
    own_->index_out->close();
  } catch (const std::exception& error) {
    core::log::warning("decoded images are not kept: {}", error.what());
  }
}

// Entries up to the first that is incomplete: the run that wrote the segment may have been killed.
void DecodedStore::load(const std::string& index_path) {
  const auto index = files_.open_read(index_path);
  formats::TfRecordReader reader(*index);
  std::string record;
  auto segment = std::make_unique<Segment>();
  segment->pixels_path = index_path.substr(0, index_path.size() - kIndexSuffix.size()) + std::string(kPixelsSuffix);
  try {
    if (!reader.next(record)) return;
    if (record != identity_) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "cached decoded images are of other data",
                                                .where = index_path,
                                                .expected = identity_,
                                                .actual = record,
                                                .remedy = "remove the folder, or name another one"});
    }
    while (reader.next(record)) {
      if (record.size() < kEntryBytes) break;
      const char* at = record.data();
      const auto sample = formats::load_little_endian<int64_t>(at);
      Entry entry{.segment = segment.get()};
      entry.label = formats::load_little_endian<int64_t>(at + 8);
      entry.offset = formats::load_little_endian<uint64_t>(at + 16);
      entry.height = formats::load_little_endian<int32_t>(at + 24);
      entry.width = formats::load_little_endian<int32_t>(at + 28);
      entry.checksum = formats::load_little_endian<uint32_t>(at + 32);
      const auto number = formats::load_little_endian<uint32_t>(at + 36);
      const size_t boxes = number & ~(kBoxesHaveLabels | kBoxesAreTurned);
      const size_t labels = (number & kBoxesHaveLabels) != 0 ? boxes : 0;
      const bool sane = entry.height > 0 && entry.width > 0 && check_size({entry.height, entry.width}, {}).ok();
      const size_t labels_at = kEntryBytes + boxes * sizeof(Box), text_at = labels_at + labels * sizeof(int64_t);
      if (!sane || record.size() < text_at) break;
      if (turns_images_ && boxes > 0 && (number & kBoxesAreTurned) == 0) continue;  // decoded again
      entry.boxes.resize(boxes);
      if (boxes > 0) std::memcpy(entry.boxes.data(), at + kEntryBytes, boxes * sizeof(Box));
      entry.box_labels.resize(labels);
      if (labels > 0) std::memcpy(entry.box_labels.data(), at + labels_at, labels * sizeof(int64_t));
      entry.label_text = record.substr(text_at);
      entries_[sample] = std::move(entry);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptData) throw;
  }
  segments_.push_back(std::move(segment));
}

std::optional<Record> DecodedStore::find(int64_t sample) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(sample);
  if (found == entries_.end() || found->second.segment->lost) return std::nullopt;
  Entry entry = found->second;
  Segment& segment = *entry.segment;
  Image image{.height = entry.height, .width = entry.width};
  try {
    const uint64_t end = entry.offset + entry.bytes();
    if (segment.pixels == nullptr || segment.pixels->size() < end) {
      if (segment.pixels_out) segment.pixels_out->flush();
      segment.pixels = files_.open_read(segment.pixels_path);
    }
    const std::shared_ptr<const core::ReadableFile> pixels = segment.pixels;
    if (pixels->size() < end) return std::nullopt;
    lock.unlock();
    image.pixels.resize(entry.bytes());
    pixels->read_at(entry.offset, std::as_writable_bytes(std::span(image.pixels)));
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    give_up(segment, error);
    return std::nullopt;
  }
  if (!entry.checked) {
    if (core::crc32c(pixels_of(image)) != entry.checksum) return std::nullopt;
    lock.lock();
    entries_[sample].checked = true;
  }
  Record record;
  record.encoding = Encoding::kDecoded;
  record.image = std::make_shared<const Image>(std::move(image));
  record.label = entry.label;
  record.boxes = std::move(entry.boxes);
  record.box_labels = std::move(entry.box_labels);
  record.label_text = std::move(entry.label_text);
  record.where = fmt::format("sample {} in {}", sample, directory_);
  return record;
}

void DecodedStore::add(int64_t sample, const Record& record) {
  const uint32_t checksum = core::crc32c(pixels_of(*record.image));
  std::lock_guard lock(mutex_);
  if (!writes_ || entries_.contains(sample)) return;
  try {
    if (own_ == nullptr) open_segment();
    const Image& image = *record.image;
    own_->pixels_out->write(pixels_of(image));
    std::string line;
    formats::append_little_endian<int64_t>(line, sample);
    formats::append_little_endian<int64_t>(line, record.label);
    formats::append_little_endian<uint64_t>(line, own_->end);
    formats::append_little_endian<int32_t>(line, image.height);
    formats::append_little_endian<int32_t>(line, image.width);
    formats::append_little_endian<uint32_t>(line, checksum);
    const std::vector<int64_t>& box_labels = record.box_labels;
    formats::append_little_endian<uint32_t>(line, static_cast<uint32_t>(record.boxes.size()) |
                                                      (box_labels.empty() ? 0 : kBoxesHaveLabels) |
                                                      (turns_images_ && !record.boxes.empty() ? kBoxesAreTurned : 0));
    line.append(reinterpret_cast<const char*>(record.boxes.data()), record.boxes.size() * sizeof(Box));
    line.append(reinterpret_cast<const char*>(box_labels.data()), box_labels.size() * sizeof(int64_t));
    line += record.label_text;
    own_->index_out->write(line);
    entries_[sample] = {.segment = own_,
                        .offset = own_->end,
                        .label = record.label,
                        .height = image.height,
                        .width = image.width,
                        .checksum = checksum,
                        .boxes = record.boxes,
                        .box_labels = box_labels,
                        .label_text = record.label_text,
                        .checked = true};
    own_->end += image.pixels.size();
  } catch (const Error& error) {
    give_up(*own_, error);
  }
}

void DecodedStore::open_segment() {
  const std::string path = core::join_path(directory_, segment_name());
  own_ = segments_.emplace_back(std::make_unique<Segment>()).get();
  own_->pixels_path = path + std::string(kPixelsSuffix);
  own_->pixels_out = files_.open_write(own_->pixels_path);
  own_->index_out = std::make_unique<formats::TfRecordWriter>(files_.open_write(path + std::string(kIndexSuffix)));
  own_->index_out->write(identity_);
}

}  // namespace trainyard::data
