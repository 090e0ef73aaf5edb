#include "trainyard/cli/command_description.h"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/threads/thread_limit.h"

namespace trainyard::cli::command_description_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

const CommandDescription* find(const std::vector<CommandDescription>& commands, const std::string& name) {
  for (const CommandDescription& command : commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

TEST(CommandDescriptions, HoldTheFlagsThatCommandsParse) {
  const std::vector<CommandDescription> commands = describe_commands();
  std::set<std::string> names;
  for (const CommandDescription& command : commands) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name << " twice";
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_NE(command.flags.find("help"), nullptr) << command.name;
  }
  for (const char* name : {"train", "eval", "find-lr", "predict", "data show", "data verify", "bench layers",
                           "bench allreduce", "completion", "help", "launch", "program"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("data"));
  EXPECT_NE(find(commands, "data show")->flags.find("labels_csv"), nullptr);
  EXPECT_NE(find(commands, "find-lr")->flags.find("min_lr"), nullptr);
  EXPECT_NE(find(commands, "find-lr")->flags.find("batch_size"), nullptr);
  EXPECT_EQ(find(commands, "predict")->positional.empty(), false);
}

// Returns groups and flags with their kinds, bounds, choices and defaults, without what they mean.
std::string forms_of(const core::FlagTable& table) {
  const std::string machine = fmt::format("threads=<integer, at least 0, at most {}>", core::most_threads());
  std::istringstream help(core::help_text(table, /*width=*/10'000));
  std::string forms;
  for (std::string line; std::getline(help, line);) {
    if (line.empty() || line.starts_with("      ")) continue;
    if (const size_t at = line.find(machine); at != std::string::npos) {
      line.replace(at, machine.size(), "threads=<integer, at least 0, at most THREADS>");
    }
    forms += line + "\n";
  }
  return forms;
}

// docs/flags.md has those of train and eval, testdata/commands.txt what commands are for.
TEST(CommandDescriptions, FlagsHaveTheirGroupsBoundsAndDefaults) {
  std::string all;
  for (const CommandDescription& command : describe_commands()) {
    const core::FlagSpec* const help = command.flags.find("help");
    ASSERT_NE(help, nullptr) << command.name;
    EXPECT_TRUE(help->default_value == core::FlagValue(false)) << command.name;
    if (command.name == "train" || command.name == "eval") continue;
    all += fmt::format("== {}{}{}\n", command.name, command.positional.empty() ? "" : " ", command.positional);
    if (command.name != "find-lr") {
      all += forms_of(command.flags);
      continue;
    }
    core::FlagTable own;  // the others are train's
    for (const core::FlagSpec& flag : command.flags.all()) {
      if (flag.group_name == "Range test") own.add(flag);
    }
    all += forms_of(own);
  }
  EXPECT_TRUE(core::matches_golden(all, "trainyard/cli/testdata/command_flags.txt"));
}

CommandDescription dangerous() {
  CommandDescription command{.name = "cut", .summary = "it's a `test`: $HOME [a]"};
  command.flags.choice("how", "so", {"so", "that way"}, "one's $choice: [x]").group("A \\ group");
  command.flags.text("to", std::nullopt, ".beginning; 'quoted'").group("A \\ group");
  command.flags.boolean("deep", false, "deeply").group("A \\ group");
  return command;
}

TEST(CompletionScripts, QuoteWhatShellsWouldRead) {
  const std::vector<CommandDescription> commands{dangerous()};
  EXPECT_THAT(completion_script("bash", commands), AllOf(HasSubstr("'cut --how') echo 'so that way' ;;"),
                                                         HasSubstr("'cut') echo '--how= --to= --deep --nodeep' ;;")));
  EXPECT_THAT(completion_script("zsh", commands),
              AllOf(HasSubstr("'cut:it'\\''s a `test`\\: $HOME [a]'"),
                    HasSubstr("'--how=[one'\\''s $choice\\: \\[x\\]]:enum:(so that\\ way)'")));
  EXPECT_THAT(completion_script("fish", commands),
              AllOf(HasSubstr("-d 'it\\'s a `test`: $HOME [a]'"), HasSubstr("-l to -d '.beginning' -r -F")));
  EXPECT_THAT(core::message_of([&] { static_cast<void>(completion_script("csh", commands)); }), HasSubstr("shell"));
}

TEST(ManualPages, EscapeWhatRoffWouldRead) {
  const std::vector<CommandDescription> commands{dangerous()};
  const std::vector<ManualPage> pages = manual_pages(commands, "1.2.3");
  ASSERT_EQ(pages.size(), 2U);
  EXPECT_EQ(pages[0].file, "trainyard.1");
  EXPECT_EQ(pages[1].file, "trainyard-cut.1");
  EXPECT_THAT(
      pages[1].text,
      AllOf(HasSubstr(".TH \"TRAINYARD\\-CUT\" 1 \"\" \"Trainyard 1.2.3\""), HasSubstr(".SS \"A \\e group\""),
            HasSubstr("\n\\&.beginning; 'quoted'.\n"), HasSubstr("\\fB\\-\\-how\\fR=\\fBso\\fR|\\:\\fBthat way\\fR\n"),
            HasSubstr("\\fB\\-\\-\\fR[no]\\fBdeep\\fR\ndeeply. Default: false.\n"), Not(HasSubstr("\n.beginning"))));
  EXPECT_THAT(pages[0].text, HasSubstr(".BR trainyard\\-cut (1)\n"));
}

}  // namespace
}  // namespace trainyard::cli::command_description_test
