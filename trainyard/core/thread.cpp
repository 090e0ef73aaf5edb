#include "trainyard/core/thread.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#if defined(__SSE2__)
#include <pmmintrin.h>
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include "trainyard/core/cgroup.h"
#include "trainyard/core/error.h"
#include "trainyard/core/log.h"

namespace trainyard::core {
namespace {

void set_affinity(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "no such CPU to run a thread on",
                                                .expected = fmt::format("0 to {}", CPU_SETSIZE - 1),
                                                .actual = std::to_string(cpu)});
    }
    CPU_SET(cpu, &set);
  }
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set); error != 0) {
    std::string list;
    for (int cpu : cpus) list += (list.empty() ? "" : ", ") + std::to_string(cpu);
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a thread cannot run on the CPUs that were asked for",
                                              .actual = fmt::format("CPUs {} ({})", list, std::strerror(error)),
                                              .remedy = "choose from those that `taskset -p $$` shows"});
  }
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

}  // namespace

void apply_thread_options(const ThreadOptions& options) {
  if (options.intra_op_threads < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a thread needs at least one intra-op thread",
                                              .where = fmt::format("thread '{}'", options.name),
                                              .actual = std::to_string(options.intra_op_threads)});
  }
  if (!options.name.empty()) pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
  if (!options.cpus.empty()) set_affinity(options.cpus);
  set_flush_to_zero(options.flush_to_zero);
  settle_intra_op_threads();
  // ATen's setter covers MKL too, and OpenMP if both share one runtime; ours is set for the case that they do not.
  at::set_num_threads(options.intra_op_threads);
  omp_set_num_threads(options.intra_op_threads);
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
    thread_ = std::thread([outcome = outcome_, options = std::move(options), body = std::move(body)] {
      try {
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

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(std::thread::hardware_concurrency());
  // Rounded down: threads beyond the quota make all of them wait for the next period.
  if (const auto quota = cgroup_limits().cores) cores = std::min(cores, static_cast<int>(*quota));
  return std::max(cores, 1);
}

}  // namespace trainyard::core
