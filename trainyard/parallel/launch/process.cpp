#include "trainyard/parallel/launch/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/core/threads/signal_watcher.h"

namespace trainyard::parallel {
namespace {

std::vector<std::string> environment_of(const ProcessToStart& process) {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string variable = *each;
    const std::string name = variable.substr(0, variable.find('='));
    const auto replaces = [&](const std::string& other) { return other.starts_with(name + "="); };
    if (std::find(process.without.begin(), process.without.end(), name) != process.without.end()) continue;
    if (std::any_of(process.with.begin(), process.with.end(), replaces)) continue;
    variables.push_back(variable);
  }
  variables.insert(variables.end(), process.with.begin(), process.with.end());
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything between fork and exec: other threads may have held locks, so nothing here allocates.
[[noreturn]] void become(const ProcessToStart& process, char* const* arguments, char* const* environment, pid_t parent,
                         int report) {
  const auto fail = [report] {
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof error);
    ::_exit(127);
  };
  if (process.new_session) ::setsid();
  if (process.signal_at_our_end != 0) {
    ::prctl(PR_SET_PDEATHSIG, process.signal_at_our_end);
    if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  }
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::array<int, 3> streams{process.input, process.output, process.error};
  for (int& stream : streams) {
    if (stream < 0) stream = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    // Above the three that are set below, so that none is replaced before it is used.
    stream = ::fcntl(stream, F_DUPFD_CLOEXEC, 3);
    if (stream < 0) fail();
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(streams[static_cast<size_t>(i)], i) < 0) fail();
  }
  // Descriptors that something else has opened without care.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execvpe(arguments[0], arguments, environment);
  fail();
  ::_exit(127);
}

// The parent of each process of this machine that this process may see.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    pid_t process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ec != std::errc()) continue;
    const std::string status = core::read_system_file("/proc/" + name + "/status").value_or("");
    const std::string parent = core::proc_value(status, "PPid");
    pid_t number = 0;
    if (std::from_chars(parent.data(), parent.data() + parent.size(), number).ec != std::errc()) continue;
    found[process] = number;
  }
  return found;
}

bool is_below(const std::map<pid_t, pid_t>& parents, pid_t process, pid_t ancestor) {
  for (size_t steps = 0; steps <= parents.size(); ++steps) {
    const auto found = parents.find(process);
    if (found == parents.end()) return false;
    if (found->second == ancestor) return true;
    process = found->second;
  }
  return false;
}

}  // namespace

pid_t start_process(const ProcessToStart& process) {
  std::vector<std::string> arguments = process.arguments;
  std::vector<std::string> environment = environment_of(process);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) throw core::system_error(errno, "start program", arguments[0]);
  const core::Socket reads(report[0]);
  core::Socket writes(report[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(process, argument_pointers.data(), environment_pointers.data(), parent, writes.descriptor());
  if (child < 0) throw core::system_error(errno, "start program", arguments[0]);
  writes = core::Socket();
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(reads.descriptor(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count == 0) return child;
  ::waitpid(child, nullptr, 0);
  throw core::system_error(error, "start program", arguments[0]);
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

int ProcessEnd::code() const {
  switch (kind) {
    case Kind::kExited:
      return value;
    case Kind::kSignalled:
      return 128 + value;
    case Kind::kNotStarted:
      return 127;
    case Kind::kLost:
      return 1;
  }
  return 1;
}

std::string ProcessEnd::description() const {
  switch (kind) {
    case Kind::kExited:
      return fmt::format("ended with code {}", value);
    case Kind::kSignalled:
      return fmt::format("was ended by {}", core::signal_name(value));
    case Kind::kNotStarted:
      return fmt::format("could not be started: {}", text);
    case Kind::kLost:
      return "was lost: the process that watched it has ended, or its host does not answer";
  }
  return "";
}

ProcessEnd process_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.kind = ProcessEnd::Kind::kSignalled, .value = WTERMSIG(wait_status)};
  return {.kind = ProcessEnd::Kind::kExited, .value = WEXITSTATUS(wait_status)};
}

int signal_of(const core::StopToken& stop) {
  for (const int signal : {SIGINT, SIGUSR1}) {
    if (stop.message() == core::signal_name(signal)) return signal;
  }
  return SIGTERM;
}

void end_descendants() {
  constexpr auto kMost = std::chrono::seconds(2);
  constexpr auto kAgain = std::chrono::milliseconds(10);
  const auto until = std::chrono::steady_clock::now() + kMost;
  const pid_t self = ::getpid();
  while (std::chrono::steady_clock::now() < until) {
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (ended < 0 && errno == ECHILD) return;
    const std::map<pid_t, pid_t> all = parents();
    for (const auto& [process, parent] : all) {
      if (is_below(all, process, self)) ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace trainyard::parallel
