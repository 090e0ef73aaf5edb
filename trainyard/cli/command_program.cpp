#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/frontends/paddle/flags.h"
#include "trainyard/frontends/paddle/train.h"

namespace trainyard::cli {

int run_program(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  frontends::program::declare_flags(table);
  const auto parsed =
      parse_command({"program", "NVIDIA's PaddlePaddle ResNet-50 example: trains and evaluates by its options", ""},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  const frontends::program::ProgramResult result = frontends::program::train_and_evaluate(
      frontends::program::read_arguments(parsed->values), console.out, console.stop);
  return result.stopped ? kStoppedBySignal : kSuccess;
}

}  // namespace trainyard::cli
