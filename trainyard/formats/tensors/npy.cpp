#include "trainyard/formats/tensors/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/formats/containers/corrupt_file.h"
#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::formats {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
// NumPy's own limit for files that are not trusted is 10,000; headers of plain arrays have about 100.
constexpr uint64_t kMaxNpyHeaderBytes = 65536;
constexpr size_t kMaxNpyDimensions = 32;  // NumPy's own

core::Error corrupt_npy(const core::ReadableFile& file, uint64_t offset, std::string problem, std::string expected = "",
                        std::string actual = "") {
  return corrupt_file(file, offset,
                      {.problem = std::move(problem),
                       .expected = std::move(expected),
                       .actual = std::move(actual),
                       .remedy = "write the file again with numpy.save"});
}

// Reads the header's text: a Python dictionary of strings, booleans and tuples of integers.
class HeaderParser {
 public:
  HeaderParser(const core::ReadableFile& file, uint64_t offset, std::string_view text)
      : file_(file), offset_(offset), text_(text) {}

  struct Header {
    std::optional<std::string> type;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
  };

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        header.type = string();
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
      } else if (key == "shape") {
        header.shape = tuple();
      } else {
        throw error("a key of descr, fortran_order and shape");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (place_ != text_.size()) throw error("the end of the header");
    if (!header.type || !header.fortran_order || !header.shape) throw error("descr, fortran_order and shape");
    return header;
  }

 private:
  core::Error error(std::string expected) const {
    return corrupt_npy(file_, offset_ + place_, "header of the array is malformed", std::move(expected),
                       place_ < text_.size() ? fmt::format("\"{}\"", printable(text_.substr(place_, 20))) : "its end");
  }

  static std::string printable(std::string_view text) {
    std::string result(text);
    std::replace_if(
        result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return result;
  }

  void skip_space() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) ++place_;
  }

  bool accept(char c) {
    skip_space();
    if (place_ == text_.size() || text_[place_] != c) return false;
    ++place_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) throw error(fmt::format("'{}'", c));
  }

  std::string string() {
    expect('\'');
    const size_t end = text_.find('\'', place_);
    if (end == std::string_view::npos) throw error("a string's end");
    std::string value(text_.substr(place_, end - place_));
    place_ = end + 1;
    return value;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(place_).starts_with(word)) {
        place_ += word.size();
        return value;
      }
    }
    throw error("True or False");
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t value = 0;
      const auto [end, failure] = std::from_chars(text_.data() + place_, text_.data() + text_.size(), value);
      if (failure != std::errc() || value < 0) throw error("a size that is not negative");
      if (values.size() == kMaxNpyDimensions) throw error(fmt::format("at most {} dimensions", kMaxNpyDimensions));
      values.push_back(value);
      place_ = end - text_.data();
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  const core::ReadableFile& file_;
  const uint64_t offset_;
  const std::string_view text_;
  size_t place_ = 0;
};

NpyType parse_type(const core::ReadableFile& file, const std::string& code) {
  for (const NpyType type : {NpyType::kUint8, NpyType::kInt64, NpyType::kFloat32, NpyType::kFloat64}) {
    if (code == npy_type_code(type)) return type;
  }
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "array is of a type that is not read",
                                                    .where = file.path(),
                                                    .expected = "little-endian uint8, int64, float32 or float64",
                                                    .actual = fmt::format("'{}'", code),
                                                    .remedy = "convert it, as with x.astype('float32')"});
}

// Bytes of an array, nothing when they do not fit in 63 bits.
std::optional<uint64_t> array_bytes(std::span<const int64_t> shape, NpyType type) {
  int64_t bytes = static_cast<int64_t>(npy_type_bytes(type));
  // An array with a 0 in its shape is empty whatever its other sizes are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace

std::string_view npy_type_name(NpyType type) {
  constexpr std::array<std::string_view, 4> kNames = {"uint8", "int64", "float32", "float64"};
  return kNames.at(static_cast<size_t>(type));
}

std::string_view npy_type_code(NpyType type) {
  constexpr std::array<std::string_view, 4> kCodes = {"|u1", "<i8", "<f4", "<f8"};
  return kCodes.at(static_cast<size_t>(type));
}

size_t npy_type_bytes(NpyType type) {
  constexpr std::array<size_t, 4> kBytes = {1, 8, 4, 8};
  return kBytes.at(static_cast<size_t>(type));
}

void NpyArray::check_type(NpyType asked) const {
  if (type == asked) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "array is of another type",
                     .expected = std::string(npy_type_name(asked)),
                     .actual = std::string(npy_type_name(type)),
                     .remedy = fmt::format("convert it, as with x.astype('{}')", npy_type_name(asked))});
}

