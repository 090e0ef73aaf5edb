// The C library's processes, signals and pipes, as a simulated thread sees them (c_library_threads.cpp has threads).
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/cluster_simulation/real_call.h"
#include "tests/cluster_simulation/world.h"
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wredundant-decls"

using namespace trainyard::cluster_simulation;  // NOLINT: the definitions below are outside of all namespaces

#pragma GCC visibility push(default)  // other libraries are to find these
extern "C" {

pid_t fork() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(fork, nullptr);
  world->pass();
  return world->fork();
}

int execvpe(const char* file, char* const* words, char* const* variables) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(execvpe, nullptr, file, words, variables);
  std::vector<std::string> arguments, environment;
  for (; *words != nullptr; ++words) arguments.emplace_back(*words);
  for (; *variables != nullptr; ++variables) environment.emplace_back(*variables);
  return world->exec(std::move(arguments), std::move(environment));
}

void _exit(int code) {
  World* const world = World::entered();
  constexpr int kCodeBits = 8;  // of a wait status
  if (world != nullptr) world->end_own_process((code & 0xff) << kCodeBits);
  static auto* const function = real<void(int)>("_exit");
  function(code);
  std::abort();
}

pid_t waitpid(pid_t process, int* status, int options) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(waitpid, nullptr, process, status, options);
  world->pass();
  return world->wait_for_child(process, status, (options & WNOHANG) == 0);
}

int kill(pid_t process, int signal) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(kill, nullptr, process, signal);
  world->pass();
  return world->signal_process(process, signal);
}

pid_t getppid() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(getppid, nullptr);
  const Process* const parent = world->own_process().parent;
  return parent == nullptr ? 1 : World::number_of(*parent);
}

pid_t setsid() {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(setsid, nullptr);
  return World::number_of(world->own_process());
}

int prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long arguments[4];
  for (unsigned long& each : arguments) each = va_arg(list, unsigned long);
  va_end(list);
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(prctl, nullptr, option, arguments[0], arguments[1], arguments[2], arguments[3]);
  Process& own = world->own_process();
  if (option == PR_SET_PDEATHSIG) own.signal_at_parents_end = static_cast<int>(arguments[0]);
  if (option == PR_SET_CHILD_SUBREAPER) own.adopts = arguments[0] != 0;
  return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(signal, nullptr, number, handler);
  return std::exchange(world->own_process().handlers[number], handler);
}

int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(sigaction, nullptr, number, action, before);
  auto& handlers = world->own_process().handlers;
  if (before != nullptr) {
    *before = {};
    const auto found = handlers.find(number);
    before->sa_handler = found == handlers.end() ? SIG_DFL : found->second;
  }
  if (action != nullptr) handlers[number] = action->sa_handler;
  return 0;
}

int sigprocmask(int how, const sigset_t* set, sigset_t* before) {
  if (World::entered() == nullptr) TRAINYARD_REAL(sigprocmask, nullptr, how, set, before);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
