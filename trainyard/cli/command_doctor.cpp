#include <ostream>

#include <fmt/format.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/doctor_all_reduce.h"
#include "trainyard/cli/doctor_report.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/machine/machine_limits.h"

namespace trainyard::cli {

int run_doctor(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table
      .boolean("limits", false,
               "measure anew what the machine can do at most (a few seconds), and keep it for runs to be compared with")
      .group("Doctor");
  table
      .boolean("all_reduce", false,
               "between processes that mpirun has started: measure all-reduces by all algorithms, and compare the kept "
               "choices with them (some seconds)")
      .group("Doctor");
  const auto parsed =
      parse_command({"doctor", "this machine, what is built in, and what is missing", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  // The processes would disturb each other's measurements.
  if (parsed->values.boolean("all_reduce")) refuse_given(parsed->values, {"limits"}, "--all_reduce");
  if (parsed->values.boolean("limits")) {
    const std::string path = core::save_machine_limits(core::measure_machine_limits());
    core::log::info("the machine's limits are kept in {}", path);
  }
  const AllReduceChecks all_reduces = parsed->values.boolean("all_reduce") ? check_all_reduces() : AllReduceChecks();
  if (all_reduces.rank == 0) print_report(examine_machine(all_reduces.checks), console.out);
  return kSuccess;
}

}  // namespace trainyard::cli
