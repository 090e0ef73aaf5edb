// Flags from and to YAML: one flat mapping.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/flags/yaml_file.h"

namespace trainyard::core {
namespace {

// These two are about the file itself.
bool belongs_in_file(std::string_view name) {
  return name != "config" && name != "dump_config";
}

Error not_one_value(const std::string& name, const std::string& where) {
  return {ErrorCode::kInvalidArgument,
          {.problem = fmt::format("flag {} in a config file takes one value", name),
           .where = where,
           .remedy = "config files are one flat mapping of `flag: value`"}};
}

// Returns the text of a scalar, or the elements of a sequence of scalars joined by commas; nothing for null.
std::optional<std::string> value_text(const YAML::Node& node, const std::string& name, const std::string& where) {
  if (node.IsNull()) return std::nullopt;
  if (node.IsScalar()) return node.Scalar();
  if (!node.IsSequence()) throw not_one_value(name, where);
  std::vector<std::string> elements;
  for (const YAML::Node& element : node) {
    if (!element.IsScalar()) throw not_one_value(name, where);
    elements.push_back(element.Scalar());
  }
  return fmt::format("{}", fmt::join(elements, ","));
}

// Returns the text in double quotes. Bytes that are no UTF-8, as names of files may hold, stay as they are, which
// yaml-cpp reads as they are; its own emitter would replace them.
std::string quoted_yaml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string yaml_value(const FlagValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted_yaml(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    std::string text;
    for (const std::string& element : *list) text += (text.empty() ? "" : ", ") + quoted_yaml(element);
    return "[" + text + "]";
  }
  return format_flag_value(value);
}

}  // namespace

void read_config_file(const std::string& path, FlagValues& values) {
  const YAML::Node root = load_yaml_file(path, "config file");
  if (root.IsNull()) return;
  if (!root.IsMap()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "config file is not a mapping of `flag: value`", .where = yaml_place(path, root.Mark())});
  }
  std::map<std::string, int> seen;  // flag -> line
  for (const auto& entry : root) {
    const std::string where = yaml_place(path, entry.first.Mark());
    if (!entry.first.IsScalar()) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a key of a config file is not a name", .where = where});
    }
    const std::string& name = entry.first.Scalar();
    const auto [first, inserted] = seen.emplace(name, entry.first.Mark().line + 1);
    if (!inserted) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {.problem = fmt::format("flag {} is given twice, first in line {}", name, first->second), .where = where});
    }
    if (!belongs_in_file(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("flag {} cannot stand in a config file", name), .where = where});
    }
    const std::optional<std::string> text = value_text(entry.second, name, where);
    const FlagSpec* spec = values.table().find(name);
    if (!text && spec != nullptr && std::holds_alternative<std::monostate>(spec->default_value)) continue;
    if (!text && spec != nullptr) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("flag {} has no value", name), .where = where});
    }
    try {
      values.set(name, text.value_or(""), FlagSource::kFile);
    } catch (const Error& error) {
      throw error.in(where);
    }
  }
}

std::string dump_config(const FlagValues& values, bool only_given) {
  std::string result, group;
  for (const FlagSpec& spec : values.table().all()) {
    const bool given = values.given(spec.name);
    if (!belongs_in_file(spec.name) || (only_given && !given)) continue;
    if (spec.group_name != group && !only_given) {
      group = spec.group_name;
      result += fmt::format("{}# {}\n", result.empty() ? "" : "\n", group);
    }
    const FlagValue& value = values.value(spec.name);
    const bool unset = std::holds_alternative<std::monostate>(value);
    const bool automatic = !given && !spec.automatic_rule.empty();
    const std::string text = unset ? "not set" : automatic ? spec.automatic_rule : yaml_value(value);
    // A default that is read back counts as given, and what a run does depends on which flags were given.
    result += fmt::format("{}{}: {}\n", given && !unset ? "" : "# ", spec.name, text);
  }
  return result;
}

}  // namespace trainyard::core
