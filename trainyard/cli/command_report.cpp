#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <ostream>
#include <system_error>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/report/report_page.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::cli {
namespace {

using core::Error;
using core::ErrorCode;

constexpr size_t kMostRuns = 2000;

// Returns the folders of runs: `directory`, or the runs in it when it is none itself.
std::vector<std::string> runs_in(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  if (is_run_folder(directory)) return {directory};
  std::vector<std::string> found;
  if (files.exists(directory) && files.info(directory).is_directory) {
    for (const std::string& name : files.list(directory)) {
      if (std::string path = core::join_path(directory, name); is_run_folder(path)) found.push_back(std::move(path));
    }
  }
  if (!found.empty()) return found;
  throw Error(ErrorCode::kNotFound, {.problem = "no run is in this folder",
                                     .where = directory,
                                     .expected = "run_summary.json or metrics.jsonl, in it or in folders in it",
                                     .remedy = "name the --train_dir of a training"});
}

std::vector<std::string> find_run_folders(const std::vector<std::string>& arguments) {
  std::vector<std::string> found;
  for (const std::string& argument : arguments) {
    for (std::string& run : runs_in(argument)) {
      if (std::find(found.begin(), found.end(), run) == found.end()) found.push_back(std::move(run));
    }
  }
  if (found.size() > kMostRuns) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "too many runs for one report",
                                              .expected = fmt::format("at most {}", kMostRuns),
                                              .actual = std::to_string(found.size())});
  }
  return found;
}

struct WrittenReport {
  size_t bytes = 0;
  bool running = false;  // a run of it has not ended
};

WrittenReport write_report(const std::vector<std::string>& folders, const std::string& output,
                           std::optional<int64_t> interval) {
  WrittenReport written;
  std::vector<ReportRun> runs;
  for (const std::string& folder : folders) {
    runs.push_back(read_report_run(folder));
    written.running = written.running || text_at(runs.back().summary, "status") == "running";
  }
  name_runs(runs);
  ReportPageOptions options{.now = train::system_wall_clock()};
  if (written.running) options.reload_seconds = interval;
  const std::string page = report_page(std::move(runs), options);
  written.bytes = page.size();
  core::write_user_output(output, page);
  return written;
}

// Returns when the files that a report shows were last written, over all runs.
int64_t last_change(const std::vector<std::string>& folders) {
  int64_t last = std::numeric_limits<int64_t>::min();  // times of files may count from the future
  for (const std::string& folder : folders) {
    for (const char* name : {"run_summary.json", "metrics.jsonl", "evaluation.json"}) {
      std::error_code missing;
      const auto time = std::filesystem::last_write_time(core::join_path(folder, name), missing);
      if (!missing) last = std::max<int64_t>(last, time.time_since_epoch().count());
    }
  }
  return last;
}

}  // namespace

int run_report(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table
      .text("output", std::nullopt,
            "the page to write; unset: report.html in TRAIN_DIR, for several runs in the current folder")
      .group("Output");
  table.boolean("watch", false, "write it again while a run goes on; an open page loads itself again").group("Output");
  table.integer("interval", 10, "seconds between looks at the runs, for --watch").bounds(1, 86400).group("Output");
  const auto parsed = parse_command(
      {"report", "one page of a run, or of runs compared: curves, settings, time, errors", "TRAIN_DIR..."}, table,
      arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  if (parsed->positional.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "trainyard report needs the folder of a run",
                                              .remedy = "name the --train_dir of one or more trainings"});
  }
  const bool watch = values.boolean("watch");
  if (!watch && values.given("interval")) {
    throw Error(ErrorCode::kInvalidArgument, "--interval is for --watch");
  }
  const std::vector<std::string> folders = find_run_folders(parsed->positional);
  std::string output = values.text("output");
  if (output.empty()) output = folders.size() == 1 ? core::join_path(folders[0], "report.html") : "report.html";
  require_no_folder("output", output);
  const std::optional<int64_t> interval = watch ? std::optional(values.integer("interval")) : std::nullopt;
  int64_t seen = last_change(folders);
  WrittenReport written = write_report(folders, output, interval);
  fmt::print(console.out, "Report: {} ({} {}, {:.0f} kB)\n", output, folders.size(),
             folders.size() == 1 ? "run" : "runs", static_cast<double>(written.bytes) / 1000);
  while (watch && written.running) {
    console.out.flush();
    if (console.stop.wait_for(std::chrono::seconds(*interval))) return kSuccess;
    const int64_t now = last_change(folders);
    if (now == seen) continue;
    seen = now;
    written = write_report(folders, output, interval);
  }
  return kSuccess;
}

}  // namespace trainyard::cli
