// A simulated cluster: processes of several machines, whose threads one thread of the system runs in an order that a
// seed decides, with a clock that only the simulation advances.
//
// The processes run the code of the library as it is. What it calls of the C library (threads, mutexes, clocks,
// sockets) the simulation's program defines itself (c_library_*.cpp): on a simulated thread these calls end here,
// anywhere else in the C library. A simulated thread runs until it blocks, or until a call at which the seed lets
// another one run.
//
//   World world({.seed = 7});
//   Process& first = world.start_process("rank 0", 0, [] { train(); });
//   world.at(seconds(2), [&] { world.kill(first); });
//   world.run(seconds(60));
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/cluster_simulation/fiber.h"
#include "tests/cluster_simulation/random_draws.h"

namespace trainyard::cluster_simulation {

using Nanos = int64_t;  // of simulated time, since the world began
inline constexpr Nanos kMicrosecond = 1000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

class Descriptor;  // network.h
class Network;
class World;

struct Machine {
  int number = 0;
  std::string name;
  Nanos steady_offset = 0;    // what its steady clock shows when the world begins
  Nanos calendar_offset = 0;  // the same of its calendar's clock, which jumps
  // Folders of launches and the files in them, by path, and how many open files hold a lock of each
  // (c_library_files.cpp).
  std::set<std::string> files;
  std::map<std::string, int> file_locks;
};

struct Process {
  int number = 0;
  std::string name;
  World* world = nullptr;
  Machine* machine = nullptr;
  bool ended = false, frozen = false;
  bool was_killed = false;
  Nanos ended_at = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> held;  // ready while the process is frozen
  std::map<int, std::shared_ptr<Descriptor>> descriptors;
  // Its locked mutexes among the global variables. These are the memory of all processes here, and a mutex of each in
  // truth.
  struct Lock {
    const Fiber* owner = nullptr;
    int count = 0;
  };
  std::map<const void*, Lock> static_locks;

