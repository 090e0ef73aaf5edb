// Processes that start others: fork() and exec(), ends, orphans and signals (World's functions of these names).
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

namespace trainyard::cluster_simulation {
namespace {

// Returns the process that adopts those that `process` leaves behind; null: the system's first one.
Process* adopter(const Process& process) {
  Process* above = process.parent;
  while (above != nullptr && (above->ended || !above->adopts)) above = above->parent;
  return above;
}

// Returns the words behind `env NAME=VALUE ... -u NAME ...`, after these have changed the environment.
std::vector<std::string> apply_env(const std::vector<std::string>& words, std::vector<std::string>& environment) {
  const auto remove = [&environment](const std::string& name) {
    std::erase_if(environment, [&](const std::string& each) { return each.starts_with(name + "="); });
  };
  size_t i = 1;
  for (; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (words[i] == "-u" && i + 1 < words.size()) {
      remove(words[++i]);
    } else if (equals != std::string::npos) {
      remove(words[i].substr(0, equals));
      environment.push_back(words[i]);
    } else {
      break;
    }
  }
  return {words.begin() + static_cast<std::ptrdiff_t>(i), words.end()};
}

}  // namespace

void set_environment(Process& process, std::vector<std::string> variables) {
  process.environment = std::move(variables);
  process.environment_pointers.clear();
  for (std::string& each : process.environment) process.environment_pointers.push_back(each.data());
  process.environment_pointers.push_back(nullptr);
}

void World::finish(Process& process, int wait_status) {
  process.ended = true;
  process.ended_at = now_;
  process.wait_status = wait_status;
  close_all(process);
  for (const auto& child : processes_) {
    if (child->parent != &process) continue;
    child->parent = adopter(process);
    if (child->ended || child->signal_at_parents_end == 0) continue;
    if (child->signal_at_parents_end == SIGKILL) child->killed_by = process.name + "'s end";
    send_signal(*child, child->signal_at_parents_end);
  }
  if (process.parent != nullptr) wake_all(process.parent);
}

void World::start_signal_thread(Process& process, std::function<void()> body) {
  add_fiber(process, [this, body = std::move(body)] {
    body();
    self().state = Fiber::State::kEnded;
    self().leave();
  });
}

void World::send_signal(Process& process, int signal) {
  if (process.ended || signal == 0) return;
  trace("signal", signal, "for", process.name);
  process.signals.push_back(signal);
  if (signal == SIGKILL) return kill(process);
  const auto handler = process.handlers.find(signal);
  if (handler != process.handlers.end() && handler->second != SIG_DFL) {
    if (handler->second == SIG_IGN) return;
    return start_signal_thread(process, [function = handler->second, signal] { function(signal); });
  }
  const bool is_stop = signal == SIGTERM || signal == SIGINT || signal == SIGUSR1;
  if (is_stop && process.on_signal) {
    return start_signal_thread(process, [&process, signal] { process.on_signal(signal); });
  }
  start_signal_thread(process, [this, signal] { end_own_process(signal); });
}

int World::fork() {
  Process& parent = own_process();
  Process& child = add_process("child of " + parent.name, *parent.machine);
  child.parent = &parent;
  child.handlers = parent.handlers;
  set_environment(child, parent.environment);
  child.descriptors = parent.descriptors;
  for (const auto& [number, descriptor] : child.descriptors) descriptor->hold();
  Fiber& fiber = self();
  const int number = number_of(child);
  fiber.forked = &child;
  return fiber.begin_fork() ? 0 : number;
}

int World::exec(std::vector<std::string> words, std::vector<std::string> environment) {
  if (!words.empty() && words[0] == "env") words = apply_env(words, environment);
  std::function<int()> program = find_program ? find_program(words) : nullptr;
  if (!program) {
    errno = ENOENT;
    return -1;
  }
  Process& own = own_process();
  constexpr int kFirstOfLibrary = 3;  // the library marks all others as closed on exec
  while (!own.descriptors.empty() && own.descriptors.rbegin()->first >= kFirstOfLibrary) {
    const std::shared_ptr<Descriptor> closed = own.descriptors.rbegin()->second;
    own.descriptors.erase(std::prev(own.descriptors.end()));
    closed->release();
  }
  std::erase_if(own.handlers, [](const auto& each) { return each.second != SIG_IGN; });
  own.name = words[0];
  set_environment(own, std::move(environment));
  constexpr int kCodeBits = 8;  // of a wait status
  add_fiber(own, [this, program = std::move(program)] { end_own_process((program() & 0xff) << kCodeBits); });
  self().forked = nullptr;
  self().end_fork();
}

int World::wait_for_child(int number, int* status, bool blocks) {
  const Process& own = own_process();
  while (true) {
    bool has_child = false;
    for (const auto& child : processes_) {
      if (child->parent != &own || child->waited_for || (number > 0 && number_of(*child) != number)) continue;
      has_child = true;
      if (!child->ended) continue;
      child->waited_for = true;
      if (status != nullptr) *status = child->wait_status;
      return number_of(*child);
    }
    if (!has_child) {
      errno = ECHILD;
      return -1;
    }
    if (!blocks) return 0;
    block(&own, kNever);
  }
}

int World::signal_process(int number, int signal) {
  Process& own = own_process();
  const auto found = std::find_if(processes_.begin(), processes_.end(), [&](const auto& each) {
    const bool is_gone = each->waited_for || (each->ended && each->parent == nullptr);
    return number_of(*each) == number && each->machine == own.machine && !is_gone;
  });
  if (found == processes_.end()) {
    errno = ESRCH;
    return -1;
  }
  if (signal == SIGKILL && !(*found)->ended) (*found)->killed_by = own.name;
  send_signal(**found, signal);
  if (own.ended) self().leave();
  return 0;
}

}  // namespace trainyard::cluster_simulation
