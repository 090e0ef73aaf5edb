#include <algorithm>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_description.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::cli {
namespace {

core::log::Level level_of(const std::string& name) {
  using core::log::Level;
  if (name == "debug") return Level::kDebug;
  if (name == "warning") return Level::kWarning;
  if (name == "error") return Level::kError;
  return name == "off" ? Level::kOff : Level::kInfo;
}

// --kmp_blocktime: the count of turns that libgomp read when it was loaded must be the one that the flags ask for.
void apply_spin_count(const core::FlagValues& values, const frontends::ThreadOptions& threads, const Console& console) {
  constexpr const char* kName = "GOMP_SPINCOUNT";
  const std::optional<std::string> wanted = frontends::wanted_spin_count(threads);
  const char* present = std::getenv(kName);
  if (!wanted || (present != nullptr && *wanted == present) || console.stop.stop_requested()) return;
  if (!values.given("kmp_blocktime") && present != nullptr && kName + std::string("=") + present != core::kShortSpins) {
    core::log::warning("mkl: the default of kmp_blocktime replaces {}={} of the environment", kName, present);
  }
  const std::string setting = fmt::format("{}={}", kName, *wanted);
  if (console.restart_with) console.restart_with(setting);
  core::log::warning("kmp_blocktime has no effect: it needs {} in the environment when the program starts", setting);
}

// --max_cpu_isa: libraries read their limits when they are first used, and this process may have used them.
void apply_cpu_isa(const std::string& wanted, const Console& console) {
  if (wanted == "auto" || core::parse_cpu_isa_limit(wanted) == core::cpu_isa_limit()) return;
  if (console.restart_with && !console.stop.stop_requested()) {
    console.restart_with(fmt::format("{}={}", core::kMaxCpuIsaVariable, wanted));
  }
}

int run(const core::FlagValues& values, frontends::Dialect dialect, Console& console,
        const std::function<void(frontends::TfCnnOptions&)>& change = {}) {
  core::log::set_level(level_of(values.text("log_level")));
  if (values.boolean("dump_config")) {
    console.out << core::dump_config(values);
    return kSuccess;
  }
  frontends::TfCnnOptions options = frontends::read_options(values, dialect);
  if (change) change(options);
  apply_spin_count(values, options.threads, console);
  apply_cpu_isa(options.device.max_cpu_isa, console);
  const frontends::RunStatistics statistics = frontends::BenchmarkCnn(options).run(console.out, console.stop);
  return statistics.stopped_by_signal ? kStoppedBySignal : kSuccess;
}

bool has_any(const Arguments& arguments, std::initializer_list<std::string_view> words) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const auto& a) { return std::find(words.begin(), words.end(), a) != words.end(); });
}

bool asks_for_help(const Arguments& arguments) {
  return has_any(arguments, {"--help", "-h", "--help=all"});
}

constexpr const char* kEvalSummary = "evaluate the newest checkpoint of a run, or a file of weights";
constexpr const char* kTrainSummary = "train a model; it is evaluated and saved at the end of each epoch";
constexpr const char* kFindLrSummary =
    "propose a learning rate: train for some steps with rates that rise, and see where the loss falls";

void describe(const char* name, const char* summary, core::FlagTable table, Console& console) {
  table.boolean("help", false, "the flags that most people use; --help=all: all").group("General");
  console.descriptions->push_back({.name = name, .summary = summary, .flags = std::move(table)});
}

// The help of a command: the flags that people use, or all.
int print_help(const Arguments& arguments, frontends::RunMode mode, Console& console) {
  const core::FlagTable& table = frontends::tf_cnn_flags(frontends::Dialect::kTrainyard);
  const bool evaluates = mode == frontends::RunMode::kEvaluation;
  const char* const name = evaluates ? "eval" : "train";
  if (has_any(arguments, {"--help=all"})) {
    fmt::print(console.out, "trainyard {}: all flags of train and eval, by group\n\n{}", name, core::help_text(table));
    return kSuccess;
  }
  const std::string usage = evaluates ? "--train_dir=RUN --data_dir=IMAGES" : "--model=NAME --data_dir=IMAGES";
  const char* const what = evaluates ? kEvalSummary : kTrainSummary;
  fmt::print(console.out,
             "trainyard {}: {}\n\nusage: trainyard {} {} [--flag=value ...]\n\n{}\n"
             "These are the flags that most people use. `trainyard {} --help=all` shows all {}.\n",
             name, what, name, usage, core::help_text(table, frontends::common_flags(mode)), name, table.all().size());
  return kSuccess;
}

core::FlagTable range_test_flags() {
  constexpr const char* kGroup = "Range test";
  const optim::RangeTestOptions usual;
  core::FlagTable table;
  table.real("min_lr", usual.lowest, "learning rate of the first step").above(0).group(kGroup);
  table.real("max_lr", usual.highest, "learning rate of the last step").above(0).group(kGroup);
  table.integer("num_steps", usual.steps, "steps in which the rate rises exponentially from min_lr to max_lr")
      .bounds(10, 1'000'000)
      .group(kGroup);
  table.real("smoothing", usual.smoothing, "share of the earlier losses in the smoothed one; 0: each loss as it is")
      .bounds(0)
      .below(1)
      .group(kGroup);
  table.text("output", "find_lr.svg", "the plot; its numbers are in the same place as .csv").group(kGroup);
  return table;
}

