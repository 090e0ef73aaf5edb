#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <ostream>
#include <set>
#include <system_error>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/report/report_page.h"
#include "trainyard/cli/tune_record.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/session/run_lock.h"

namespace trainyard::cli {
namespace {

using core::Error;
using core::ErrorCode;

constexpr size_t kMostRuns = 2000;

// What a report is made of.
struct Sources {
  std::vector<std::string> runs{};      // folders
  std::vector<std::string> searches{};  // folders with a record
};

bool is_search_folder(const std::string& directory) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(core::join_path(directory, kTuneRecord), unknown);
}

// Returns the folders of runs: `directory`, or the runs in it when it is none itself. A search may have none yet.
std::vector<std::string> runs_in(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  if (is_run_folder(directory)) return {directory};
  std::vector<std::string> found;
  if (files.exists(directory) && files.info(directory).is_directory) {
    for (const std::string& name : files.list(directory)) {
      if (std::string path = core::join_path(directory, name); is_run_folder(path)) found.push_back(std::move(path));
    }
  }
  if (!found.empty() || is_search_folder(directory)) return found;
  throw Error(ErrorCode::kNotFound, {.problem = "no run is in this folder",
                                     .where = directory,
                                     .expected = "run_summary.json or metrics.jsonl, in it or in folders in it",
                                     .remedy = "name the --train_dir of a training"});
}

// Returns the folder in which the run's folder is.
std::string folder_around(const std::string& run) {
  std::error_code unknown;
  std::filesystem::path path = std::filesystem::path(run).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
  if (!path.has_parent_path() || path.filename() == "." || path.filename() == "..") {
    path = std::filesystem::absolute(run, unknown).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
  }
  return path.parent_path().string();
}

// Finds the runs, and the searches that are named or that runs are trials of.
Sources find_sources(const std::vector<std::string>& arguments) {
  Sources found;
  std::set<std::string> seen_runs, seen_searches;
  const auto add_run = [&](std::string run) {
    const std::string whole = core::real_path(run), last = core::base_name(core::without_slashes(run));
    if (last == "." || last == "..") run = whole;  // else the page would call it "."
    if (seen_runs.insert(whole).second) found.runs.push_back(std::move(run));
  };
  const auto add_search = [&](const std::string& directory) {
    if (is_search_folder(directory) && seen_searches.insert(core::real_path(directory)).second) {
      found.searches.push_back(directory);
    }
  };
  for (const std::string& argument : arguments) {
    add_search(argument);
    for (std::string& run : runs_in(argument)) add_run(std::move(run));
  }
  for (const std::string& run : found.runs) add_search(folder_around(run));
  if (found.runs.size() > kMostRuns) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "too many runs for one report",
                                              .expected = fmt::format("at most {}", kMostRuns),
                                              .actual = std::to_string(found.runs.size())});
  }
  return found;
}

// Returns whether a process writes into the folder of a run or a search. A killed one leaves its lock behind.
bool is_written(const std::string& folder, const char* lock) {
  try {
    return core::is_lock_held(core::join_path(folder, lock));
  } catch (const core::Error&) {
    return true;  // another user's, which cannot be read
  }
}

// Returns whether a process trains in the run's folder. One that continues a run takes the lock first: until it writes
// a summary of its own, the folder has that of the run before, which has ended.
bool is_running(const std::string& folder, const std::string& status) {
  if (!is_written(folder, train::kRunLock)) return false;
  if (status == "running") return true;
  std::error_code no_lock, no_summary;
  const auto locked = std::filesystem::last_write_time(core::join_path(folder, train::kRunLock), no_lock);
  const auto summary = std::filesystem::last_write_time(core::join_path(folder, "run_summary.json"), no_summary);
  return !no_lock && (no_summary || locked > summary);
}

struct WrittenReport {
  size_t bytes = 0;
  bool running = false;  // a run or a search of it has not ended
};

