#include "trainyard/recipes/tf_cnn/flags.h"

#include <array>

#include "trainyard/core/flags/core_flags.h"
#include "trainyard/data/flags.h"
#include "trainyard/models/flags.h"
#include "trainyard/nn/flags.h"
#include "trainyard/optim/flags.h"
#include "trainyard/parallel/flags.h"
#include "trainyard/train/flags.h"

namespace trainyard::recipes {
namespace {

struct Default {
  const char* flag;
  const char* value;
};

// What `trainyard train` and `trainyard eval` do otherwise than tf_cnn_benchmarks unless a flag says so.
constexpr std::array<Default, 5> kTrainyardDefaults = {{
    {"eval_exact", "true"},
    {"existing_run", "ask"},
    {"keep_best", "top_1"},
    {"on_nan", "stop"},
    {"summary_verbosity", "1"},
}};

// The same where the default is a rule.
constexpr std::array<Default, 4> kTrainyardRules = {{
    {"input_preprocessor", "that of the checkpoint or of --weights, else default"},
    {"num_warmup_batches", "0; with forward_only max(10, 5 autotune_threshold^2)"},
    {"save_summaries_steps", "the steps that are displayed"},
    {"weights_of", "those that the training of the checkpoint evaluated, else average"},
}};

core::FlagTable declare_all() {
  // In the order of --help: what every run needs first.
  core::FlagTable table;
  models::declare_flags(table);
  data::declare_input_flags(table);
  train::declare_flags(table);
  optim::declare_flags(table);
  nn::declare_flags(table);
  parallel::declare_flags(table);
  core::declare_flags(table);
  return table;
}

}  // namespace

const core::FlagTable& tf_cnn_flags(Dialect dialect) {
  static const core::FlagTable tf_cnn_benchmarks = declare_all();
  static const core::FlagTable trainyard = [] {
    core::FlagTable table = declare_all();
    for (const Default& own : kTrainyardDefaults) table.set_default(own.flag, own.value);
    for (const Default& own : kTrainyardRules) table.set_automatic(own.flag, own.value);
    return table;
  }();
  return dialect == Dialect::kTrainyard ? trainyard : tf_cnn_benchmarks;
}

std::string tf_cnn_flags_page() {
  return core::help_markdown(tf_cnn_flags(Dialect::kTfCnnBenchmarks),
                             {.command = "trainyard train", .table = &tf_cnn_flags(Dialect::kTrainyard)});
}

}  // namespace trainyard::recipes
