#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/optim/flags.h"

namespace trainyard::cli {

int run_help(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.boolean("markdown", false, "the reference page docs/flags.md").group("Output");
  const auto parsed =
      parse_command({"help", "every flag of train and eval, by group, and the formulas of the optimizers", ""}, table,
                    arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->values.boolean("markdown")) {
    console.out << frontends::tf_cnn_flags_page();
  } else {
    console.out << core::help_text(frontends::tf_cnn_flags(frontends::Dialect::kTrainyard)) << "\n"
                << optim::optimizers_help();
  }
  return kSuccess;
}

}  // namespace trainyard::cli
