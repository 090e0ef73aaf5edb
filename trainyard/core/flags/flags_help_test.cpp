#include <sstream>

#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/flags_table.h"

namespace trainyard::core {
namespace {

TEST(FlagsHelp, FitsTheTerminal) {
  std::istringstream lines(help_text(small_table(), 60));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
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
  EXPECT_NE(help.find("      adam is not available yet: the adam optimizer.\n"), std::string::npos);
  EXPECT_NE(help.find("      Here: oneDNN is always used.\n"), std::string::npos);
  EXPECT_NE(help.find("      No effect here: barriers are ours.\n"), std::string::npos);
  EXPECT_NE(help.find("(default: gpu if there is one, else cpu)"), std::string::npos);
}

TEST(FlagsHelp, MarkdownGathersAGroupThatSeveralRoomsFill) {
  const std::string page = help_markdown(small_table());
  EXPECT_EQ(page.find("\n## Run\n"), page.rfind("\n## Run\n"));
  EXPECT_NE(page.find("| `spec` | string | a\\|b | a text with a bar. |\n"), std::string::npos);
  EXPECT_NE(page.find("| `optimizer` | momentum \\| sgd \\| adam | sgd | the optimizer. adam is not available yet: the "
                      "adam optimizer. |\n"),
            std::string::npos);
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

}  // namespace
}  // namespace trainyard::core
