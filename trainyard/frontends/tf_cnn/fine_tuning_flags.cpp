#include "trainyard/frontends/tf_cnn/fine_tuning_flags.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;
using core::FlagValues;

struct Setting {
  const char* flag;
  const char* value;
  // Flags that say otherwise what this one says; one of them given leaves this one out.
  std::vector<const char*> instead{};
};

// docs/howto/fine_tune.md says why each is what it is.
const std::vector<Setting>& fixed_settings() {
  static const std::vector<Setting> settings = {
      {"optimizer", "torch_adamw"},
      {"weight_decay", "0.05"},
      {"learning_rate_schedule",
       "cosine",
       {"piecewise_learning_rate_schedule", "num_epochs_per_decay", "learning_rate_decay_factor"}},
      {"init_learning_rate", "0.0003", {"piecewise_learning_rate_schedule"}},
      {"parameter_groups", "head:10"}};
  return settings;
}

// Returns whether the user has said what the flag is to be. A file of all flags repeats all defaults.
bool is_said(const FlagValues& values, const char* flag) {
  return values.source(flag) == core::FlagSource::kCommandLine || values.changed(flag);
}

bool is_said(const FlagValues& values, const std::vector<const char*>& flags) {
  return std::any_of(flags.begin(), flags.end(), [&](const char* flag) { return is_said(values, flag); });
}

void refuse(bool holds, const std::string& problem, const std::string& remedy) {
  if (holds) throw Error(ErrorCode::kInvalidArgument, {.problem = problem, .where = "--finetune", .remedy = remedy});
}

void check_fine_tuning(const FlagValues& values, Dialect dialect) {
  refuse(dialect == Dialect::kTfCnnBenchmarks, "--finetune is a flag of trainyard train", "use `trainyard train`");
  for (const char* mode : {"eval", "forward_only"}) {
    refuse(values.boolean(mode), fmt::format("--finetune is for trainings: {} trains nothing", mode), "leave it out");
  }
  refuse(values.boolean("synthetic"), "nothing is learned from synthetic images", "pass --data_dir");
  const std::string train_dir = values.text("train_dir");
  const bool resumes = !train_dir.empty() && train::holds_run(train_dir);
  refuse(values.text("weights").empty() && !resumes, "there are no weights to start from",
         "pass --weights=FILE: weights of torchvision or timm (and --model, where they are torchvision's), what "
         "`trainyard export` wrote, or the folder of a run");
  // The rate that is chosen is one of AdamW.
  refuse(is_said(values, "optimizer") && !is_said(values, "init_learning_rate") &&
             !is_said(values, "piecewise_learning_rate_schedule"),
         "a rate for --optimizer=" + values.text("optimizer") + " is not known", "pass --init_learning_rate, too");
}

}  // namespace

FlagValues with_fine_tuning(const FlagValues& given, Dialect dialect) {
  FlagValues values = given;
  if (!given.boolean("finetune")) return values;
  check_fine_tuning(given, dialect);
  for (const Setting& setting : fixed_settings()) {
    if (is_said(given, setting.flag) || is_said(given, setting.instead)) continue;
    values.set(setting.flag, setting.value, core::FlagSource::kProgram);
  }
  return values;
}

std::optional<FineTuneOptions> read_fine_tuning(const FlagValues& given, const FlagValues& values) {
  if (!values.boolean("finetune")) return std::nullopt;
  FineTuneOptions options;
  options.chooses_batch_size = !is_said(given, "batch_size");
  options.chooses_epochs = !is_said(given, {"num_epochs", "num_batches"});
  options.chooses_warmup = values.source("learning_rate_schedule") == core::FlagSource::kProgram &&
                           !is_said(given, "num_learning_rate_warmup_epochs");
  options.chooses_early_stop = !is_said(given, "early_stop");
  options.chooses_precision = !is_said(given, {"use_bf16", "use_fp16"});
  options.chooses_label_smoothing = !is_said(given, "label_smoothing");
  options.chooses_crop = !is_said(given, {"random_crop", "random_crop_area"});
  options.chooses_freezing = !is_said(given, {"freeze", "freeze_until", "freeze_after"});
  for (const Setting& setting : fixed_settings()) {
    if (values.source(setting.flag) != core::FlagSource::kProgram) continue;
    options.chosen.emplace_back(setting.flag, core::format_flag_value(values.value(setting.flag)));
  }
  return options;
}

}  // namespace trainyard::frontends
