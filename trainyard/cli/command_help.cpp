#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/flags.h"
#include "trainyard/recipes/benchmark_flags.h"

namespace trainyard::cli {

int run_help(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.boolean("markdown", false, "the reference page docs/flags.md").group("Output");
  const auto parsed = parse_command({"help", "every flag of train and eval, by group", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagTable& flags = recipes::benchmark_flags();
  console.out << (parsed->values.boolean("markdown") ? core::help_markdown(flags) : core::help_text(flags));
  return kSuccess;
}

}  // namespace trainyard::cli
