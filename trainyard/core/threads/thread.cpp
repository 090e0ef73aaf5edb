#include "trainyard/core/threads/thread.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#if defined(__SSE2__)
#include <pmmintrin.h>
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/numa_memory.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/core/threads/shared_cores.h"
#include "trainyard/core/threads/thread_limit.h"

namespace trainyard::core {
namespace {

std::optional<cpu_set_t> set_of(const CpuList& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return std::nullopt;
    CPU_SET(cpu, &set);
  }
  return set;
}

// 0, or why not.
int try_affinity(const CpuList& cpus) {
  const auto set = set_of(cpus);
  return set ? pthread_setaffinity_np(pthread_self(), sizeof *set, &*set) : EINVAL;
}

void set_affinity(const CpuList& cpus) {
  if (const int error = try_affinity(cpus); error != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "a thread cannot run on the CPUs that were asked for",
                 .actual = fmt::format("CPUs {} ({})", fmt::join(cpus, ", "), std::strerror(error)),
                 .remedy = "choose from those that `taskset -p $$` shows"});
  }
}

// How this thread was placed by us.
struct Placed {
  CpuList before;               // where it might run until then
  std::vector<CpuList> places;  // not empty
  int64_t round = 0;            // of all placings in the process
};
thread_local std::optional<Placed> placed;
thread_local int64_t member_of_round = 0;  // the placing that put this member of a team where it is

CpuList all_of(const std::vector<CpuList>& places, int members) {
  CpuList all;
  for (size_t i = 0; i < places.size() && i < static_cast<size_t>(members); ++i) {
    all.insert(all.end(), places[i].begin(), places[i].end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Where the calling thread might run if we had not placed it.
CpuList own_cpus() {
  return placed ? placed->before : CpuList();
}

void place(const ThreadOptions& options) {
  const ThreadPlacement& wanted = options.placement;
  const CpuList cpus = wanted.cpus.empty() ? all_of(wanted.places, options.intra_op_threads) : wanted.cpus;
  if (cpus.empty() && !placed) return;
  static std::atomic<int64_t> rounds = 0;
  const CpuList before = placed ? placed->before : allowed_cpus();
  const CpuList& now = cpus.empty() ? before : cpus;
  set_affinity(now);
  placed = Placed{
      .before = before, .places = wanted.places.empty() ? std::vector<CpuList>{now} : wanted.places, .round = ++rounds};
}

void set_flush_to_zero(bool on) {
#if defined(__SSE2__)
  _MM_SET_FLUSH_ZERO_MODE(on ? _MM_FLUSH_ZERO_ON : _MM_FLUSH_ZERO_OFF);
  _MM_SET_DENORMALS_ZERO_MODE(on ? _MM_DENORMALS_ZERO_ON : _MM_DENORMALS_ZERO_OFF);
#elif defined(__aarch64__)
  constexpr uint64_t kFlushBit = uint64_t{1} << 24;  // FPCR.FZ, inputs and outputs
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = on ? control | kFlushBit : control & ~kFlushBit;
  asm volatile("msr fpcr, %0" ::"r"(control));
#else
#error "flush-to-zero is not known for this processor"
#endif
}

// When a thread first uses ATen, its count is overwritten with the last one that any thread set. This lets that happen
// now, for both flags of "first": LibTorch's, and the one that the headers' parallel_for makes in this library.
void settle_intra_op_threads() {
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
}

void check_intra_op_threads(int count, const std::string& thread) {
  if (count >= 1 && count <= most_threads()) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "a thread cannot have so many intra-op threads",
                                            .where = fmt::format("thread '{}'", thread),
                                            .expected = fmt::format("1 to {}", most_threads()),
                                            .actual = std::to_string(count)});
}

// ATen's setter covers MKL too, and OpenMP if both share one runtime; ours is set for the case that they do not.
void set_intra_op_threads(int count) {
  at::set_num_threads(count);
  omp_set_num_threads(count);
}

}  // namespace

