#include "trainyard/core/flags/yaml_file.h"

#include <sstream>
#include <string>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

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

// Takes a document without keeping anything of it.
class IgnoredDocument : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// Returns true when a second document follows. Looks no further: for a text such as "," yaml-cpp finds empty documents
// without end, and its LoadAll() keeps them until memory is exhausted.
bool has_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  IgnoredDocument ignored;
  return parser.HandleNextDocument(ignored) && parser.HandleNextDocument(ignored);
}

}  // namespace

YAML::Node load_yaml_file(const std::string& path, std::string_view what) {
  try {
    const std::string text = with_last_line(local_file_system().read_file(path, kMostYamlBytes));
    if (has_second_document(text)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("{} holds more than one YAML document", what), .where = path});
    }
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not valid YAML: {}", what, error.msg),
                                              .where = yaml_place(path, error.mark)});
  }
}

std::string yaml_place(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? path : fmt::format("{}:{}", path, mark.line + 1);
}

}  // namespace trainyard::core
