// What tests look at of the error that a call throws.
#pragma once

#include <cctype>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {

// Nothing where no Error is thrown.
inline std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline std::optional<ErrorCode> code_of(const std::function<void()>& call) {
  const std::optional<Error> error = error_of(call);
  return error ? std::optional(error->code()) : std::nullopt;
}

// The test fails where no Error is thrown.
inline Error thrown_by(const std::function<void()>& call) {
  const std::optional<Error> error = error_of(call);
  if (error) return *error;
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kInternal, "none"};
}

inline bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

// The whole message, "no error" where none is thrown. The test fails where the error has another code.
inline std::string message_of(const std::function<void()>& call, ErrorCode code = ErrorCode::kInvalidArgument) {
  const std::optional<Error> error = error_of(call);
  if (!error) return "no error";
  EXPECT_EQ(error->code(), code) << error->what();
  return error->what();
}

// What is wrong with an argument, "" where no error is thrown. The test fails where the error has another code.
inline std::string problem_of(const std::function<void()>& call) {
  const std::optional<Error> error = error_of(call);
  if (!error) return "";
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << error->what();
  return error->detail().problem;
}

// Where the numbers of a text begin, each at its sign or first digit. Digits in names are none: "conv2", "3x3",
// "model.ckpt-5", "a/0001.jpg".
inline std::vector<size_t> places_of_numbers(std::string_view text) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto is_digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  const auto is_hexadecimal = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(i)) continue;
    const bool negative = i > 0 && text[i - 1] == '-';
    const size_t begin = negative ? i - 1 : i;
    while (is_digit(i + 1) || (i + 1 < text.size() && text[i + 1] == '.' && is_digit(i + 2))) ++i;
    const bool after_name =
        begin > 0 && (in_name(text[begin - 1]) || text[begin - 1] == '/' || (!negative && text[begin - 1] == '.'));
    const bool hexadecimal = text[i] == '0' && i + 2 < text.size() && text[i + 1] == 'x' && is_hexadecimal(text[i + 2]);
    const bool before_name = i + 1 < text.size() && in_name(text[i + 1]) && text[i + 1] != 'e' && !hexadecimal;
    if (!after_name && !before_name) places.push_back(begin);
  }
  return places;
}

// Matches a text that has these parts in this order, and no number outside of them: a message is tested with all
// numbers that it tells, so that a wrong one, or two that were changed over, are seen.
//
//   EXPECT_THAT(core::message_of([&] { read(cut); }), core::Says("ends early", "expected 8 bytes, got 5"));
class SaysMatcher {  // has the names that GoogleMock looks for
 public:
  using is_gtest_matcher = void;  // NOLINT(readability-identifier-naming)

  explicit SaysMatcher(std::vector<std::string> parts) : parts_(std::move(parts)) {}

  bool MatchAndExplain(const std::string& text, std::ostream* out) const {  // NOLINT(readability-identifier-naming)
    std::vector<size_t> places = places_of_numbers(text);
    size_t next = 0;
    for (const std::string& part : parts_) {
      const size_t begin = text.find(part, next);
      if (begin == std::string::npos) {
        if (out != nullptr) *out << "which lacks '" << part << "'" << (next > 0 ? " behind the parts before it" : "");
        return false;
      }
      next = begin + part.size();
      std::erase_if(places, [&](size_t place) { return place >= begin && place < next; });
    }
    if (places.empty()) return true;
    if (out != nullptr) *out << "whose number at '" << text.substr(places[0], 20) << "' is in no part";
    return false;
  }
  void DescribeTo(std::ostream* out) const {  // NOLINT(readability-identifier-naming)
    *out << "has no number outside of";
    for (const std::string& part : parts_) *out << " '" << part << "'";
  }
  void DescribeNegationTo(std::ostream* out) const {  // NOLINT(readability-identifier-naming)
    *out << "lacks a part or has a number outside of";
    for (const std::string& part : parts_) *out << " '" << part << "'";
  }

 private:
  std::vector<std::string> parts_;
};

template <typename... Parts>
SaysMatcher Says(const Parts&... parts) {  // NOLINT(readability-identifier-naming): as GoogleMock's matchers
  return SaysMatcher({std::string(parts)...});
}

}  // namespace trainyard::core
