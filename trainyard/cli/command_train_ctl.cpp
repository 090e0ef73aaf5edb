#include <ostream>
#include <string>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/frontends/train_ctl/flags.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::cli {

namespace {

// Returns whether a launcher has started this process as the first one, or none has started it.
bool begins_as_first() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK"}) {
    if (const auto rank = parallel::read_environment(variable)) return *rank == "0";
  }
  return true;
}

}  // namespace

int run_train_ctl(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  frontends::declare_train_ctl_flags(table);
  const auto parsed =
      parse_command({"train-ctl", "trains as NVIDIA DALI's TensorFlow ResNet-N example with a custom loop does", ""},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  frontends::TrainCtlParams params = frontends::read_train_ctl_params(values);
  const std::string name = frontends::take_saved_choices(values, params);
  if (!params.horovod || begins_as_first()) frontends::print_script_arguments(values, console.out);
  const frontends::CtlConsole own{.out = &console.out, .stop = console.stop};
  if (values.boolean("predict")) {
    frontends::predict_ctl(params, own);
    return kSuccess;
  }
  // A size that cannot be is validate()'s error, which names it, not the model's.
  const frontends::CtlModelFunction model = frontends::ctl_zoo_model(name, {*params.image_height, *params.image_width});
  return frontends::train_ctl(model, params, own).stopped ? kStoppedBySignal : kSuccess;
}

}  // namespace trainyard::cli