NpyArray read_npy(const core::ReadableFile& file) {
  std::array<char, 12> start{};
  const size_t available = std::min<uint64_t>(start.size(), file.size());
  file.read_at(0, std::as_writable_bytes(std::span(start.data(), available)));
  if (available < 10 || std::string_view(start.data(), kNpyMagic.size()) != kNpyMagic) {
    throw corrupt_npy(file, 0, "file is no NumPy array", "\"\\x93NUMPY\" and a version");
  }
  const int version = static_cast<unsigned char>(start[6]);
  if ((version != 1 && version != 2) || start[7] != 0) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "version of the NumPy file is not read",
                       .where = file.path(),
                       .expected = "1.0 or 2.0",
                       .actual = fmt::format("{}.{}", version, static_cast<unsigned char>(start[7])),
                       .remedy = "write the file again with numpy.save"});
  }
  const uint64_t header_at = version == 1 ? 10 : 12;
  if (file.size() < header_at) {
    throw corrupt_npy(file, 8, "file ends within the length of its header", fmt::format("{} bytes", header_at),
                      fmt::format("{}", file.size()));
  }
  const uint64_t header_bytes =
      version == 1 ? load_little_endian<uint16_t>(start.data() + 8) : load_little_endian<uint32_t>(start.data() + 8);
  const uint64_t limit = std::min(kMaxNpyHeaderBytes, file.size() - header_at);
  if (header_bytes > limit) {
    throw corrupt_npy(file, 8, "header of the array is too long", fmt::format("at most {} bytes", limit),
                      fmt::format("{}", header_bytes));
  }
  std::string text(header_bytes, '\0');
  file.read_at(header_at, std::as_writable_bytes(std::span(text)));
  const HeaderParser::Header header = HeaderParser(file, header_at, text).parse();

  NpyArray array{.type = parse_type(file, *header.type), .shape = *header.shape, .bytes = {}};
  const uint64_t data_at = header_at + header_bytes;
  const std::optional<uint64_t> bytes = array_bytes(array.shape, array.type);
  if (!bytes || *bytes != file.size() - data_at) {
    throw corrupt_npy(file, data_at, "size of the file is not that of its array",
                      fmt::format("{} bytes for {} of shape [{}]", bytes ? fmt::format("{}", *bytes) : "too many",
                                  npy_type_name(array.type), fmt::join(array.shape, ", ")),
                      fmt::format("{}", file.size() - data_at));
  }
  const auto longer_than_one = std::count_if(array.shape.begin(), array.shape.end(), [](int64_t n) { return n != 1; });
  if (*header.fortran_order && longer_than_one > 1) {
    throw core::Error(
        core::ErrorCode::kUnsupported,
        {.problem = "array is in Fortran order", .where = file.path(), .remedy = "save numpy.ascontiguousarray(x)"});
  }
  array.bytes.resize(*bytes);
  file.read_at(data_at, array.bytes);
  return array;
}

std::string encode_npy_header(NpyType type, std::span<const int64_t> shape, size_t count) {
  const bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; });
  const std::optional<uint64_t> bytes = negative ? std::nullopt : array_bytes(shape, type);
  if (bytes != uint64_t{count} * npy_type_bytes(type)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "shape is not that of the values",
                                                          .expected = fmt::format("{} values", count),
                                                          .actual = fmt::format("shape [{}]", fmt::join(shape, ", "))});
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", npy_type_code(type),
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kPrefixBytes = 10;
  constexpr size_t kAlignment = 64;
  const size_t unpadded = kPrefixBytes + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string content(kNpyMagic);
  content += '\x01';
  content += '\x00';
  append_little_endian(content, static_cast<uint16_t>(header.size()));
  return content + header;
}

}  // namespace trainyard::formats
