// What `trainyard doctor` says of all-reduces between processes: the kept choices of algorithms, and whether they are
// still the fastest.
#pragma once

#include <string>
#include <vector>

#include "trainyard/cli/doctor_report.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"

namespace trainyard::cli {

// What the algorithms took now, for a kept choice's description.
struct AllReduceCheck {
  std::string description;
  std::vector<parallel::AllReduceTime> times;
};

struct AllReduceChecks {
  int rank = 0;
  std::vector<AllReduceCheck> checks{};
};

// Collective over the processes that mpirun has started: measures the all-reduces of one replica a process, for some
// seconds. Throws kInvalidArgument when no launcher of MPI has started this process.
AllReduceChecks check_all_reduces();

// Describes the kept choices with their times, those of the check where there is one, and names each size at which
// another algorithm is at least 1.5 times as fast.
DoctorReport::Section all_reduces_section(const parallel::AllReduceChoices& choices,
                                          const std::vector<AllReduceCheck>& checks);

}  // namespace trainyard::cli