WrittenReport write_report(const Sources& sources, const std::string& output, std::optional<int64_t> interval) {
  WrittenReport written;
  std::vector<ReportRun> runs;
  for (const std::string& folder : sources.runs) {
    runs.push_back(read_report_run(folder));
    written.running = written.running || is_running(folder, text_at(runs.back().summary, "status").value_or(""));
  }
  name_runs(runs);
  std::vector<ReportSearch> searches;
  for (const std::string& folder : sources.searches) {
    written.running = written.running || is_written(folder, kTuneLock);
    if (auto search = read_report_search(core::join_path(folder, kTuneRecord))) searches.push_back(*std::move(search));
  }
  ReportPageOptions options{.now = train::system_wall_clock()};
  if (written.running) options.reload_seconds = interval;
  const std::string page = report_page(std::move(runs), options, searches);
  written.bytes = page.size();
  core::write_user_output(output, page);
  return written;
}

// Returns when the files that a report shows were last written, over all runs, and how many runs and searches are
// written into: the end of a search, and a kill, write none of these files.
std::pair<int64_t, int64_t> last_change(const Sources& sources) {
  int64_t last = std::numeric_limits<int64_t>::min();  // times of files may count from the future
  const auto look_at = [&last](const std::string& folder, const char* name) {
    std::error_code missing;
    const auto time = std::filesystem::last_write_time(core::join_path(folder, name), missing);
    if (!missing) last = std::max<int64_t>(last, time.time_since_epoch().count());
  };
  int64_t held = 0;
  for (const std::string& folder : sources.runs) {
    for (const char* name : {"run_summary.json", "metrics.jsonl", "evaluation.json"}) look_at(folder, name);
    held += is_written(folder, train::kRunLock) ? 1 : 0;
  }
  for (const std::string& folder : sources.searches) {
    look_at(folder, kTuneRecord);
    held += is_written(folder, kTuneLock) ? 1 : 0;
  }
  return {last, held};
}

// Returns the page's place where the command line names none.
std::string usual_output(const std::vector<std::string>& arguments, const Sources& sources) {
  if (arguments.size() == 1 && is_search_folder(arguments[0])) return core::join_path(arguments[0], "report.html");
  return sources.runs.size() == 1 ? core::join_path(sources.runs[0], "report.html") : "report.html";
}

}  // namespace

int run_report(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table
      .text("output", std::nullopt,
            "the page to write; unset: report.html in TRAIN_DIR or the folder of a search, for several runs in the "
            "current "
            "folder")
      .group("Output");
  table.boolean("watch", false, "write it again while a run goes on; an open page loads itself again").group("Output");
  table.integer("interval", 10, "seconds between looks at the runs, for --watch").bounds(1, 86400).group("Output");
  const auto parsed = parse_command(
      {"report", "one page of a run, of runs compared, or of a search: curves, settings, time, errors", "TRAIN_DIR..."},
      table, arguments, console);
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
  Sources sources = find_sources(parsed->positional);
  std::string output = values.text("output");
  if (output.empty()) output = usual_output(parsed->positional, sources);
  require_no_folder("output", output);
  const std::optional<int64_t> interval = watch ? std::optional(values.integer("interval")) : std::nullopt;
  auto seen = last_change(sources);
  WrittenReport written = write_report(sources, output, interval);
  fmt::print(console.out, "Report: {} ({} {}, {:.0f} kB)\n", output, sources.runs.size(),
             sources.runs.size() == 1 ? "run" : "runs", static_cast<double>(written.bytes) / 1000);
  while (watch && written.running) {
    console.out.flush();
    if (console.stop.wait_for(std::chrono::seconds(*interval))) return kSuccess;
    sources = find_sources(parsed->positional);  // a search begins new runs
    const auto now = last_change(sources);
    if (now == seen) continue;
    seen = now;
    written = write_report(sources, output, interval);
  }
  return kSuccess;
}

}  // namespace trainyard::cli
