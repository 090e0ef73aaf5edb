// Starts all threads of the library. A thread has a number of intra-op threads for its kernels, because each thread
// that enters an OpenMP region gets a team of its own, and teams would multiply. It also has a placement, and it passes
// an exception to its owner.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Where a thread and the OpenMP teams that it starts run.
struct ThreadPlacement {
  std::vector<int> cpus{};  // CPUs of the thread; empty: all CPUs of `places`, or any CPU without places
  // Member i of a team runs on places[i % size]. Empty: members run where the thread is. The thread itself is member 0
  // but keeps all its CPUs: gcc's runtime replaces members after a smaller team has run, and new ones begin where the
  // thread may be.
  std::vector<std::vector<int>> places{};
  std::optional<int> memory_node{};  // NUMA node that new memory comes from while it has any
};

struct ThreadOptions {
  std::string name{};           // shown by the system, 15 characters at most
  int intra_op_threads = 1;     // ATen and OpenMP teams started from this thread
  ThreadPlacement placement{};  // default: anywhere, also when the starting thread was placed by us
  bool flush_to_zero = true;    // denormals cost 100 times a normal operation and carry nothing in training
};

// Applies the options to the calling thread; the main thread calls it once. OpenMP teams that the thread starts later
// inherit affinity, memory node and flush-to-zero. Throws kInvalidArgument for CPUs that this process may not use. A
// system that refuses the memory node is a warning.
void apply_thread_options(const ThreadOptions& options);

// Gives the calling thread another number of intra-op threads until the end of the scope; with 0 it keeps its own.
// Placement and flush-to-zero stay as they are. Throws kInvalidArgument as apply_thread_options() does.
class ScopedIntraOpThreads {
 public:
  explicit ScopedIntraOpThreads(int intra_op_threads);
  ~ScopedIntraOpThreads();
  ScopedIntraOpThreads(const ScopedIntraOpThreads&) = delete;
  ScopedIntraOpThreads& operator=(const ScopedIntraOpThreads&) = delete;

 private:
  int before_ = 0;  // 0: nothing was changed
};

// The defaults that the program sets in its environment for libgomp: how many turns idle threads of a team spin before
// they sleep. Where a process has more threads in teams than cores, as with a team of the main thread next to that
// of a replica, libgomp lets them spin 100 turns, or 1,000 (25 us on a Zen 4) if the policy is `active`.
inline constexpr std::string_view kShortSpins = "GOMP_SPINCOUNT=10000", kSpinsOfManyThreads = "OMP_WAIT_POLICY=active";

// Moves the members of this thread's team to their places, when they are not there yet. Call it when a thread begins a
// piece of work (a step). Costs nothing without places, and else one parallel region.
void apply_team_affinity();

// A thread that joins in its destructor. An error that no join() has thrown is logged there.
class Thread {
 public:
  Thread(ThreadOptions options, std::function<void()> body);
  ~Thread();
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&&) = delete;

  // Blocks until the body has ended. Throws, once, what the body, or applying the options, threw.
  void join();

 private:
  struct Outcome;
  std::shared_ptr<Outcome> outcome_;
  std::thread thread_;
};

// Returns how many cores this process may use, by affinity and cgroup quota: at least 1.
[[nodiscard]] int available_cores();

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
