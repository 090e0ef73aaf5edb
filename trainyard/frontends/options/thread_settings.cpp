#include "trainyard/frontends/options/thread_settings.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kTurnsPerMillisecond = 100000;

// `count` places from `first` on, from the front again after the last.
std::vector<core::CpuList> some_of(const std::vector<core::CpuList>& places, int first, int count) {
  std::vector<core::CpuList> result;
  if (places.empty()) return result;
  for (int i = 0; i < count; ++i) result.push_back(places[static_cast<size_t>(first + i) % places.size()]);
  return result;
}

std::vector<core::CpuList> places_on(const std::optional<core::Affinity>& affinity, const core::CpuList& cpus,
                                     const core::ReadText& read) {
  if (!affinity) return {};
  return core::affinity_places(*affinity, core::cpu_positions(cpus, read));
}

// gcc's runtime then has bound the main thread to one CPU when it was loaded, and binds every team alike.
void refuse_other_placements() {
  for (const char* name : {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the environment places threads, too",
                                                          .actual = fmt::format("{}={}", name, value),
                                                          .remedy = "unset it, or leave the flags of placement out"});
  }
}

void place_on_nodes(ThreadSettings& settings, const std::vector<core::NumaNode>& nodes, const core::ReadText& read) {
  const int count = static_cast<int>(nodes.size());
  int cpus = 0;
  for (int n = 0; n < std::min(count, settings.replicas); ++n) {
    cpus += static_cast<int>(nodes[static_cast<size_t>(n)].cpus.size());
  }
  settings.intra_op_threads = std::min(settings.intra_op_threads, cpus);
  const int each = std::max(1, settings.intra_op_threads / settings.replicas);
  for (int r = 0; r < settings.replicas; ++r) {
    const core::NumaNode& node = nodes[static_cast<size_t>(r % count)];
    settings.replica.push_back(
        {.cpus = node.cpus,
         .places = some_of(places_on(settings.affinity, node.cpus, read), r / count * each, each),
         .memory_node = node.number});
  }
}

std::string describe(const core::ThreadPlacement& placement, const core::CpuList& allowed) {
  std::string text;
  for (const core::CpuList& place : placement.places) {
    text += (text.empty() ? "CPUs " : " | ") + core::format_cpu_list(place);
  }
  if (placement.places.empty()) {
    text = "anywhere on CPUs " + core::format_cpu_list(placement.cpus.empty() ? allowed : placement.cpus);
  }
  if (placement.memory_node) text += fmt::format(", memory of node {}", *placement.memory_node);
  return text;
}

}  // namespace

std::optional<std::string> wanted_spin_count(const ThreadOptions& options) {
  if (!options.spin_milliseconds) return std::nullopt;
  return std::to_string(*options.spin_milliseconds * kTurnsPerMillisecond);
}

ThreadSettings place_threads(const ThreadOptions& options, int replicas, int input_threads,
                             const core::ReadText& read) {
  const int intra_op_threads = options.intra_op_threads > 0 ? options.intra_op_threads : core::available_cores();
  ThreadSettings settings{.replicas = replicas,
                          .intra_op_threads = intra_op_threads,
                          .input_threads = input_threads,
                          .use_numa_affinity = options.use_numa_affinity,
                          .affinity = options.affinity,
                          .print = options.print,
                          .replica = {},
                          .main = {}};
  if (settings.affinity || settings.use_numa_affinity) refuse_other_placements();
  const bool all = settings.affinity && !settings.affinity->respect;
  const core::CpuList cpus = all ? core::online_cpus(read) : core::allowed_cpus();
  const std::vector<core::NumaNode> nodes = core::numa_nodes(cpus, read);
  if (settings.use_numa_affinity && nodes.size() > 1) {
    place_on_nodes(settings, nodes, read);
  } else {
    if (settings.use_numa_affinity) core::log::info("use_numa_affinity: this machine has one NUMA node");
    const int each = std::max(1, intra_op_threads / replicas);
    const std::vector<core::CpuList> places = places_on(settings.affinity, cpus, read);
    for (int r = 0; r < replicas; ++r) settings.replica.push_back({.places = some_of(places, r * each, each)});
  }
  settings.main.places = some_of(places_on(settings.affinity, cpus, read), 0, settings.intra_op_threads);
  return settings;
}

std::vector<std::string> ThreadSettings::lines() const {
  const core::CpuList allowed = core::allowed_cpus();
  std::vector<std::string> result = {fmt::format("threads: {} for operations, shared by {} replica{}; {} for the input",
                                                 intra_op_threads, replicas, replicas == 1 ? "" : "s", input_threads)};
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (const char* value = std::getenv(name)) result.push_back(fmt::format("threads: {}={}", name, value));
  }
  for (size_t r = 0; r < replica.size(); ++r) {
    result.push_back(fmt::format("threads: replica {} {}", r, describe(replica[r], allowed)));
  }
  result.push_back(fmt::format("threads: evaluation {}", describe(main, allowed)));
  return result;
}

}  // namespace trainyard::frontends
