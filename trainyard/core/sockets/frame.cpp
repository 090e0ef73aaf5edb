#include "trainyard/core/sockets/frame.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

constexpr std::string_view kMagic = "TYRD";
constexpr size_t kKindAt = 4, kZerosAt = 5, kLengthAt = 8;
constexpr size_t kForgetTaken = 1 << 16;  // bytes that were read and are still kept

Error corrupt(std::string problem, std::string expected, std::string actual) {
  return {ErrorCode::kCorruptData,
          {.problem = std::move(problem), .expected = std::move(expected), .actual = std::move(actual)}};
}

template <typename Number>
void append(std::string& bytes, Number value) {
  for (size_t i = 0; i < sizeof(Number); ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

template <typename Number>
Number load(std::string_view bytes) {
  Number value = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) value |= Number{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

std::string encode_frame(uint8_t kind, std::string_view body) {
  if (kind == 0 || body.size() > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "this is no message",
                                              .expected = "a kind from 1, a body below 4 GiB",
                                              .actual = fmt::format("kind {}, {} bytes", kind, body.size())});
  }
  std::string frame(kMagic);
  frame.push_back(static_cast<char>(kind));
  frame.append(kLengthAt - kZerosAt, '\0');
  append(frame, static_cast<uint32_t>(body.size()));
  frame.append(body);
  return frame;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(taken_);
  const size_t seen = std::min(rest.size(), kMagic.size());
  if (rest.substr(0, seen) != kMagic.substr(0, seen)) {
    std::string bytes;
    for (const char byte : rest.substr(0, seen)) bytes += fmt::format(" {:02x}", static_cast<uint8_t>(byte));
    throw corrupt("bytes that are no message", "54 59 52 44 (\"TYRD\")", bytes.substr(1));
  }
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  const auto kind = static_cast<uint8_t>(rest[kKindAt]);
  if (kind == 0 || rest.substr(kZerosAt, kLengthAt - kZerosAt).find_first_not_of('\0') != std::string_view::npos) {
    throw corrupt("a message's header makes no sense", "a kind from 1, then three zeros", fmt::format("kind {}", kind));
  }
  const auto length = load<uint32_t>(rest.substr(kLengthAt));
  if (length > longest_body_) {
    throw corrupt("a message is too long", fmt::format("at most {} bytes", longest_body_), std::to_string(length));
  }
  if (rest.size() < kFrameHeaderBytes + length) return std::nullopt;
  Frame frame{.kind = kind, .body = std::string(rest.substr(kFrameHeaderBytes, length))};
  taken_ += kFrameHeaderBytes + length;
  if (taken_ == bytes_.size() || taken_ > kForgetTaken) {
    bytes_.erase(0, taken_);
    taken_ = 0;
  }
  return frame;
}

BodyWriter& BodyWriter::number(int64_t value) {
  append(body_, static_cast<uint64_t>(value));
  return *this;
}

BodyWriter& BodyWriter::real(double value) {
  return number(std::bit_cast<int64_t>(value));
}

BodyWriter& BodyWriter::text(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  body_.append(value);
  return *this;
}

int64_t BodyReader::number() {
  if (rest_.size() < sizeof(int64_t)) {
    throw corrupt("a message ends within a number", "8 bytes", std::to_string(rest_.size()));
  }
  const auto value = static_cast<int64_t>(load<uint64_t>(rest_));
  rest_.remove_prefix(sizeof(int64_t));
  return value;
}

double BodyReader::real() {
  return std::bit_cast<double>(number());
}

std::string BodyReader::text() {
  const int64_t length = number();
  if (length < 0 || static_cast<uint64_t>(length) > rest_.size()) {
    throw corrupt("a message ends within a text", fmt::format("{} bytes", length), std::to_string(rest_.size()));
  }
  std::string value(rest_.substr(0, static_cast<size_t>(length)));
  rest_.remove_prefix(static_cast<size_t>(length));
  return value;
}

void BodyReader::end() const {
  if (!rest_.empty())
    throw corrupt("a message is longer than its kind", "its end", fmt::format("{} bytes", rest_.size()));
}

}  // namespace trainyard::core
