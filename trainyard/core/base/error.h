// Errors of the library: one exception type, one code, one message order. Errors of a compiler: kRightType.
//
//   throw core::Error(core::ErrorCode::kCorruptData,
//                     {.problem = "record checksum differs",
//                      .where = fmt::format("{} at offset {}", path, offset),
//                      .expected = "crc32c 0x1234abcd", .actual = "0x00000000",
//                      .remedy = "write the file again, or pass --on_bad_sample=skip"});
//
// reads "record checksum differs: train-00000-of-00002 at offset 512: expected crc32c 0x1234abcd, got 0x00000000;
// write the file again, or pass --on_bad_sample=skip". Exceptions end an operation; failures that a caller expects for
// single samples are values (core::Result).
#pragma once

#include <concepts>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

enum class ErrorCode {
  kInvalidArgument,  // the caller's value is wrong: flags, shapes, names
  kNotFound,         // a file, name or checkpoint that should exist does not
  kCorruptData,      // bytes that do not follow their format
  kIo,               // the operating system failed to read or write
  kNoSpace,          // disk or memory is full
  kTimeout,          // a deadline passed
  kCancelled,        // a stop was asked for
  kPeerFailed,       // another replica or rank failed
  kUnsupported,      // known, but not built in or not available yet
  kInternal,         // a defect of this library
};

// Returns the code's name in snake_case, as it is printed and as tests compare it: "invalid_argument", "not_found", ...
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

// Returns the exit code of a process that this error ends: 2 for kInvalidArgument and kUnsupported, else 1.
[[nodiscard]] int exit_code(ErrorCode code);

// The parts of a message, in the order in which they are read. Only `problem` must be given.
struct ErrorDetail {
  std::string problem{};   // what went wrong
  std::string where{};     // file, shard and offset; flag; rank and step
  std::string expected{};  // what was expected
  std::string actual{};    // what was found
  std::string remedy{};    // what the user can do
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, ErrorDetail detail);
  // A template, so that a braced ErrorDetail can never be taken for a string's constructor arguments.
  template <std::convertible_to<std::string> Text>
  Error(ErrorCode code, Text&& problem) : Error(code, ErrorDetail{.problem = std::forward<Text>(problem)}) {}

  ErrorCode code() const { return code_; }
  const ErrorDetail& detail() const { return detail_; }

  // Returns the same error with `where` put in front of the place that it names: "epoch 3: " + where. Callers on the
  // way up add what they know.
  [[nodiscard]] Error in(std::string_view where) const;

 private:
  ErrorCode code_;
  ErrorDetail detail_;
};

// Returns the error of a system call that has just failed: kNoSpace for ENOSPC, EDQUOT and ENOMEM, kNotFound for
// ENOENT, else kIo. `operation` is a verb phrase ("write checkpoint tensor file"), `path` is the file.
[[nodiscard]] Error system_error(int error_number, std::string_view operation, std::string_view path);

// Holds a value, or the error that explains why there is none. For failures that are expected, such as a bad sample.
//
//   core::Result<Image> image = decode(bytes);
//   if (!image.ok()) return image.error();
//   show(image.value());
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Error& error() const { return *error_; }

  // Returns the value. Throws the error when there is none.
  T& value() & {
    if (!value_) throw *error_;
    return *value_;
  }
  T&& value() && {
    if (!value_) throw *error_;
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

// Result of an operation that returns no value: success, written {}, or an error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

  // Throws the error when there is one.
  void value() const {
    if (error_) throw *error_;
  }

 private:
  std::optional<Error> error_;
};

// Makes a static_assert fail in overloads that catch wrong argument types, so that the compiler prints one line of ours
// instead of a list of overloads. False for every type; evaluated only when the template is instantiated.
//
//   void add(std::shared_ptr<Callback> callback);
//   template <typename Wrong>
//     requires(!std::convertible_to<Wrong, std::shared_ptr<Callback>>)
//   void add(Wrong&&) {
//     static_assert(core::kRightType<Wrong>, "add() takes a std::shared_ptr to a class that derives from Callback");
//   }
template <typename...>
inline constexpr bool kRightType = false;

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