  // What follows is for programs that start processes (processes.cpp).
  Process* parent = nullptr;  // null: the system's first process
  bool adopts = false;        // orphans below it (PR_SET_CHILD_SUBREAPER)
  bool waited_for = false;    // its end has been read
  int wait_status = 0;        // as waitpid() gives it
  int signal_at_parents_end = 0;
  std::vector<int> signals;                   // that it has got
  std::string killed_by;                      // name of the process that sent SIGKILL; empty: none
  std::map<int, void (*)(int)> handlers;      // that the C library's functions have set
  std::function<void(int signal)> on_signal;  // for SIGTERM, SIGINT and SIGUSR1 without a handler; null: they end it
  // Its variables, "NAME=value". Empty: those of the simulation, and it has the real files.
  std::vector<std::string> environment;
  std::vector<char*> environment_pointers;
};

struct WorldOptions {
  uint64_t seed = 0;
  int machines = 1;
  double switch_chance = 0;    // at each call of a thread that does not block
  double spurious_chance = 0;  // that a wait for a condition ends without a signal
  bool trace = false;          // prints what happens
};

class World {
 public:
  explicit World(const WorldOptions& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Returns the world whose thread runs now; null outside of all simulated threads.
  static World* entered() { return entered_; }

  // Starts a process, whose first thread calls `main` and ends the process behind it.
  Process& start_process(const std::string& name, int machine, std::function<void()> main);
  // Ends a process as SIGKILL does: its threads run no more, and the system closes what it has open.
  void kill(Process& process);
  // Stops a process as SIGSTOP does, and lets it continue.
  void freeze(Process& process);
  void thaw(Process& process);
  // Sends a signal, whose handler or effect is a thread of that process. From anywhere.
  void send_signal(Process& process, int signal);
  // Returns the program that these words start, as a function that returns the exit code; null when there is none.
  std::function<std::function<int()>(const std::vector<std::string>& words)> find_program;
  // Calls `event` at this time, outside of all threads.
  void at(Nanos time, std::function<void()> event);
  // Runs until `over` returns true, or `until`. Returns false when the time is up, and when nothing can ever happen.
  bool run(Nanos until, const std::function<bool()>& over);

  Nanos now() const { return now_; }
  RandomDraws& draws() { return draws_; }
  Machine& machine(int number) { return machines_.at(static_cast<size_t>(number)); }
  std::vector<std::unique_ptr<Process>>& processes() { return processes_; }
  Network* network = nullptr;  // the one that was made for this world
  const WorldOptions& options() const { return options_; }

  // Notes what happens, for a reader and in the trace's hash.
  template <typename... Parts>
  void trace(const char* what, const Parts&... parts) {
    note(what, std::hash<std::string_view>{}(what));
    if (options_.trace) print_trace(join(what, parts...));
  }
  // Returns a number that two runs share when the same has happened in both.
  uint64_t trace_hash() const { return hash_; }
  uint64_t switches() const { return switches_; }
  // Returns what each thread does, for a world in which nothing happens: where it blocks, as what `addr2line -Cfie`
  // takes.
  std::string describe_threads();

  // The following are called on a simulated thread.
  Fiber& self() { return *running_; }
  Process& own_process() { return running_->forked != nullptr ? *running_->forked : running_->process; }
  Fiber& start_thread(std::function<void*()> body);
  void join(Fiber& thread);
  // Blocks until wake() of the key, or the time; with kNever only the former. Returns false when the time was up.
  bool block(const void* key, Nanos until);
  // Registers this thread's next block elsewhere: returns what wake_block() takes.
  uint64_t next_block() const { return running_->block + 1; }
  // Ends the calling thread's process, as exit() does.
  [[noreturn]] void end_own_process(int wait_status = 0);
  // The following do as the C library's functions. The child has the caller's stack until it calls exec(), or ends.
  int fork();
  int exec(std::vector<std::string> words, std::vector<std::string> environment);
  int wait_for_child(int number, int* status, bool blocks);
  int signal_process(int number, int signal);
  static int number_of(const Process& process) { return 1000 + process.number; }
  // A call that does not block: time passes, and another thread may run.
  void pass();
  void yield();
  void sleep_until(Nanos time);

  // Wakes one thread, or all, that block on the key. From anywhere.
  void wake_one(const void* key);
  void wake_all(const void* key);
  // Wakes the thread if it is still in that block.
  void wake_block(Fiber& thread, uint64_t block);

 private:
  struct Event {
    Nanos time;
    uint64_t order;
    std::function<void()> call;
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  Process& add_process(const std::string& name, Machine& machine);
  Fiber& add_fiber(Process& process, std::function<void()> body);
  void finish(Process& process, int wait_status);
  void start_signal_thread(Process& process, std::function<void()> body);
  void make_ready(Fiber& fiber);
  void run_fiber(Fiber& fiber);
  std::string stack_of(Fiber& blocked);
  void close_all(Process& process);
  void note(const char* what, uint64_t value);
  void print_trace(const std::string& text) const;
  static std::string join(const char* what) { return what; }
  template <typename First, typename... Parts>
  static std::string join(const char* what, const First& first, const Parts&... parts) {
    std::string text = what;
    append(text, first);
    (append(text, parts), ...);
    return text;
  }
  static void append(std::string& text, const std::string& part) { text += " " + part; }
  static void append(std::string& text, const char* part) { text += " " + std::string(part); }
  template <typename Number>
  static void append(std::string& text, Number part) {
    text += " " + std::to_string(part);
  }

  static World* entered_;

  const WorldOptions options_;
  RandomDraws draws_;
  Nanos now_ = 0;
  uint64_t order_ = 0, hash_ = 0, switches_ = 0;
  std::deque<Machine> machines_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Fiber*> ready_;
  std::vector<Event> events_;  // a heap: the next is in front
  struct Waiter {
    Fiber* fiber;
    uint64_t block;
  };
  std::unordered_map<const void*, std::vector<Waiter>> waiters_;
  Fiber* running_ = nullptr;
  int fibers_ = 0;
  std::string* described_ = nullptr;  // a thread that is entered now writes where it blocks, and leaves
};

// Returns the process whose thread runs.
inline Process& own_process() {
  return World::entered()->own_process();
}
// Gives a process variables of its own.
void set_environment(Process& process, std::vector<std::string> variables);

}  // namespace trainyard::cluster_simulation
