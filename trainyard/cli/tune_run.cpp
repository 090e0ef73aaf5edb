#include "trainyard/cli/tune_run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <ostream>
#include <sstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/cli/program.h"
#include "trainyard/cli/tune_record.h"
#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::cli {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr uint64_t kMostLogBytes = uint64_t{1} << 30;

struct Running {
  pid_t process = 0;
  TuneJob job{};
  uint64_t log_bytes = 0;  // of the log before it: those of earlier parts
  std::chrono::steady_clock::time_point begin{};
};

std::string read_or_empty(const std::string& path) {
  core::FileSystem& files = core::local_file_system();
  return files.exists(path) ? files.read_file(path, kMostLogBytes) : "";
}

class Search {
 public:
  Search(const TuneFile& file, const TuneOptions& options, std::ostream& out, const core::StopToken& stop)
      : file_(file),
        options_(options),
        out_(out),
        stop_(stop),
        levels_(tune_levels(file)),
        trials_(read_tune_record(options.directory, file)) {}

  std::vector<Trial> run() {
    if (options_.retry_failed) {
      for (Trial& trial : trials_) trial.failure.clear();
    }
    for (;;) {
      start_all();
      if (running_.empty()) break;
      if (stop_.stop_requested() && !passed_on_) {
        for (const Running& each : running_) ::kill(each.process, parallel::signal_of(stop_));
        passed_on_ = true;
      }
      if (!take_ended()) std::this_thread::sleep_for(kLook);
    }
    save();
    return std::move(trials_);
  }

 private:
  std::string path_of(const Trial& trial, const char* name) const {
    return core::join_path(core::join_path(options_.directory, trial_name(trial.number)), name);
  }

  void save() const {
    core::local_file_system().write_file_atomically(core::join_path(options_.directory, kTuneRecord),
                                                    tune_record(file_, trials_));
  }

  void start_all() {
    while (static_cast<int>(running_.size()) < options_.max_parallel && !stop_.stop_requested()) {
      const std::optional<TuneJob> job = next_tune_job(file_, trials_);
      if (!job) return;
      start(*job);
    }
  }

  void start(const TuneJob& job) {
    if (job.trial == trials_.size()) {
      const auto number = static_cast<int64_t>(job.trial);
      trials_.push_back({.number = number, .flags = trial_flags(file_, number)});
    }
    Trial& trial = trials_[job.trial];
    trial.started = job.level + 1;
    save();  // before it begins: a search that is killed now, or finds the disk full, continues it
    core::local_file_system().make_directories(core::join_path(options_.directory, trial_name(trial.number)));
    const std::string log = path_of(trial, "log.txt");
    const uint64_t log_bytes = read_or_empty(log).size();
    const core::Socket output(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (output.descriptor() < 0) throw core::system_error(errno, "write the log of a trial", log);
    std::vector<std::string> arguments = {options_.program};
    for (std::string& each : trial_arguments(file_, options_, trial, job.level, trial_threads(options_))) {
      arguments.push_back(std::move(each));
    }
    const pid_t process = parallel::start_process({.arguments = std::move(arguments),
                                                   .output = output.descriptor(),
                                                   .error = output.descriptor(),
                                                   .new_session = true,
                                                   .signal_at_our_end = SIGKILL});
    trial.running = true;
    running_.push_back(
        {.process = process, .job = job, .log_bytes = log_bytes, .begin = std::chrono::steady_clock::now()});
  }

  // Returns false when no process has ended.
  bool take_ended() {
    for (auto each = running_.begin(); each != running_.end(); ++each) {
      int status = 0;
      const pid_t ended = ::waitpid(each->process, &status, WNOHANG);
      if (ended == 0) continue;
      const Running one = *each;
      running_.erase(each);
      finish(one, ended < 0 ? parallel::ProcessEnd{} : parallel::process_end(status));
      save();
      return true;
    }
    return false;
  }

  void finish(const Running& one, const parallel::ProcessEnd& end) {
    Trial& trial = trials_[one.job.trial];
    trial.running = false;
    trial.part_seconds += core::seconds_since(one.begin);
    if (end.code() != kSuccess) {
      if (stop_.stop_requested()) return;  // it continues when the search does
      const std::string error = last_error(read_or_empty(path_of(trial, "log.txt")).substr(one.log_bytes));
      // A process that was killed had no time to say why.
      const bool said = end.kind == parallel::ProcessEnd::Kind::kExited && !error.empty();
      fail(trial, said ? error : end.description());
      return;
    }
    const auto found = last_metric(read_or_empty(path_of(trial, "metrics.jsonl")), file_.metric);
    if (!found) {
      fail(trial, fmt::format("its metrics have no {}: without validation images nothing is evaluated", file_.metric));
      return;
    }
    if (!std::isfinite(found->value)) {
      fail(trial, fmt::format("it diverged: {} is {} after step {}", file_.metric, found->value, found->global_step));
      return;
    }
    trial.results.push_back({.epochs = levels_[one.job.level],
                             .global_step = found->global_step,
                             .value = found->value,
                             .seconds = std::exchange(trial.part_seconds, 0.0)});
    fmt::print(out_, "trial {}: {} {:.4f} after {:.4g} of {:.4g} epochs\n", trial.number, file_.metric, found->value,
               levels_[one.job.level], file_.epochs);
    out_.flush();
  }

  void fail(Trial& trial, std::string reason) {
    trial.failure = std::move(reason);
    fmt::print(out_, "trial {} failed: {}\n", trial.number, trial.failure);
    out_.flush();
  }

  const TuneFile& file_;
  const TuneOptions& options_;
  std::ostream& out_;
  const core::StopToken& stop_;
  const std::vector<double> levels_;
  std::vector<Trial> trials_;
  std::vector<Running> running_;
  bool passed_on_ = false;
};

}  // namespace

