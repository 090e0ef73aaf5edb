// Threads of the library: the only place that starts any. A thread knows how many intra-op threads its kernels may use
// (teams multiply otherwise: each thread that enters an OpenMP region gets a team of its own), where it may run, and
// brings an exception back to its owner.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trainyard::core {

struct ThreadOptions {
  std::string name;           // as the system shows it, 15 characters at most
  int intra_op_threads = 1;   // ATen and OpenMP teams started from this thread
  std::vector<int> cpus;      // affinity; empty: anywhere
  bool flush_to_zero = true;  // denormals cost 100 times a normal operation and carry nothing in training
};

// Applies the options to the calling thread (the main thread uses it once). OpenMP teams that it starts later inherit
// affinity and flush-to-zero. Throws kInvalidArgument for CPUs that this process may not use.
void apply_thread_options(const ThreadOptions& options);

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
