// The programs of a simulated launch. `trainyard` is the library's code; the ranks are simulated, as is mpirun
// (simulated_mpirun.cpp).
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "tests/cluster_simulation/launch.h"
#include "tests/cluster_simulation/stream.h"
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/launch/agent.h"
#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/keeper.h"
#include "trainyard/parallel/launch/launch_messages.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::cluster_simulation {
namespace {

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

// Runs a command of `trainyard` as the command line does: the first signal requests a stop, the second one ends the
// process, and an error is printed.
int run_command(const std::function<int(const core::StopToken&)>& command, std::string* error_of_it = nullptr) {
  const auto stop = std::make_shared<core::StopSource>();
  own_process().on_signal = [stop, first = true](int signal) mutable {
    constexpr int kSignalled = 128, kCodeBits = 8;
    if (!std::exchange(first, false)) World::entered()->end_own_process((kSignalled + signal) << kCodeBits);
    stop->request_stop(core::StopReason::kSignal, core::signal_name(signal));
  };
  try {
    return command(stop->token());
  } catch (const core::Error& error) {
    if (error_of_it != nullptr) *error_of_it = error.what();
    write_all(STDERR_FILENO, fmt::format("trainyard: {}\n", error.what()));
    return 1;
  }
}

// A rank: does what its plan says.
class SimulatedRank {
 public:
  explicit SimulatedRank(LaunchJob& job) : job_(job), world_(job.world) {}

  int run() {
    const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
    const char* const is_of_launch = std::getenv(parallel::kRankOfLaunchVariable);
    if (number == nullptr || is_of_launch == nullptr || std::getenv(parallel::kLaunchTokenVariable) != nullptr) {
      job_.problem("a rank has not the environment that it needs, or the token of launch");
      return 1;
    }
    RankRun& own = job_.runs.at(std::stoul(number));
    if (own.process != nullptr) job_.problem(fmt::format("rank {} is started twice", number));
    own.process = &own_process();
    own.process->name = fmt::format("rank {}", number);
    own.agent = own.process->parent;
    for (int stream = 0; stream < 2; ++stream) {
      auto* const pipe = dynamic_cast<PipeEnd*>(own.process->descriptors.at(1 + stream).get());
      if (pipe != nullptr) pipe->record_to(&own.written.at(static_cast<size_t>(stream)));
    }
    listen(own.plan);
    if (own.plan.leaves_child) {
      const pid_t child = parallel::start_process(
          {.arguments = {"rank-child"}, .output = STDOUT_FILENO, .error = STDERR_FILENO, .new_session = true});
      for (const auto& each : world_.processes()) {
        if (World::number_of(*each) == child) own.child = each.get();
      }
    }
    for (const RankPlan::Write& each : own.plan.writes) {
      if (!sleep(each.pause)) return save(own);
      write_all(each.is_error ? STDERR_FILENO : STDOUT_FILENO, each.text);
    }
    while (own.plan.end == RankPlan::End::kEndless) {
      if (!sleep(kSecond)) return save(own);
    }
    if (stopped_) return save(own);
    if (own.plan.end == RankPlan::End::kSignal) ::kill(::getpid(), own.plan.value);
    if (own.plan.end == RankPlan::End::kSignal) sleep(kSecond);
    return own.plan.value;
  }

 private:
  void listen(const RankPlan& plan) {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
      if (plan.on_stop == RankPlan::OnStop::kIgnores || signal == SIGUSR2) ::signal(signal, SIG_IGN);
    }
    if (plan.on_stop == RankPlan::OnStop::kSaves) {
      own_process().on_signal = [this](int /*signal*/) { stopped_ = true; };
    }
  }

  // Returns false when it is to stop.
  bool sleep(Nanos time) {
    constexpr Nanos kSlice = 30 * kMillisecond;
    for (const Nanos until = world_.now() + time; world_.now() < until && !stopped_;) {
      world_.sleep_until(std::min(until, world_.now() + kSlice));
    }
    return !stopped_;
  }

  int save(const RankRun& own) {
    world_.sleep_until(world_.now() + own.plan.time_to_save);
    write_all(STDOUT_FILENO, "saved\n");
    return core::kExitStoppedBySignal;
  }

  LaunchJob& job_;
  World& world_;
  bool stopped_ = false;
};

int run_child() {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

int run_trainyard(LaunchJob& job, const Words& words) {
  const auto end_of_flags = std::find(words.begin(), words.end(), "--");
  const Words command(end_of_flags + 1, words.end());
  if (words.at(1) == "launch-keeper") {
    job.keeper = &own_process();
    job.keeper->name = "keeper";
    return run_command([&](const core::StopToken& stop) {
      return parallel::run_launch_keeper(command, {words.begin() + 2, end_of_flags}, stop);
    });
  }
  own_process().name = fmt::format("agent {}", std::getenv("OMPI_COMM_WORLD_RANK"));
  return run_command([&](const core::StopToken& stop) {
    parallel::run_launch_agent(command, stop);
    return 0;
  });
}

}  // namespace

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
}

int run_launch(LaunchJob& job) {
  return run_command([&job](const core::StopToken& stop) { return parallel::launch(job.options, stop); }, &job.error);
}

std::function<int()> find_launch_program(LaunchJob& job, const Words& words) {
  const std::string& name = words.at(0);
  if (name == "trainyard") return [&job, words] { return run_trainyard(job, words); };
  if (name == "rank") return [&job] { return SimulatedRank(job).run(); };
  if (name == "rank-child") return run_child;
  if (name != "mpirun") return nullptr;
  return [&job, words] {
    job.mpirun = &own_process();
    return run_mpirun(job, words);
  };
}

// Sends what is no message, half a message, or what an agent of another launch would say.
void start_launch_stranger(LaunchJob& job, RandomDraws& draws, int far) {
  constexpr uint16_t kFirstPort = 40'000;  // where launch listens
  enum What : uint8_t { kNothing, kGarbage, kHalf, kOtherToken, kLong, kOtherMessage, kWhats };
  const auto what = static_cast<What>(draws.below(kWhats));
  const bool is_local = job.options.network.empty();
  const int rank = static_cast<int>(draws.below(job.runs.size()));
  const Nanos stays = draws.between(1, 12'000) * kMillisecond;
  const int ranks = static_cast<int>(job.runs.size());
  const std::string address = is_local ? "127.0.0.1" : job.world.machine(0).name;
  job.world.at(job.world.now() + draws.between(0, 400) * kMillisecond, [=, &job] {
    job.world.start_process("a stranger", is_local ? 0 : far, [=, &job] {
      const parallel::HelloMessage hello{
          .token = std::string(32, 'a'), .rank = rank, .ranks = ranks, .host = "elsewhere"};
      const core::Frame frame = parallel::encode_message(
          what == kOtherMessage ? parallel::LaunchMessage(parallel::StartMessage()) : parallel::LaunchMessage(hello));
      std::string bytes = core::encode_frame(frame.kind, frame.body);
      if (what == kNothing) bytes.clear();
      if (what == kGarbage) bytes = std::string(100, 'x');
      if (what == kHalf) bytes.resize(bytes.size() / 2);
      if (what == kLong) bytes = core::encode_frame(frame.kind, std::string(2000, 'y'));
      try {
        core::Socket socket = core::connect_to(address, kFirstPort, std::chrono::milliseconds(300));
        ::send(socket.descriptor(), bytes.data(), bytes.size(), 0);
        job.world.sleep_until(job.world.now() + stays);
      } catch (const core::Error&) {
        // No one listens.
      }
    });
  });
}

}  // namespace trainyard::cluster_simulation