std::vector<Trial> run_tune(const TuneFile& file, const TuneOptions& options, std::ostream& out,
                            const core::StopToken& stop) {
  return Search(file, options, out, stop).run();
}

int trial_threads(const TuneOptions& options) {
  return options.max_parallel == 1 ? 0 : std::max(1, core::available_cores() / options.max_parallel);
}

std::vector<std::string> trial_arguments(const TuneFile& file, const TuneOptions& options, const Trial& trial,
                                         size_t level, int threads) {
  std::vector<std::string> arguments = {"train"};
  bool has_threads = threads == 0;
  for (const auto& [name, value] : trial.flags) {
    arguments.push_back(fmt::format("--{}={}", name, value));
    has_threads = has_threads || name == "num_intra_threads";
  }
  if (!has_threads) arguments.push_back(fmt::format("--num_intra_threads={}", threads));
  arguments.push_back("--train_dir=" + core::join_path(options.directory, trial_name(trial.number)));
  arguments.emplace_back("--existing_run=keep");
  arguments.push_back(fmt::format("--num_epochs={}", file.epochs));
  const std::vector<double> levels = tune_levels(file);
  if (level + 1 < levels.size()) arguments.push_back(fmt::format("--stop_after_epochs={}", levels[level]));
  return arguments;
}

std::optional<MetricValue> last_metric(const std::string& metrics_jsonl, std::string_view metric) {
  std::optional<MetricValue> training, evaluation;
  const std::string name(metric);
  std::istringstream lines(metrics_jsonl);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains(name) || !row.contains("global_step")) continue;
    const auto& value = row[name];
    if (!row["global_step"].is_number() || !(value.is_number() || value.is_string())) continue;
    MetricValue& last = (row.value("phase", "") == "eval" ? evaluation : training).emplace();
    last.value = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    last.global_step = row["global_step"].get<int64_t>();
  }
  return evaluation ? evaluation : training;
}

std::string last_error(const std::string& log) {
  constexpr std::string_view kLevel = " error ";
  std::istringstream lines(log);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const size_t level = line.find(kLevel);
    // Behind the time of day, "02:24:22.639".
    if (level == 12 && line[2] == ':' && line[5] == ':') found = line.substr(level + kLevel.size());
  }
  return found;
}

}  // namespace trainyard::cli
