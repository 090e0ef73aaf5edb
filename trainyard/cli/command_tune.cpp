// A search for the best values of flags: trials that train, and a table of what they reached.
#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/tune_record.h"
#include "trainyard/cli/tune_run.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/next_commands.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::cli {
namespace {

constexpr auto kDialect = frontends::Dialect::kTrainyard;
constexpr int64_t kMostChecked = 100;  // trials whose flags are read before anything runs

std::string usual_directory(const std::string& file) {
  for (const char* extension : {".yaml", ".yml"}) {
    if (file.ends_with(extension)) return file.substr(0, file.size() - std::string(extension).size());
  }
  return file + ".tune";
}

// Throws where no trial could run: then the file is wrong, and not one of its values.
void check_trials(const TuneFile& file, const TuneOptions& options) {
  std::optional<core::Error> first;
  for (int64_t number = 0; number < std::min(file.trials, kMostChecked); ++number) {
    const Trial trial{.number = number, .flags = trial_flags(file, number)};
    Arguments arguments = trial_arguments(file, options, trial, 0, 0);
    arguments.erase(arguments.begin());
    try {
      static_cast<void>(
          frontends::read_options(core::parse_flags(frontends::tf_cnn_flags(kDialect), arguments), kDialect));
      return;
    } catch (const core::Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw core::Error(*first);
}

void make_directory(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  const auto is_foreign = [](const std::string& name) { return name != kTuneLock; };  // which a kill leaves behind
  const std::vector<std::string> names = files.exists(directory) ? files.list(directory) : std::vector<std::string>();
  if (std::any_of(names.begin(), names.end(), is_foreign) && !files.exists(core::join_path(directory, kTuneRecord))) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the folder of a search holds other files",
                                                          .where = directory,
                                                          .remedy = "name another one with --tune_dir"});
  }
  files.make_directories(directory);
}

void print_commands(const TuneFile& file, const TuneOptions& options, std::ostream& out) {
  for (int64_t number = 0; number < file.trials; ++number) {
    const Trial trial{.number = number, .flags = trial_flags(file, number)};
    out << "trainyard";
    for (const std::string& argument : trial_arguments(file, options, trial, 0, trial_threads(options))) {
      out << ' ' << frontends::shell_word(argument);
    }
    out << '\n';
  }
}

void print_best(const TuneFile& file, const TuneOptions& options, const std::vector<Trial>& trials, std::ostream& out) {
  const std::vector<size_t> ranked = ranked_trials(file, trials);
  if (ranked.empty()) return;
  const Trial& best = trials[ranked[0]];
  fmt::print(out, "Best:    trial {}, {} {:.4f}, in {}\nTrain:   trainyard train", best.number, file.metric,
             best.results.back().value, core::join_path(options.directory, trial_name(best.number)));
  for (const auto& [name, value] : best.flags) out << ' ' << frontends::shell_word(fmt::format("--{}={}", name, value));
  fmt::print(out, " --num_epochs={}\n", file.epochs);
}

}  // namespace

int run_tune_command(const Arguments& arguments, Console& console) {
  constexpr const char* kGroup = "Search";
  core::FlagTable table;
  table.text("tune_dir", "", "folder of the search, which continues what is there; empty: FILE without .yaml")
      .group(kGroup);
  table.integer("max_parallel", 1, "trials that run at a time, each with its share of the cores")
      .bounds(1, 1024)
      .group(kGroup);
  table.boolean("retry_failed", false, "continue the trials that failed, too").group(kGroup);
  table.boolean("dry_run", false, "print the first command of each trial, and run nothing").group(kGroup);
  const auto parsed = parse_command(
      {"tune", "search for the best values of flags: random search, successive halving, ASHA", "FILE.yaml"}, table,
      arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->positional.size() != 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "trainyard tune takes one file, which describes the search",
                       .actual = fmt::format("{} files", parsed->positional.size()),
                       .remedy = "see docs/howto/find_the_settings.md"});
  }
  const core::FlagValues& values = parsed->values;
  const TuneFile file = read_tune_file(parsed->positional[0], frontends::tf_cnn_flags(kDialect));
  TuneOptions options{.directory = values.text("tune_dir"),
                      .program = parallel::own_program(),
                      .max_parallel = static_cast<int>(values.integer("max_parallel")),
                      .retry_failed = values.boolean("retry_failed")};
  if (options.directory.empty()) options.directory = usual_directory(parsed->positional[0]);
  check_trials(file, options);
  if (values.boolean("dry_run")) {
    print_commands(file, options, console.out);
    return kSuccess;
  }
  make_directory(options.directory);
  const core::LockFile lock(core::join_path(options.directory, kTuneLock));
  const std::vector<Trial> trials = run_tune(file, options, console.out, console.stop);
  core::FileSystem& files = core::local_file_system();
  const auto path = [&](const char* name) { return core::join_path(options.directory, name); };
  files.write_file_atomically(path("tune.csv"), tune_csv(file, trials));
  const std::string title = fmt::format("{}: {}", core::base_name(parsed->positional[0]), file.metric);
  const std::string picture = tune_svg(file, trials, title);
  if (!picture.empty()) files.write_file_atomically(path("tune.svg"), picture);
  console.out << tune_table(file, trials);
  print_best(file, options, trials, console.out);
  fmt::print(console.out, "Table:   {}\n", path("tune.csv"));
  if (!picture.empty()) fmt::print(console.out, "Picture: {}\n", path("tune.svg"));  // none where no trial has a result
  fmt::print(console.out, "Report:  trainyard report {}\n", frontends::shell_word(options.directory));
  if (console.stop.stop_requested()) return kStoppedBySignal;
  return ranked_trials(file, trials).empty() ? kFailure : kSuccess;
}

}  // namespace trainyard::cli
