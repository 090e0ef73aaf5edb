// What tests look at of the error that a call throws.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

}  // namespace trainyard::core