// `own`: the flags of the range test; `all`: those of a training, too.
void print_find_lr_help(const Arguments& arguments, const core::FlagTable& own, const core::FlagTable& all,
                        Console& console) {
  if (has_any(arguments, {"--help=all"})) {
    fmt::print(console.out, "trainyard find-lr: its flags and all flags of train, by group\n\n{}",
               core::help_text(all));
    return;
  }
  fmt::print(
      console.out,
      "trainyard find-lr: {}\n\nusage: trainyard find-lr --model=NAME --data_dir=IMAGES [--flag=value ...]\n\n{}\n"
      "It also takes the flags of `trainyard train`; those of its length, its schedule, its evaluations and its "
      "saving\nhave no effect. `trainyard find-lr --help=all` shows all. The checkpoints of --train_dir are read and "
      "never changed.\n",
      kFindLrSummary, core::help_text(own));
}

// What a training says of its evaluations has no effect on a range test.
void leave_out_evaluations(frontends::TfCnnOptions& options) {
  if (options.mode == frontends::RunMode::kTrainingAndEvaluation) options.mode = frontends::RunMode::kTraining;
  options.evaluate_each_epoch = false;
  options.steps.eval_every_n_steps.reset();
  options.steps.eval_every_n_epochs.reset();
  options.steps.eval_at_steps.clear();
  options.steps.eval_at_epochs.clear();
  options.early_stop.reset();
  options.early_stop_min_delta = 0;
  options.early_stop_metric.clear();
  options.tta = train::TestTimeAugmentation::kNone;
}

}  // namespace

int run_flags_alone(const Arguments& arguments, Console& console) {
  constexpr auto kDialect = frontends::Dialect::kTfCnnBenchmarks;
  if (asks_for_help(arguments)) {
    console.out << core::help_text(frontends::tf_cnn_flags(kDialect));
    return kSuccess;
  }
  return run(core::parse_flags(frontends::tf_cnn_flags(kDialect), arguments), kDialect, console);
}

int run_train(const Arguments& arguments, Console& console) {
  constexpr auto kDialect = frontends::Dialect::kTrainyard;
  if (console.descriptions != nullptr) {
    describe("train", kTrainSummary, frontends::tf_cnn_flags(kDialect), console);
    return kSuccess;
  }
  if (asks_for_help(arguments)) return print_help(arguments, frontends::RunMode::kTraining, console);
  return run(core::parse_flags(frontends::tf_cnn_flags(kDialect), arguments, core::Repeats::kRefused), kDialect,
             console);
}

int run_find_lr(const Arguments& arguments, Console& console) {
  constexpr auto kDialect = frontends::Dialect::kTrainyard;
  const core::FlagTable own = range_test_flags();
  core::FlagTable table = frontends::tf_cnn_flags(kDialect);
  for (const core::FlagSpec& spec : own.all()) table.add(spec);
  if (console.descriptions != nullptr) {
    describe("find-lr", kFindLrSummary, std::move(table), console);
    return kSuccess;
  }
  if (asks_for_help(arguments)) {
    print_find_lr_help(arguments, own, table, console);
    return kSuccess;
  }
  const core::FlagValues values = core::parse_flags(table, arguments, core::Repeats::kRefused);
  require_no_folder("output", values.text("output"));
  return run(values, kDialect, console, [&values](frontends::TfCnnOptions& options) {
    leave_out_evaluations(options);
    options.range_test = frontends::RangeTestRequest{.rates = {.lowest = values.real("min_lr"),
                                                               .highest = values.real("max_lr"),
                                                               .steps = values.integer("num_steps"),
                                                               .smoothing = values.real("smoothing")},
                                                     .picture = values.text("output")};
  });
}

int run_eval(const Arguments& arguments, Console& console) {
  if (console.descriptions != nullptr) {
    describe("eval", kEvalSummary, frontends::tf_cnn_flags(frontends::Dialect::kTrainyard), console);
    return kSuccess;
  }
  if (asks_for_help(arguments)) return print_help(arguments, frontends::RunMode::kEvaluation, console);
  constexpr auto kDialect = frontends::Dialect::kTrainyard;
  core::FlagValues values = core::parse_flags(frontends::tf_cnn_flags(kDialect), arguments, core::Repeats::kRefused);
  values.set("eval", "true", core::FlagSource::kProgram);
  // The file of a training serves its evaluation, too: what it says of the training alone has no meaning here, nor have
  // the weights that a run began with.
  const bool has_run = !values.text("train_dir").empty(), has_precision = values.changed("precision");
  for (const std::string& name : values.table().names()) {
    if (values.source(name) != core::FlagSource::kFile) continue;
    if (name == "calibration_batches" && has_precision) continue;  // of --precision=int8
    if (frontends::is_training_flag(name) || (name == "weights" && has_run)) values.reset(name);
  }
  return run(values, kDialect, console);
}

}  // namespace trainyard::cli
