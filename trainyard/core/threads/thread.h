// Threads of the library: the only place that starts any. A thread knows how many intra-op threads its kernels may use
// (teams multiply otherwise: each thread that enters an OpenMP region gets a team of its own), where it may run, and
// brings an exception back to its owner.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trainyard/core/system/cpu_topology.h"

namespace trainyard::core {

// Where a thread and the OpenMP teams that it starts run.
struct ThreadPlacement {
  CpuList cpus;  // of the thread; empty: all CPUs of `places`, and without those anywhere
  // Of member i of a team places[i], from the front again when there are more members; empty: where the thread is. The
  // thread itself is member 0 but keeps all its CPUs: gcc's runtime replaces members after a smaller team has run, and
  // new ones begin where the thread may be.
  std::vector<CpuList> places;
  std::optional<int> memory_node;  // NUMA node that new memory comes from while it has any
};

struct ThreadOptions {
  std::string name;             // as the system shows it, 15 characters at most
  int intra_op_threads = 1;     // ATen and OpenMP teams started from this thread
  ThreadPlacement placement{};  // default: anywhere, also when the starting thread was placed by us
  bool flush_to_zero = true;    // denormals cost 100 times a normal operation and carry nothing in training
};

// Applies the options to the calling thread (the main thread uses it once). OpenMP teams that it starts later inherit
// affinity, memory node and flush-to-zero. Throws kInvalidArgument for CPUs that this process may not use; a system
// that refuses the memory node is a warning.
void apply_thread_options(const ThreadOptions& options);

// What the program puts into its environment for libgomp when nobody asks for another count of turns that idle threads
// of a team spin.
inline constexpr std::string_view kShortSpins = "GOMP_SPINCOUNT=10000";

// Puts the members of this thread's team on their places where they are not there yet; costs nothing without places,
// else one parallel region. To be called where a thread begins a piece of work (a step).
void settle_team();

// Joins in its destructor; an error that nobody joined for is logged there.
class Thread {
 public:
  Thread(ThreadOptions options, std::function<void()> body);
  ~Thread();
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&&) = delete;

  // Waits for the body; throws what it, or applying the options, threw, once.
  void join();

 private:
  struct Outcome;
  std::shared_ptr<Outcome> outcome_;
  std::thread thread_;
};

// Cores that this process may use: affinity and cgroup quota, at least 1.
int available_cores();

}  // namespace trainyard::core
