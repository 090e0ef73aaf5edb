#include "trainyard/parallel/launch/supervised_mpirun.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/launch/agent.h"
#include "trainyard/parallel/launch/launch_folders.h"

namespace trainyard::parallel {
namespace {

constexpr auto kMpirunEndTimeout = std::chrono::seconds(10);
constexpr int kLookForEnd = 50;  // milliseconds

void remove_folders(const MpirunFolders& folders) {
  std::error_code ignored;
  for (const std::string& folder : {folders.session, folders.memory}) {
    if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  }
}

}  // namespace

SupervisedMpirun::SupervisedMpirun(const LaunchOptions& options, const RankCommand& command, const Network* network,
                                   const std::vector<HostSlots>& hosts, const std::string& address,
                                   const std::string& token) {
  std::array<int, 2> control{}, output{}, error{};
  for (std::array<int, 2>* ends : {&control, &output, &error}) {
    if (::pipe2(ends->data(), O_CLOEXEC) != 0) throw core::system_error(errno, "make a pipe to", "mpirun");
  }
  const core::Socket keeper_reads(control[0]), keeper_output(output[1]), keeper_error(error[1]);
  control_ = core::Socket(control[1]);
  pipes_[0].reads = core::Socket(output[0]);
  pipes_[1].reads = core::Socket(error[0]);
  for (const Pipe& pipe : pipes_) ::fcntl(pipe.reads.descriptor(), F_SETFL, O_NONBLOCK);
  try {
    const auto make_folder = [this](const std::string& base) {
      std::string folder = make_launch_folder(base);
      held_.push_back(hold_launch_folder(folder));
      return folder;
    };
    folders_.session = make_folder(temporary_folder());
    std::vector<std::string> words{options.trainyard, "launch-keeper", folders_.session};
    if (network == nullptr && ::access("/dev/shm", W_OK) == 0) {
      folders_.memory = make_folder("/dev/shm");
      words.push_back(folders_.memory);
    }
    words.emplace_back("--");
    for (std::string& word : mpirun_command(options, command, network, hosts, folders_)) {
      words.push_back(std::move(word));
    }
    keeper_ = start_process({.arguments = words,
                             .with = {fmt::format("{}={}", kLaunchAddressVariable, address),
                                      fmt::format("{}={}", kLaunchTokenVariable, token)},
                             .input = keeper_reads.descriptor(),
                             .output = keeper_output.descriptor(),
                             .error = keeper_error.descriptor(),
                             .new_session = true});
  } catch (const core::Error&) {
    remove_folders(folders_);
    throw;
  }
}

SupervisedMpirun::~SupervisedMpirun() {
  ask_to_end();
  const auto until = std::chrono::steady_clock::now() + kMpirunEndTimeout;
  while (!has_ended()) {
    if (std::chrono::steady_clock::now() >= until) ::kill(keeper_, SIGKILL);
    ::usleep(1000 * kLookForEnd);
  }
}

std::vector<int> SupervisedMpirun::descriptors() const {
  return {pipes_[0].reads.descriptor(), pipes_[1].reads.descriptor()};
}

std::string SupervisedMpirun::read_lines() {
  std::string lines;
  for (Pipe& pipe : pipes_) {
    if (!pipe.reads.valid()) continue;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::read(pipe.reads.descriptor(), bytes.data(), bytes.size());
    if (count > 0) {
      lines += pipe.lines.take({bytes.data(), static_cast<size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      lines += pipe.lines.finish();
      pipe.reads = core::Socket();
    }
  }
  return lines;
}

void SupervisedMpirun::ask_to_end() {
  control_ = core::Socket();
}

bool SupervisedMpirun::has_ended() {
  int status = 0;
  if (keeper_ <= 0) return true;
  const pid_t ended = ::waitpid(keeper_, &status, WNOHANG);
  if (ended == 0 || (ended == -1 && errno == EINTR)) return false;
  if (ended == keeper_) end_ = process_end(status);
  keeper_ = 0;
  // The keeper removes them, unless it was killed.
  if (end_.kind != ProcessEnd::Kind::kExited) remove_folders(folders_);
  return true;
}

std::string SupervisedMpirun::description() const {
  const bool is_keepers = end_.kind != ProcessEnd::Kind::kExited;
  return fmt::format("{} {}", is_keepers ? "the keeper of mpirun" : "mpirun", end_.description());
}

}  // namespace trainyard::parallel
