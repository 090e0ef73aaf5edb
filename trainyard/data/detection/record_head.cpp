#include "trainyard/data/detection/record_head.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trainyard/formats/records/tf_example.h"

namespace trainyard::data {
namespace {

constexpr uint64_t kDataBegin = 12;        // of a frame: the length and its checksum
constexpr uint64_t kWindow = 8192;         // bytes read at a time
constexpr uint64_t kSmallEntry = 1 << 16;  // longer features are looked at before they are read
constexpr char kFieldOne = 0x0A;           // field 1, of bytes: features, an entry, and an entry's name

// The data of a record, read as it is asked for. Methods return nothing where the record ends before.
class RecordBytes {
 public:
  RecordBytes(const core::ReadableFile& file, formats::RecordSpan span)
      : file_(file), next_(span.offset + kDataBegin), end_(next_ + span.length) {}

  uint64_t left() const { return end_ - next_; }

  std::optional<char> byte() {
    const std::optional<std::string_view> one = peek(1);
    if (!one) return std::nullopt;
    ++next_;
    return one->front();
  }

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const std::optional<char> next = byte();
      if (!next) return std::nullopt;
      value |= static_cast<uint64_t>(*next & 0x7F) << shift;
      if ((*next & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

  // Returns the next bytes, which stay the next ones. `count` is at most kSmallEntry.
  std::optional<std::string_view> peek(uint64_t count) {
    if (count > left()) return std::nullopt;
    if (next_ < begin_ || next_ + count > begin_ + window_.size()) {
      begin_ = next_;
      window_.resize(static_cast<size_t>(std::min(std::max(count, kWindow), left())));
      file_.read_at(begin_, std::as_writable_bytes(std::span(window_)));
    }
    return std::string_view(window_).substr(static_cast<size_t>(next_ - begin_), static_cast<size_t>(count));
  }

  // `count` is at most left().
  void skip(uint64_t count) { next_ += count; }

  // Appends the next bytes. `count` is at most left().
  void append(uint64_t count, std::string& to) {
    while (count > 0) {
      const uint64_t part = std::min(count, kSmallEntry);
      to += *peek(part);
      skip(part);
      count -= part;
    }
  }

 private:
  const core::ReadableFile& file_;
  uint64_t next_, end_;  // offsets in the file
  std::string window_;
  uint64_t begin_ = 0;  // of window_
};

void append_varint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

// Returns true for an entry that begins with the name of the image's feature.
bool is_image(RecordBytes& record) {
  std::string begin = {kFieldOne, static_cast<char>(formats::kImageEncoded.size())};
  begin += formats::kImageEncoded;
  return record.peek(begin.size()) == begin;
}

// Returns the features; nothing where the encoding is not the usual one.
std::optional<std::string> small_features(RecordBytes& record) {
  if (record.byte() != kFieldOne) return std::nullopt;
  const std::optional<uint64_t> all = record.varint();
  if (all != record.left()) return std::nullopt;
  std::string features;
  while (record.left() > 0) {
    if (record.byte() != kFieldOne) return std::nullopt;
    const std::optional<uint64_t> length = record.varint();
    if (!length || *length > record.left()) return std::nullopt;
    if (*length > kSmallEntry && is_image(record)) {
      record.skip(*length);
      continue;
    }
    features += kFieldOne;
    append_varint(*length, features);
    record.append(*length, features);
  }
  return features;
}

}  // namespace

core::Result<std::string> read_record_head(const core::ReadableFile& file, formats::RecordSpan span) {
  RecordBytes record(file, span);
  if (const std::optional<std::string> features = small_features(record)) {
    std::string example(1, kFieldOne);
    append_varint(features->size(), example);
    return example + *features;
  }
  std::string buffer;
  core::Result<std::string_view> whole = formats::read_tfrecord(file, span, buffer);
  if (!whole.ok()) return whole.error();
  return std::string(whole.value());
}

}  // namespace trainyard::data
