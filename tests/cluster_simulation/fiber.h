// A thread of a simulated process: a stack of its own, which one thread of the system enters and leaves.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace trainyard::cluster_simulation {

struct Process;

class Fiber {
 public:
  // Calls `body` when it is entered first. The body must not return: it ends by leaving for the last time.
  Fiber(Process& process, int number, std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // Unmaps the stack. What lies on it is not destroyed.
  ~Fiber();

  // Runs the fiber until it leaves. Called outside of all fibers.
  void enter();
  // Returns to whoever has entered the fiber. Called on the fiber.
  void leave();
  // Returns true, and false later, when end_fork() has put the stack back as it was. Both are called on the fiber.
  bool begin_fork();
  [[noreturn]] void end_fork();

  Process& process;
  const int number;
  std::string name;

  enum class State { kReady, kBlocked, kEnded } state = State::kReady;
  // Counts its blocks: a timer or a waker of an earlier one is ignored.
  uint64_t block = 0;
  bool timed_out = false;  // the last block ended by its timer
  int static_locks = 0;    // mutexes that it holds and that all simulated processes share
  void* result = nullptr;  // of its start routine
  bool detached = false;
  Process* forked = nullptr;  // the child that it runs as, between fork() and exec()

 private:
  static void begin(Fiber* fiber);
  // What the C++ runtime knows of the exceptions that a thread handles, and errno.
  struct ThreadState {
    void* caught = nullptr;
    unsigned int uncaught = 0;
    int error_number = 0;
  };
  static void exchange_state(ThreadState& other);
  // Keeps or restores the stack where the fiber has left to have that done. Returns whether it is entered again.
  bool serve_fork();

  std::function<void()> body_;
  std::byte* stack_ = nullptr;
  void* own_place_ = nullptr;      // the stack pointer while it is left
  void* callers_place_ = nullptr;  // that of enter() while it is entered
  ThreadState own_state_;
  enum class ForkStep { kNone, kKeep, kRestore } fork_step_ = ForkStep::kNone;
  bool in_child_ = false;
  std::vector<std::byte> kept_stack_;
  void* kept_place_ = nullptr;
  ThreadState kept_state_;
};

}  // namespace trainyard::cluster_simulation
