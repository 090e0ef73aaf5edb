#include "trainyard/core/base/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainyard/core/base/enum_name.h"

namespace trainyard::core {
namespace {

// Names may come from untrusted files: characters that would move the cursor, colour the terminal or begin a new line
// become '?'.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

std::string compose(const ErrorDetail& detail) {
  std::string text = detail.problem;
  if (!detail.where.empty()) text += ": " + printable(detail.where);
  if (!detail.expected.empty()) text += ": expected " + printable(detail.expected);
  if (!detail.actual.empty()) text += (detail.expected.empty() ? ": got " : ", got ") + printable(detail.actual);
  if (!detail.remedy.empty()) text += "; " + detail.remedy;
  return text;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  return enum_name<ErrorCode::kInternal>(code, {"invalid_argument", "not_found", "corrupt_data", "io", "no_space",
                                                "timeout", "cancelled", "peer_failed", "unsupported", "internal"});
}

int exit_code(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported ? 2 : 1;
}

Error::Error(ErrorCode code, ErrorDetail detail)
    : std::runtime_error(compose(detail)), code_(code), detail_(std::move(detail)) {}

Error Error::in(std::string_view where) const {
  ErrorDetail detail = detail_;
  detail.where = detail.where.empty() ? std::string(where) : std::string(where) + ": " + detail.where;
  return {code_, std::move(detail)};
}

Error system_error(int error_number, std::string_view operation, std::string_view path) {
  ErrorCode code = ErrorCode::kIo;
  std::string remedy;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      code = ErrorCode::kNoSpace;
      remedy = "free some space, or choose another place";
      break;
    case ENOENT:
      code = ErrorCode::kNotFound;
      remedy = "check the path";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      remedy = "check the permissions, or choose another place";
      break;
    default:
      break;
  }
  return {code,
          {.problem = std::string(operation) + " failed",
           .where = std::string(path),
           .actual = std::strerror(error_number),
           .remedy = std::move(remedy)}};
}

}  // namespace trainyard::core