void apply_thread_options(const ThreadOptions& options) {
  check_intra_op_threads(options.intra_op_threads, options.name);
  if (!options.name.empty()) pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
  place(options);
  if (options.placement.memory_node) prefer_memory_of_node(*options.placement.memory_node);
  set_flush_to_zero(options.flush_to_zero);
  settle_intra_op_threads();
  set_intra_op_threads(options.intra_op_threads);
  apply_team_affinity();
}

ScopedIntraOpThreads::ScopedIntraOpThreads(int intra_op_threads) {
  if (intra_op_threads == 0) return;
  check_intra_op_threads(intra_op_threads, "");
  settle_intra_op_threads();
  const int now = omp_get_max_threads();
  if (now == intra_op_threads) return;
  before_ = now;
  set_intra_op_threads(intra_op_threads);
}

ScopedIntraOpThreads::~ScopedIntraOpThreads() {
  if (before_ > 0) set_intra_op_threads(before_);
}

void apply_team_affinity() {
  if (!placed) return;
  const Placed& team = *placed;
  std::atomic<int> error = 0;
#pragma omp parallel
  {
    const int member = omp_get_thread_num();
    if (member > 0 && member_of_round != team.round) {
      const int failed = try_affinity(team.places[static_cast<size_t>(member) % team.places.size()]);
      if (failed == 0) {
        member_of_round = team.round;
      } else {
        error = failed;
      }
    }
  }
  if (error != 0) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a team's thread cannot run on its place",
                                              .actual = std::strerror(error),
                                              .remedy = "choose from the CPUs that `taskset -p $$` shows"});
  }
}

struct Thread::Outcome {
  std::string name;
  std::exception_ptr error;  // written by the body's thread, read after joining it
};

Thread::Thread(ThreadOptions options, std::function<void()> body) : outcome_(std::make_shared<Outcome>()) {
  outcome_->name = options.name;
  // at::set_num_threads also sets what threads get that have not used ATen yet. The owner must not become one of those
  // whose count changes under it.
  settle_intra_op_threads();
  try {
    thread_ =
        std::thread([outcome = outcome_, options = std::move(options), body = std::move(body), cpus = own_cpus()] {
          try {
            // It begins with its owner's CPUs; where we chose those, it does not keep them.
            if (!cpus.empty()) set_affinity(cpus);
            apply_thread_options(options);
            body();
          } catch (...) {
            outcome->error = std::current_exception();
          }
        });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kNoSpace, {.problem = "the system cannot start another thread",
                                      .where = fmt::format("thread '{}'", outcome_->name),
                                      .actual = error.what(),
                                      .remedy = "use fewer threads, or raise the limit (ulimit -u, pids.max)"});
  }
}

Thread::~Thread() {
  if (!outcome_) return;  // moved from
  const std::string name = outcome_->name;
  try {
    join();
  } catch (const std::exception& error) {
    log::error("thread '{}' ended with an error that nobody waited for: {}", name, error.what());
  } catch (...) {
    log::error("thread '{}' ended with an error that nobody waited for", name);
  }
}

void Thread::join() {
  if (thread_.joinable()) thread_.join();
  if (outcome_->error) std::rethrow_exception(std::exchange(outcome_->error, nullptr));
}

namespace {

std::atomic<int> sharing_processes = 1;

}  // namespace

void share_cores(int processes) {
  if (processes < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "cores are shared by processes", .expected = "at least 1", .actual = std::to_string(processes)});
  }
  sharing_processes = processes;
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(std::thread::hardware_concurrency());
  // Rounded down: threads beyond the quota make all of them wait for the next period.
  if (const auto quota = cgroup_limits().cores) cores = std::min(cores, static_cast<int>(*quota));
  return std::max(cores / sharing_processes, 1);
}

int most_threads() {
  constexpr int kACore = 4, kAtLeast = 256;
  return std::max(kACore * available_cores(), kAtLeast);
}

}  // namespace trainyard::core
