#include <ostream>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/recipes/program/flags.h"
#include "trainyard/recipes/program/train.h"

namespace trainyard::cli {

int run_program(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  recipes::program::declare_flags(table);
  const auto parsed =
      parse_command({"program", "NVIDIA's PaddlePaddle ResNet-50 example: trains and evaluates by its options", ""},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  const recipes::program::ProgramResult result =
      recipes::program::train_and_evaluate(recipes::program::read_arguments(parsed->values), console.out, console.stop);
  return result.stopped ? kStoppedBySignal : kSuccess;
}

}  // namespace trainyard::cli
