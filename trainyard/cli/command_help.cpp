#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/tf_cnn/flags.h"

namespace trainyard::cli {

int run_help(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.boolean("markdown", false, "the reference page docs/flags.md").group("Output");
  const auto parsed = parse_command({"help", "every flag of train and eval, by group", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  console.out << (parsed->values.boolean("markdown")
                      ? recipes::tf_cnn_flags_page()
                      : core::help_text(recipes::tf_cnn_flags(recipes::Dialect::kTrainyard)));
  return kSuccess;
}

}  // namespace trainyard::cli
