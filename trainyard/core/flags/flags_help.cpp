// Help for a terminal and the reference page, both from the declarations.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::core {
namespace {

struct Group {
  std::string name;
  std::vector<const FlagSpec*> flags;
};

// Groups in order of their first flag; a group may be filled by several rooms.
std::vector<Group> groups_of(const FlagTable& table) {
  std::vector<Group> groups;
  for (const FlagSpec& spec : table.all()) {
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.name == spec.group_name; });
    if (found == groups.end()) found = groups.insert(groups.end(), Group{spec.group_name, {}});
    found->flags.push_back(&spec);
  }
  return groups;
}

// Behind the flag's form: ", -b".
std::string short_description(const FlagSpec& spec) {
  return spec.short_name ? fmt::format(", -{}", *spec.short_name) : "";
}

std::string value_description(const FlagSpec& spec) {
  std::string text(flag_kind_name(spec.kind));
  if (spec.kind == FlagKind::kChoice) {
    std::vector<std::string> shown = spec.choices;
    for (std::string& choice : shown) choice = choice.empty() ? "''" : choice;
    return fmt::format("{}", fmt::join(shown, " | "));
  }
  for (const std::string& word : spec.words) text += " or " + word;
  if (spec.lower_bound) text += fmt::format(", {} {}", spec.above_lower ? "above" : "at least", *spec.lower_bound);
  if (spec.upper_bound) text += fmt::format(", {} {}", spec.below_upper ? "below" : "at most", *spec.upper_bound);
  return text;
}

std::string default_description(const FlagSpec& spec) {
  if (!spec.automatic_rule.empty()) return spec.automatic_rule;
  if (std::holds_alternative<std::monostate>(spec.default_value)) return "not set";
  const std::string text = format_flag_value(spec.default_value);
  return text.empty() ? (spec.kind == FlagKind::kList ? "empty" : "''") : text;
}

// What becomes of the flag, in one sentence. Empty for a flag whose meaning is simply the documented one.
std::string note_sentence(const FlagSpec& spec) {
  switch (spec.disposition) {
    case Disposition::kImplemented:
      break;
    case Disposition::kTranslated:
      return "Here: " + spec.note + ".";
    case Disposition::kWarned:
      return "No effect here: " + spec.note + ".";
  }
  return "";
}

std::string sentence(const std::string& help) {
  return help.ends_with('.') ? help : help + '.';
}

// Words of `text` in lines of at most `width` columns, each after `indent` blanks.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string result, line;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      result += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  return result + std::string(indent, ' ') + line + "\n";
}

// '|' would end a table's cell.
std::string cell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.replace(at, 1, "\\|");
  return text;
}

}  // namespace

namespace {

std::string flag_help(const FlagSpec& spec, size_t width) {
  std::string result =
      spec.kind == FlagKind::kBoolean
          ? fmt::format("  --[no]{}{} (default: {})\n", spec.name, short_description(spec), default_description(spec))
          : wrapped(fmt::format("--{}=<{}>{} (default: {})", spec.name, value_description(spec),
                                short_description(spec), default_description(spec)),
                    2, width);
  result += wrapped(sentence(spec.help), 6, width);
  if (const std::string note = note_sentence(spec); !note.empty()) result += wrapped(note, 6, width);
  return result;
}

}  // namespace

std::string help_text(const FlagTable& table, size_t width) {
  std::string result;
  for (const Group& group : groups_of(table)) {
    result += fmt::format("{}{}\n", result.empty() ? "" : "\n", group.name);
    for (const FlagSpec* spec : group.flags) result += flag_help(*spec, width);
  }
  return result;
}

std::string help_text(const FlagTable& table, const std::vector<std::string>& names, size_t width) {
  std::string result;
  for (const std::string& name : names) {
    const FlagSpec* const spec = table.find(name);
    if (spec == nullptr) throw Error(ErrorCode::kInternal, fmt::format("help of a flag {} that is not there", name));
    result += flag_help(*spec, width);
  }
  return result;
}

std::string help_markdown(const FlagTable& table, const OtherDefaults& other) {
  const auto defaults = [&](const FlagSpec& spec) {
    std::string text = default_description(spec);
    if (other.table == nullptr) return text;
    const std::string others = default_description(*other.table->find(spec.name));
    return others == text ? text : fmt::format("{}; `{}`: {}", text, other.command, others);
  };
  std::string result =
      "# Flags\n\n"
      "Made by `trainyard help --markdown`; edit the declarations (`flags.cpp` of each room), not this page.\n\n"
      "A flag is written `--name=value` or `--name value`; a boolean `--name`, `--noname` or `--name=false`. The same\n"
      "names work in a YAML file given with `--config`; the command line stands over the file, the file over the "
      "default.\n";
  for (const Group& group : groups_of(table)) {
    result += fmt::format("\n## {}\n\n| flag | type | default | meaning |\n|---|---|---|---|\n", group.name);
    for (const FlagSpec* spec : group.flags) {
      std::string meaning = sentence(spec->help);
      if (const std::string note = note_sentence(*spec); !note.empty()) meaning += " " + note;
      result += fmt::format("| `{}`{} | {} | {} | {} |\n", spec->name, short_description(*spec),
                            cell(value_description(*spec)), cell(defaults(*spec)), cell(meaning));
    }
  }
  return result;
}

}  // namespace trainyard::core
