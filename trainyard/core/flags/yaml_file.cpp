#include "trainyard/core/flags/yaml_file.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::core {
namespace {

constexpr uint64_t kMostYamlBytes = 1 << 20;

// Returns the text with a comment behind its last line break. yaml-cpp takes a quoted text that never ends where the
// file ends with a line break, as a file that was cut may; the comment is then part of that text, and an error.
std::string with_last_line(std::string text) {
  if (text.ends_with('\n')) text += "# end of file";
  return text;
}

}  // namespace

YAML::Node load_yaml_file(const std::string& path, std::string_view what) {
  try {
    const std::vector<YAML::Node> documents =
        YAML::LoadAll(with_last_line(local_file_system().read_file(path, kMostYamlBytes)));
    if (documents.size() > 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("{} holds more than one YAML document", what), .where = path});
    }
    return documents.empty() ? YAML::Node() : documents.front();
  } catch (const YAML::Exception& error) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not valid YAML: {}", what, error.msg),
                                              .where = yaml_place(path, error.mark)});
  }
}

std::string yaml_place(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? path : fmt::format("{}:{}", path, mark.line + 1);
}

}  // namespace trainyard::core
