#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_description.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/build_info.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/optim/flags.h"

namespace trainyard::cli {

int run_help(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.boolean("markdown", false, "the reference page docs/flags.md").group("Output");
  table.text("man_pages", std::nullopt, "write the manual pages of all commands into this folder").group("Output");
  const auto parsed =
      parse_command({"help", "every flag of train and eval, by group, and the formulas of the optimizers", ""}, table,
                    arguments, console);
  if (!parsed) return kSuccess;
  if (const std::string folder = parsed->values.text("man_pages"); !folder.empty()) {
    refuse_given(parsed->values, {"markdown"}, "--man_pages");
    core::FileSystem& files = core::local_file_system();
    files.make_directories(folder);
    const core::BuildInfo& build = core::build_info();
    for (const ManualPage& page : manual_pages(describe_commands(), build.version)) {
      files.write_file_atomically(core::join_path(folder, page.file), page.text);
    }
  } else if (parsed->values.boolean("markdown")) {
    console.out << frontends::tf_cnn_flags_page();
  } else {
    console.out << core::help_text(frontends::tf_cnn_flags(frontends::Dialect::kTrainyard)) << "\n"
                << optim::optimizers_help();
  }
  return kSuccess;
}

}  // namespace trainyard::cli
