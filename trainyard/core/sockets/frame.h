// Frames messages between processes on a stream of bytes. A frame is a header of 12 bytes and a body:
//
//   "TYRD"   kind (1 byte)   3 bytes of 0   length of the body (4 bytes, little endian)
//
// The sender is not trusted: an invalid header, or a body that is longer than the reader allows, is an error before any
// memory is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace trainyard::core {

struct Frame {
  uint8_t kind = 0;  // 1 to 255; the users of a connection say what each means
  std::string body;
};

inline constexpr size_t kFrameHeaderBytes = 12;

// Returns the header and the body. Throws kInvalidArgument for kind 0 and for a body of 4 GiB or more.
std::string encode_frame(uint8_t kind, std::string_view body);

// Parses frames from bytes that arrive in pieces. For one thread.
class FrameReader {
 public:
  explicit FrameReader(size_t longest_body) : longest_body_(longest_body) {}

  // Sets the longest body from the next frame on: a peer that has not sent the token may send less.
  void allow(size_t longest_body) { longest_body_ = longest_body; }
  void feed(std::string_view bytes) { bytes_.append(bytes); }
  // Returns the next frame that is complete. Throws kCorruptData for an invalid header or a body that is too long; the
  // stream cannot be read any further then.
  std::optional<Frame> next();

 private:
  size_t longest_body_;
  std::string bytes_;
  size_t taken_ = 0;  // bytes of bytes_ that are parsed
};

// Writes numbers and texts into a body.
class BodyWriter {
 public:
  BodyWriter& number(int64_t value);         // 8 bytes, little endian
  BodyWriter& real(double value);            // its bits, as a number
  BodyWriter& text(std::string_view value);  // its length as a number, then its bytes
  std::string take() { return std::move(body_); }

 private:
  std::string body_;
};

// Reads them in the same order. Throws kCorruptData when the body ends too early.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}

  int64_t number();
  double real();
  std::string text();
  // Throws kCorruptData when bytes are left.
  void end() const;

 private:
  std::string_view rest_;
};

}  // namespace trainyard::core
