#include "trainyard/cli/doctor_all_reduce.h"

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/cli/bench_timing.h"
#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/parallel/collectives/measured_all_reduce.h"
#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/process_communicator.h"

namespace trainyard::cli {
namespace {

using parallel::AllReduceOrder;
using parallel::AllReduceTime;

constexpr double kSlow = 1.5;  // times as long as the fastest

// Returns "4K: chain 14.0 us, shuffle#2 20.1 us; 64K: ...", the three fastest of each size.
std::string times_text(const std::vector<AllReduceTime>& times) {
  std::map<int64_t, std::vector<AllReduceTime>> by_size;
  for (const AllReduceTime& time : times) by_size[time.bytes].push_back(time);
  std::vector<std::string> sizes;
  for (auto& [bytes, of_size] : by_size) {
    std::stable_sort(of_size.begin(), of_size.end(),
                     [](const AllReduceTime& a, const AllReduceTime& b) { return a.seconds < b.seconds; });
    constexpr size_t kShown = 3;
    of_size.resize(std::min(of_size.size(), kShown));
    std::vector<std::string> fastest;
    for (const AllReduceTime& time : of_size) {
      fastest.push_back(fmt::format("{} {}", time.algorithm, time_text(time.seconds)));
    }
    sizes.push_back(fmt::format("{}: {}", bytes_text(bytes), fmt::join(fastest, ", ")));
  }
  return fmt::format("{}", fmt::join(sizes, "; "));
}

// Adds a row for each size at which the choice is slow.
void add_slow_sizes(const std::string& spec, const std::string& description, const std::vector<AllReduceTime>& times,
                    const std::string& file, DoctorReport::Section& section) {
  const std::string remedy = fmt::format("remove {}: the next run measures again", file);
  try {
    for (const parallel::SlowAllReduce& slow :
         parallel::slow_sizes(spec, parallel::order_of(description), times, kSlow)) {
      section.rows.emplace_back(
          "slow choice",
          fmt::format("{}: {} takes {}, {} {}, which is {:.1f} times as fast; {}", bytes_text(slow.bytes), slow.chosen,
                      time_text(slow.chosen_seconds), slow.fastest, time_text(slow.fastest_seconds),
                      slow.chosen_seconds / slow.fastest_seconds, remedy));
    }
  } catch (const core::Error& error) {
    section.rows.emplace_back("unusable choice", fmt::format("{}; {}", error.what(), remedy));
  }
}

}  // namespace

DoctorReport::Section all_reduces_section(const parallel::AllReduceChoices& choices,
                                          const std::vector<AllReduceCheck>& checks) {
  DoctorReport::Section section{"All-reduces", {}};
  const auto all = choices.all();
  if (all.empty()) {
    section.rows.emplace_back("measured", "none yet; processes measure them when they first train together");
    return section;
  }
  section.rows.emplace_back("measured",
                            fmt::format("{}, kept in {}; mpirun -n 2 trainyard doctor --all_reduce compares them with "
                                        "what two processes take now",
                                        all.size(), choices.file()));
  for (const auto& [description, choice] : all) {
    section.rows.emplace_back(choice.spec, fmt::format("{} ({})", description, times_text(choice.times)));
    const auto check = std::find_if(checks.begin(), checks.end(), [&description = description](const auto& each) {
      return each.description == description;
    });
    const bool is_checked = check != checks.end();
    if (is_checked) section.rows.emplace_back("measured now", times_text(check->times));
    add_slow_sizes(choice.spec, description, is_checked ? check->times : choice.times, choices.file(), section);
  }
  return section;
}

AllReduceChecks check_all_reduces() {
  frontends::DeviceOptions asked;
  asked.gpu = false;
  asked.variable_update = "distributed_all_reduce";
  asked.started_together = parallel::started_by_mpi();
  if (!asked.started_together) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--all_reduce is between processes, and no launcher of MPI has started this one",
                       .remedy = "mpirun -n 2 trainyard doctor --all_reduce"});
  }
  const train::OpenDevices devices = frontends::open_device(asked, {});
  AllReduceChecks result{.rank = devices.rank()};
  const auto processes = parallel::make_communicator_of_processes(devices.exchange);
  for (const AllReduceOrder order : {AllReduceOrder::kOfRanks, AllReduceOrder::kAny}) {
    constexpr double kSeconds = 5;
    const parallel::AllReduceMeasuring measuring{.order = order,
                                                 .transport = parallel::mpi_version(),
                                                 .seconds = kSeconds,
                                                 .give_up_ratio = std::numeric_limits<double>::infinity()};
    const std::string description = parallel::describe_measuring(devices.exchange, devices.replicas, measuring);
    const bool is_kept = parallel::AllReduceChoices::instance().find(description).has_value();
    if (parallel::text_of_first(*processes, is_kept ? "kept" : "none") == "none") continue;
    result.checks.push_back(
        {description, parallel::measure_all_reduces(devices.exchange, devices.replicas, measuring).times});
  }
  devices.leave();
  return result;
}

}  // namespace trainyard::cli
