#include <sstream>

#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core::flags_help_test {
namespace {

TEST(FlagsHelp, FitsTheTerminal) {
  std::istringstream lines(help_text(small_table(), 60));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
}

TEST(FlagsHelp, ALineMayBeAsWideAsTheTerminal) {
  FlagTable table;
  table.text("name", std::nullopt, "aaaa bbbb cccc").group("Run");
  EXPECT_EQ(help_text(table, 15), "Run\n  --name=<string>\n  (default: not\n  set)\n      aaaa bbbb\n      cccc.\n");
  EXPECT_EQ(help_text(table, 14),
            "Run\n  --name=<string>\n  (default:\n  not set)\n      aaaa\n      bbbb\n      cccc.\n");
}

TEST(FlagsHelp, ShowsEveryFlagOnceWithItsDefaultAndDisposition) {
  const FlagTable table = small_table();
  const std::string help = help_text(table);
  for (const FlagSpec& spec : table.all()) {
    const std::string opening = (spec.kind == FlagKind::kBoolean ? "  --[no]" : "  --") + spec.name;
    const size_t at = help.find(opening + (spec.kind == FlagKind::kBoolean ? " " : "="));
    ASSERT_NE(at, std::string::npos) << spec.name;
    EXPECT_EQ(help.find(opening + " (", at + 1), std::string::npos) << spec.name;
  }
  EXPECT_NE(help.find("  --momentum=<float, at least 0, at most 1> (default: 0.9)\n      momentum.\n"),
            std::string::npos);
  EXPECT_NE(help.find("      Here: oneDNN is always used.\n"), std::string::npos);
  EXPECT_NE(help.find("      No effect here: barriers are ours.\n"), std::string::npos);
  EXPECT_NE(help.find("(default: gpu if there is one, else cpu)"), std::string::npos);
}

TEST(FlagsHelp, MarkdownGathersAGroupThatSeveralRoomsFill) {
  const std::string page = help_markdown(small_table());
  EXPECT_EQ(page.find("\n## Run\n"), page.rfind("\n## Run\n"));
  EXPECT_NE(page.find("| `spec` | string | a\\|b | a text with a bar. |\n"), std::string::npos);
  EXPECT_NE(page.find("| `optimizer` | momentum \\| sgd \\| adam | sgd | the optimizer. |\n"), std::string::npos);
}

TEST(FlagsHelp, MarkdownNamesOtherDefaultsWhereTheyDiffer) {
  const FlagTable table = small_table();
  FlagTable friendly = small_table();
  friendly.set_default("eval", "true");
  friendly.set_default("device", "cpu");
  const std::string page = help_markdown(table, {.command = "friendly", .table = &friendly});
  EXPECT_NE(page.find("| `eval` | boolean | false; `friendly`: true | evaluate. |\n"), std::string::npos);
  EXPECT_NE(page.find("| gpu if there is one, else cpu; `friendly`: cpu |"), std::string::npos);
  EXPECT_NE(page.find("| `normalize` | boolean | true | "), std::string::npos);
  EXPECT_EQ(flag_error_of([&] { friendly.set_default("evil", "1"); }).code, "internal");
  EXPECT_EQ(flag_error_of([&] { friendly.set_default("momentum", "2"); }).code, "invalid_argument");
}

TEST(FlagsHelp, OfSomeFlagsInTheOrderAskedFor) {
  FlagTable table;
  table.integer("one", 1, "the first").group("A");
  table.boolean("two", false, "the second").group("B");
  table.text("three", std::nullopt, "the third").group("A");
  EXPECT_EQ(help_text(table, std::vector<std::string>{"two", "one"}),
            "  --[no]two (default: false)\n      the second.\n  --one=<integer> (default: 1)\n      the first.\n");
  EXPECT_THROW(static_cast<void>(help_text(table, std::vector<std::string>{"four"})), Error);
}

TEST(FlagsHelp, SuggestsWhatOtherProgramsCallAFlag) {
  FlagTable table;
  table.real("init_learning_rate", std::nullopt, "the rate");
  table.text("train_dir", std::nullopt, "the run's folder");
  table.suggest("lr", "init_learning_rate");
  table.suggest("output_dir", "train_dir");
  EXPECT_EQ(table.suggestion("lr"), "init_learning_rate");
  EXPECT_EQ(table.suggestion("output-dir"), "train_dir");
  EXPECT_EQ(table.suggestion("train_dirs"), "train_dir") << "the nearest name, else";
  FlagValues values(table);
  try {
    values.set("lr", "0.1", FlagSource::kCommandLine);
    ADD_FAILURE() << "an unknown flag was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Unknown flag 'lr'; did you mean --init_learning_rate?");
  }
  EXPECT_THROW(table.suggest("rate", "no_such_flag"), Error);
  EXPECT_THROW(table.suggest("train_dir", "init_learning_rate"), Error);
}

// One flag of each kind, and all dispositions and rules.
FlagTable table_of_all() {
  FlagTable table;
  table.integer("count", 3, "how many").group("A").bounds(1, 9).word("auto").short_form('c');
  table.boolean("quick", std::nullopt, "be quick").group("A").translated("always").short_form('q');
  table.choice("mode", "", {"", "a|b"}, "the mode").group("B");
  table.list("names", "some names.").group("A").warned("all are taken");
  table.text("folder", "", "a folder").group("B");
  table.real("rate", std::nullopt, "a rate").group("B").above(0).below(1).automatic("by the model");
  return table;
}

TEST(FlagsHelp, WritesAllOfEachKindAndDisposition) {
  EXPECT_EQ(help_text(table_of_all(), 100),
            "A\n"
            "  --count=<integer or auto, at least 1, at most 9>, -c (default: 3)\n      how many.\n"
            "  --[no]quick, -q (default: not set)\n      be quick.\n      Here: always.\n"
            "  --names=<list> (default: empty)\n      some names.\n      No effect here: all are taken.\n"
            "\nB\n"
            "  --mode=<'' | a|b> (default: '')\n      the mode.\n"
            "  --folder=<string> (default: '')\n      a folder.\n"
            "  --rate=<float, above 0, below 1> (default: by the model)\n      a rate.\n");
}

TEST(FlagsHelp, MarkdownHasAllOfEachKindAndDisposition) {
  const std::string page = help_markdown(table_of_all(), {});
  EXPECT_EQ(page.substr(0, 9), "# Flags\n\n");
  const std::string head = "\n\n| flag | type | default | meaning |\n|---|---|---|---|\n";
  EXPECT_EQ(page.substr(page.find("\n## ")),
            "\n## A" + head +
                "| `count`, -c | integer or auto, at least 1, at most 9 | 3 | how many. |\n"
                "| `quick`, -q | boolean | not set | be quick. Here: always. |\n"
                "| `names` | list | empty | some names. No effect here: all are taken. |\n"
                "\n## B" +
                head +
                "| `mode` | '' \\| a\\|b | '' | the mode. |\n"
                "| `folder` | string | '' | a folder. |\n"
                "| `rate` | float, above 0, below 1 | by the model | a rate. |\n");
}

}  // namespace
}  // namespace trainyard::core::flags_help_test
