#include <ostream>

#include <fmt/format.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/doctor_report.h"

namespace trainyard::cli {

int run_doctor(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  if (!parse_command({"doctor", "this machine, what is built in, and what is missing", ""}, table, arguments,
                     console)) {
    return kSuccess;
  }
  print_report(examine_machine(), console.out);
  return kSuccess;
}

}  // namespace trainyard::cli
