// Manual pages in man(7)'s macros, made of the flags' declarations.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command_description.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::cli {
namespace {

using core::FlagKind;
using core::FlagSpec;

// Returns text that roff prints as it is: no macro at the beginning of a line, dashes that can be copied.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c == '\n' ? ' ' : c;
    }
  }
  if (result.starts_with('.') || result.starts_with('\'')) result.insert(0, "\\&");
  return result;
}

std::string page_name(std::string_view command) {
  std::string name = "trainyard-";
  for (const char c : command) name += c == ' ' ? '-' : c;
  return name;
}

std::string heading(const std::string& name, std::string_view summary, std::string_view version) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format(".TH \"{}\" 1 \"\" \"Trainyard {}\" \"Trainyard\"\n.ad l\n.nh\n.SH NAME\n{} \\- {}\n", roff(upper),
                     roff(version), roff(name), roff(summary));
}

// Returns the flag with what it takes: "--batch_size=integer", "--[no]json", "--optimizer=momentum|sgd".
std::string flag_title(const FlagSpec& flag) {
  std::string title;
  if (flag.short_name) title = fmt::format("\\fB\\-{}\\fR, ", *flag.short_name);
  if (flag.kind == FlagKind::kBoolean) {
    return title +
           (flag.name == "help" ? "\\fB\\-\\-help\\fR" : fmt::format("\\fB\\-\\-\\fR[no]\\fB{}\\fR", roff(flag.name)));
  }
  title += fmt::format("\\fB\\-\\-{}\\fR=", roff(flag.name));
  if (flag.kind != FlagKind::kChoice) return title + fmt::format("\\fI{}\\fR", flag_kind_name(flag.kind));
  std::vector<std::string> choices;
  for (const std::string& choice : flag.choices) choices.push_back("\\fB" + roff(choice) + "\\fR");
  return title + fmt::format("{}", fmt::join(choices, "|\\:"));  // a line may break there
}

std::string flag_text(const FlagSpec& flag) {
  std::string text = fmt::format(".TP\n{}\n{}", flag_title(flag), roff(flag.help));
  if (flag.kind == FlagKind::kBoolean && flag.name == "help") return text + ".\n";
  const std::string value = core::format_flag_value(flag.default_value);
  if (!flag.automatic_rule.empty()) {
    text += ". Default: " + roff(flag.automatic_rule);
  } else if (!std::holds_alternative<std::monostate>(flag.default_value) && !value.empty()) {
    text += ". Default: " + roff(value);
  }
  return text + ".\n";
}

std::string flags_by_group(const core::FlagTable& table) {
  std::vector<std::string> groups;
  for (const FlagSpec& flag : table.all()) {
    if (std::find(groups.begin(), groups.end(), flag.group_name) == groups.end()) groups.push_back(flag.group_name);
  }
  std::string text = ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (!group.empty()) text += fmt::format(".SS \"{}\"\n", roff(group));
    for (const FlagSpec& flag : table.all()) {
      if (flag.group_name == group) text += flag_text(flag);
    }
  }
  return text;
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n\\fB0\\fR\nThe command has done its work.\n"
    ".TP\n\\fB1\\fR\nIt failed: data, files, memory.\n"
    ".TP\n\\fB2\\fR\nA flag, a name or a value is wrong, or is not available in this build.\n"
    ".TP\n\\fB75\\fR\nA signal has stopped it, and it has saved its work; the same command continues.\n";

std::string page_of(const CommandDescription& command, std::string_view version) {
  const std::string name = page_name(command.name);
  std::string text = heading(name, command.summary, version);
  text += fmt::format(".SH SYNOPSIS\n\\fBtrainyard {}\\fR [\\fB\\-\\-flag\\fR=\\fIvalue\\fR ...]{}\n",
                      roff(command.name), command.positional.empty() ? "" : " " + roff(command.positional));
  return text + flags_by_group(command.flags) + kExitStatus + ".SH SEE ALSO\n.BR trainyard (1)\n";
}

std::string page_of_program(std::span<const CommandDescription> commands, std::string_view version) {
  std::string text = heading("trainyard", "train and benchmark image classifiers", version);
  text +=
      ".SH SYNOPSIS\n\\fBtrainyard\\fR \\fIcommand\\fR [\\fB\\-\\-flag\\fR=\\fIvalue\\fR ...]\n"
      ".SH DESCRIPTION\nEach command has a page of its own, and takes \\fB\\-\\-help\\fR.\n.SH COMMANDS\n";
  for (const CommandDescription& command : commands) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}.\n", roff(command.name), roff(command.summary));
  }
  text += kExitStatus + std::string(".SH SEE ALSO\n");
  for (size_t i = 0; i < commands.size(); ++i) {
    text += fmt::format(".BR {} (1){}\n", roff(page_name(commands[i].name)), i + 1 < commands.size() ? "," : "");
  }
  return text;
}

}  // namespace

std::vector<ManualPage> manual_pages(std::span<const CommandDescription> commands, std::string_view version) {
  std::vector<ManualPage> pages{{"trainyard.1", page_of_program(commands, version)}};
  for (const CommandDescription& command : commands) {
    pages.push_back({page_name(command.name) + ".1", page_of(command, version)});
  }
  return pages;
}

}  // namespace trainyard::cli
