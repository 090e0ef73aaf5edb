#include "trainyard/data/detection/plain_detections.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::data {
namespace {

constexpr uint64_t kPartBytes = uint64_t{8} << 20;  // of the file at a time
constexpr size_t kPieceBytes = size_t{64} << 10;    // the least that is worth a thread

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads JSON from left to right. Every function returns false, and what it leaves is not to be used, where the text is
// not what it reads.
class PlainReader {
 public:
  explicit PlainReader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool at_end() {
    skip_space();
    return at_ == end_;
  }

  bool take(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool detection(CocoDetection& found) {
    if (!take('{')) return false;
    unsigned fields = 0;
    do {
      unsigned field = 0;
      if (!key(field) || (fields & field) != 0 || !take(':') || !value(field, found)) return false;
      fields |= field;
    } while (take(','));
    return fields == kAll && take('}');
  }

 private:
  enum : unsigned { kImage = 1, kCategory = 2, kBox = 4, kScore = 8, kAll = 15 };

  void skip_space() {
    while (at_ != end_ && is_space(*at_)) ++at_;
  }

  bool key(unsigned& field) {
    if (!take('"')) return false;
    const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
    for (const auto& [name, bit] : {std::pair{std::string_view("image_id\""), +kImage},
                                    {"category_id\"", +kCategory},
                                    {"bbox\"", +kBox},
                                    {"score\"", +kScore}}) {
      if (!rest.starts_with(name)) continue;
      at_ += name.size();
      field = bit;
      return true;
    }
    return false;
  }

  bool value(unsigned field, CocoDetection& found) {
    if (field == kImage) return whole(found.image_id);
    if (field == kCategory) return whole(found.category_id);
    if (field == kScore) return number(found.score);
    return take('[') && number(found.x) && take(',') && number(found.y) && take(',') && number(found.width) &&
           take(',') && number(found.height) && take(']');
  }

  // The end of a number of JSON that begins here; null where there is none. `is_whole` is false for one with a fraction
  // or an exponent.
  const char* end_of_number(bool& is_whole) const {
    const char* at = at_;
    const auto digits = [&] {
      const char* const begin = at;
      while (at != end_ && is_digit(*at)) ++at;
      return at != begin;
    };
    is_whole = true;
    if (at != end_ && *at == '-') ++at;
    const char* const first = at;
    if (!digits() || (*first == '0' && at - first > 1)) return nullptr;
    if (at != end_ && *at == '.') {
      is_whole = false;
      ++at;
      if (!digits()) return nullptr;
    }
    if (at != end_ && (*at == 'e' || *at == 'E')) {
      is_whole = false;
      ++at;
      if (at != end_ && (*at == '+' || *at == '-')) ++at;
      if (!digits()) return nullptr;
    }
    return at;
  }

  template <typename Number>
  bool read(const char* end, Number& number) {
    const auto [stop, error] = std::from_chars(at_, end, number);
    at_ = end;
    return error == std::errc() && stop == end;
  }
  bool number(double& value) {
    skip_space();
    bool is_whole = false;
    const char* const end = end_of_number(is_whole);
    return end != nullptr && read(end, value);
  }
  bool whole(int64_t& value) {
    skip_space();
    bool is_whole = false;
    const char* const end = end_of_number(is_whole);
    return end != nullptr && is_whole && read(end, value);
  }

  const char* at_;
  const char* end_;
};

// Objects with a comma before each.
bool read_piece(std::string_view text, std::vector<CocoDetection>& found) {
  PlainReader reader(text);
  while (!reader.at_end()) {
    if (!reader.take(',') || !reader.detection(found.emplace_back())) return false;
  }
  return true;
}

// The same, whose pieces are read at the same time.
bool read_objects(std::string_view text, int threads, std::vector<CocoDetection>& found) {
  std::vector<std::string_view> pieces;
  const size_t least = std::max(kPieceBytes, text.size() / static_cast<size_t>(threads) + 1);
  while (!text.empty()) {
    const size_t end = text.size() <= least ? std::string_view::npos : text.find('}', least);
    const size_t bytes = end == std::string_view::npos ? text.size() : end + 1;
    pieces.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  std::vector<std::vector<CocoDetection>> read(pieces.size());
  std::atomic<bool> good = true;
  core::for_each_parallel(pieces.size(), threads, [&](size_t i) {
    if (!read_piece(pieces[i], read[i])) good = false;
  });
  if (!good) return false;
  for (const std::vector<CocoDetection>& part : read) found.insert(found.end(), part.begin(), part.end());
  return true;
}

}  // namespace

std::optional<std::vector<CocoDetection>> read_plain_detections(const std::string& path, core::FileSystem& files) {
  const std::unique_ptr<core::ReadableFile> file = files.open_read(path);
  const int threads = core::available_cores();
  std::vector<CocoDetection> found;
  std::string text;  // what is not read yet
  bool begun = false;
  for (uint64_t offset = 0; offset < file->size();) {
    const auto bytes = static_cast<size_t>(std::min(kPartBytes, file->size() - offset));
    const size_t before = text.size();
    text.resize(before + bytes);
    file->read_at(offset, std::as_writable_bytes(std::span(text).subspan(before)));
    offset += bytes;
    if (!begun) {
      const size_t first = text.find_first_not_of(" \n\t\r");
      if (first == std::string::npos || text[first] != '[') return std::nullopt;
      text[first] = ',';  // before the first object, as before the others
      begun = true;
    }
    const size_t last = text.rfind('}');
    if (last == std::string::npos) {
      // The file is an empty list, or not one of objects.
      if (offset < file->size()) return std::nullopt;
      break;
    }
    if (!read_objects(std::string_view(text).substr(0, last + 1), threads, found)) return std::nullopt;
    text.erase(0, last + 1);
  }
  PlainReader rest(text);
  if (found.empty() && !rest.take(',')) return std::nullopt;
  if (!rest.take(']') || !rest.at_end()) return std::nullopt;
  return found;
}

}  // namespace trainyard::data
