#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/machine/machine_limits.h"
#include "trainyard/core/machine/peak_kernels.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTries = 3;
constexpr int64_t kFloatsAtOnce = 64;  // of the memory kernels
constexpr size_t kHugePage = size_t{2} << 20;

double processor_seconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Rate {
  double work = 0;             // a second, of all threads
  double processor_share = 1;  // of the thread that had a core the least
};

// `threads` threads, each doing chunks (their size is what `chunk(thread)` returns) for `seconds`. Each thread's own
// clock counts, so that one which starts late takes nothing from the others.
Rate rate_of(int threads, double seconds, const std::function<double(int)>& chunk) {
  std::vector<Rate> rates(static_cast<size_t>(threads));
  std::barrier start(threads);
  std::atomic<bool> abandoned = false;
  std::vector<Thread> team;
  team.reserve(rates.size());
  const auto begin_thread = [&](int t) {
    team.emplace_back(ThreadOptions{.name = "limits"}, [&, t] {
      chunk(t);  // warms caches, pages and the clock
      start.arrive_and_wait();
      if (abandoned) return;
      const Clock::time_point begin = Clock::now();
      const double processor_begin = processor_seconds();
      double work = 0, elapsed = 0;
      while (elapsed < seconds) {
        work += chunk(t);
        elapsed = seconds_since(begin);
      }
      rates[static_cast<size_t>(t)] = {work / elapsed, (processor_seconds() - processor_begin) / elapsed};
    });
  };
  try {
    for (int t = 0; t < threads; ++t) begin_thread(t);
  } catch (...) {
    // Those that have begun wait for all.
    abandoned = true;
    for (auto t = static_cast<int>(team.size()); t < threads; ++t) start.arrive_and_drop();
    throw;
  }
  for (Thread& thread : team) thread.join();
  Rate all;
  for (const Rate& rate : rates) {
    all.work += rate.work;
    all.processor_share = std::min(all.processor_share, rate.processor_share);
  }
  return all;
}

// The work a second of the best of some tries; lowers `processor_share` to its own.
double best_rate(int threads, double seconds, double& processor_share, const std::function<double(int)>& chunk) {
  Rate best;
  for (int i = 0; i < kTries; ++i) {
    const Rate rate = rate_of(threads, seconds, chunk);
    if (rate.work > best.work) best = rate;
  }
  processor_share = std::min(processor_share, best.processor_share);
  return best.work;
}

// Results are stored here, so that the compiler does not remove the work.
std::atomic<double> unread;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

double flop_rate(const FlopKernel& kernel, int threads, double seconds, double& processor_share) {
  constexpr int64_t kIterations = 100'000;  // about a millisecond
  return best_rate(threads, seconds, processor_share, [&](int) {
    unread = kernel.run(kIterations, 1.5F, 0.5F);
    return static_cast<double>(kernel.flops_per_iteration * kIterations);
  });
}

struct Release {
  void operator()(float* memory) const { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)
};
using Floats = std::unique_ptr<float, Release>;

Floats allocate(int64_t bytes) {
  void* memory = std::aligned_alloc(kHugePage, (static_cast<size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage);
  if (memory == nullptr) throw Error(ErrorCode::kNoSpace, "no memory to measure the memory with");
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint: small pages only measure less
  return Floats(static_cast<float*>(memory));
}

int64_t default_array_bytes() {
  constexpr int64_t kMebibyte = 1 << 20;
  const int64_t cache = std::max<int64_t>(0, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  auto memory = static_cast<int64_t>(machine_info().memory_bytes);
  if (const auto limit = cgroup_limits().memory_bytes) memory = std::min(memory, static_cast<int64_t>(*limit));
  const int64_t wanted = std::clamp(4 * cache, 64 * kMebibyte, 512 * kMebibyte);
  return memory > 0 ? std::min(wanted, memory / 16) : wanted;
}

void measure_memory(MachineLimits& limits, const LimitOptions& options) {
  const int64_t bytes = options.array_bytes > 0 ? options.array_bytes : default_array_bytes();
  const int64_t each =
      std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float)) / limits.threads / kFloatsAtOnce) *
      kFloatsAtOnce;
  const int64_t total = each * limits.threads * static_cast<int64_t>(sizeof(float));
  const Floats a = allocate(total), b = allocate(total), c = allocate(total);
  const auto at = [each](const Floats& array, int thread) { return array.get() + each * thread; };
  // A page lies near the thread that touches it first: as many threads as will use them, each its own slices.
  rate_of(limits.threads, 0, [&](int t) {
    for (const Floats* array : {&a, &b, &c}) std::fill_n(at(*array, t), each, 1.0F);
    return 0.0;
  });
  const double array = static_cast<double>(each) * sizeof(float);
  limits.read_bytes = best_rate(limits.threads, options.seconds, limits.processor_share, [&](int t) {
    unread = read_floats(at(a, t), each);
    return array;
  });
  limits.copy_bytes = best_rate(limits.threads, options.seconds, limits.processor_share, [&](int t) {
    copy_floats(at(a, t), at(b, t), each);
    return 2 * array;
  });
  limits.triad_bytes = best_rate(limits.threads, options.seconds, limits.processor_share, [&](int t) {
    triad_floats(at(a, t), at(b, t), at(c, t), 0.5F, each);
    return 3 * array;
  });
}

}  // namespace

MachineLimits measure_machine_limits(const LimitOptions& options) {
  const auto fp32 = fp32_kernel();
  if (!fp32 || !memory_kernels_available()) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "the machine's limits cannot be measured", .expected = "a processor with AVX2 and FMA"});
  }
  MachineLimits limits;
  limits.threads = options.threads > 0 ? options.threads : available_cores();
  limits.processor_share = 1;
  const auto rate = [&](const FlopKernel& kernel, int threads) {
    return flop_rate(kernel, threads, options.seconds, limits.processor_share);
  };
  limits.fp32_flops_one = rate(*fp32, 1);
  limits.fp32_flops_all = rate(*fp32, limits.threads);
  if (const auto bf16 = bf16_kernel()) {
    limits.bf16_flops_one = rate(*bf16, 1);
    limits.bf16_flops_all = rate(*bf16, limits.threads);
  }
  measure_memory(limits, options);
  limits.measured_at = std::time(nullptr);
  return limits;
}

}  // namespace trainyard::core
