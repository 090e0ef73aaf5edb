// The suite of tf_cnn_benchmarks: lists its entries, or runs those of a pattern.
#include <exception>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/frontends/suite/suite.h"

namespace trainyard::cli {
namespace {

core::Error no_such_entry(const std::string& pattern) {
  return {core::ErrorCode::kNotFound,
          {.problem = "no entry of the suite has such a name",
           .actual = pattern,
           .remedy = "trainyard suite --list names them all"}};
}

void list_entries(const std::string& pattern, const frontends::SuiteMachine& machine, std::ostream& out) {
  size_t listed = 0, runnable = 0;
  for (const frontends::SuiteEntry& entry : frontends::suite_entries()) {
    if (!core::matches_pattern(std::string(entry.name), pattern)) continue;
    const frontends::ScaledEntry scaled = frontends::scale_entry(entry, machine);
    fmt::print(out, "{}\n  {}\n", entry.name, entry.arguments);
    ++listed;
    if (!scaled.refusal.empty()) {
      fmt::print(out, "  does not run here: {}\n", scaled.refusal);
      continue;
    }
    ++runnable;
    if (!scaled.changes.empty()) fmt::print(out, "  changed here: {}\n", fmt::join(scaled.changes, ", "));
  }
  if (listed == 0) throw no_such_entry(pattern);
  fmt::print(out, "{} of {} entries run here\n", runnable, listed);
}

// Throws where the results could not be written: an hour of benchmarks would be lost.
void require_place_for(const std::string& output) {
  require_no_folder("output", output);
  const std::string folder = core::parent_path(core::resolve_user_output(output).path);
  if (core::local_file_system().exists(folder)) return;
  throw core::Error(
      core::ErrorCode::kNotFound,
      {.problem = "the folder of --output is not there", .where = folder, .remedy = "make it, or name another file"});
}

frontends::SuiteHistory read_history(const std::string& path) {
  core::FileSystem& files = core::local_file_system();
  const bool is_there = files.exists(path) && !core::resolve_user_output(path).is_stream;
  const std::string text = is_there ? files.read_file(path) : "";
  try {
    return frontends::SuiteHistory(text);
  } catch (const core::Error& error) {
    throw error.in(path);
  }
}

// Runs the entries of the pattern. Returns what has ended them early, such as a signal, or null: `results` has those
// that had run by then.
std::exception_ptr run_entries(const std::string& pattern, const frontends::SuiteMachine& machine, double seconds,
                               const core::StopToken& stop, std::vector<frontends::SuiteResult>& results) {
  try {
    for (const frontends::SuiteEntry& entry : frontends::suite_entries()) {
      if (!core::matches_pattern(std::string(entry.name), pattern)) continue;
      core::log::info("suite: {}", entry.name);
      results.push_back(frontends::run_suite_entry(entry, machine, seconds, stop));
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// An entry that this machine cannot run is left out; one that began and failed makes the suite fail, as does a suite of
// which nothing ran.
int exit_code_of(const std::vector<frontends::SuiteResult>& results) {
  bool ran = false;
  for (const frontends::SuiteResult& result : results) {
    if (!result.error.empty() && !result.refused) return kFailure;
    ran = ran || result.error.empty();
  }
  return ran ? kSuccess : kFailure;
}

}  // namespace

int run_suite(const Arguments& arguments, Console& console) {
  constexpr const char* kGroup = "Suite";
  core::FlagTable table;
  table
      .boolean("list", false,
               "print the entries, their command lines, what this machine changes of them, and which do not run")
      .group(kGroup);
  table.text("run", std::nullopt, "run the entries of this name; * stands for any characters").group(kGroup);
  table.real("minutes", 1, "time of an entry: batch and steps are cut to it").bounds(0.01, 1e5).group(kGroup);
  table.text("data_dir", "", "ImageNet's TFRecords, for entries with data").group(kGroup);
  table.text("output", "trainyard_suite.json", "the file of results, which holds those of earlier runs, too")
      .group(kGroup);
  const auto parsed = parse_command({"suite", "the benchmarks of tf_cnn_benchmarks, scaled to this machine", ""}, table,
                                    arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const frontends::SuiteMachine machine = frontends::suite_machine(values.text("data_dir"));
  const std::string pattern = values.text("run");
  if (values.boolean("list")) {
    refuse_given(values, {"minutes", "output"}, "--list");
    list_entries(pattern.empty() ? "*" : pattern, machine, console.out);
    return kSuccess;
  }
  if (pattern.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "trainyard suite needs to know what to do",
                                                          .remedy = "pass --list, or --run=PATTERN"});
  }
  const std::string output = values.text("output");
  require_place_for(output);
  const frontends::SuiteHistory before = read_history(output);
  std::vector<frontends::SuiteResult> results;
  const std::exception_ptr ended = run_entries(pattern, machine, 60 * values.real("minutes"), console.stop, results);
  if (results.empty() && ended) std::rethrow_exception(ended);
  if (results.empty()) throw no_such_entry(pattern);
  console.out << frontends::suite_table(results, before);
  core::write_user_output(output, before.with(results, machine));
  if (ended) std::rethrow_exception(ended);
  return exit_code_of(results);
}

}  // namespace trainyard::cli
