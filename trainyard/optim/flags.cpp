#include "trainyard/optim/flags.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

struct Renamed {
  const char *word, *name;
};
// What tf_cnn_benchmarks calls its optimizers, in its order.
constexpr Renamed kTfCnnBenchmarks[] = {
    {"momentum", "tf_nesterov"}, {"sgd", "sgd"}, {"rmsprop", "tf_rmsprop"}, {"adam", "tf_adam"}};
// What earlier versions called others.
constexpr Renamed kFormer[] = {{"plain_momentum", "tf_momentum"}, {"adamw", "torch_adamw"}, {"nadam", "torch_nadam"}};

// Declares the flags that optimizers declare next to their formulas, from the last name to the first.
void declare_flags_of_formulas(core::FlagTable& table, const std::string& group) {
  std::vector<std::string> names = optimizer_formulas().names();
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    for (const OptimizerNumber& number : optimizer_formulas().get(name).numbers) {
      if (number.flag_help.empty() || table.find(number.flag) != nullptr) continue;
      if (number.range == NumberRange::kChoice) {
        const std::string& word = number.choices[static_cast<size_t>(number.default_value)];
        table.choice(number.flag, word, number.choices, number.flag_help).group(group);
      } else if (number.range == NumberRange::kCount) {
        table.integer(number.flag, static_cast<int64_t>(number.default_value), number.flag_help).group(group);
      } else if (number.range == NumberRange::kSwitch) {
        table.boolean(number.flag, number.default_value != 0, number.flag_help).group(group);
      } else {
        table.real(number.flag, number.default_value, number.flag_help).group(group);
      }
    }
  }
}

}  // namespace

void declare_optimizer_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Optimizer";
  std::vector<std::string> values;
  for (const Renamed& each : kTfCnnBenchmarks) values.emplace_back(each.word);
  for (const std::string& name : optimizer_formulas().names()) {
    if (name != "sgd") values.push_back(name);
  }
  core::FlagSpec& optimizer =
      table
          .choice("optimizer", "sgd", values,
                  "tf_cnn_benchmarks' momentum, rmsprop and adam are tf_nesterov, tf_rmsprop and tf_adam; `trainyard "
                  "help` ends with the formula of each")
          .group(kGroup);
  for (const Renamed& each : kFormer) optimizer.former_value(each.word, each.name);
  table.real("momentum", 0.9, "of the momentum optimizers and lars").group(kGroup);
  table.boolean("nesterov", false, "Nesterov's form of torch_momentum and keras_momentum").group(kGroup);
  table.real("momentum_dampening", 0, "of torch_momentum: what the velocity does not take of later gradients")
      .group(kGroup);
  table.real("rmsprop_decay", 0.9, "decay of the rmsprop optimizers' mean square").group(kGroup);
  table.real("rmsprop_momentum", 0.9, "momentum of the rmsprop optimizers").group(kGroup);
  table
      .real("rmsprop_epsilon", 1.0, "added inside tf_rmsprop's and keras_rmsprop's square root, behind torch_rmsprop's")
      .group(kGroup);
  table.boolean("rmsprop_centered", false, "divide by the root of the variance in the place of the mean square")
      .group(kGroup);
  table.real("adam_beta1", 0.9, "decay of the adam and nadam optimizers' and lamb's mean").group(kGroup);
  table.real("adam_beta2", 0.999, "decay of the adam and nadam optimizers' and lamb's mean square").group(kGroup);
  table.real("adam_epsilon", 1e-8, "added to the adam and nadam optimizers' and lamb's root").group(kGroup);
  declare_flags_of_formulas(table, kGroup);
  table
      .boolean("adapt_undecayed", false,
               "lars and lamb give parameters that do not decay (batch normalization's) a rate by norms, too")
      .group(kGroup);
  table
      .list("muon_exclude",
            "parameters or layers, by name or pattern, that muon_sgd and muon_adamw update as they do vectors; empty: "
            "none")
      .automatic("the layer of the output")
      .group(kGroup);
}

namespace {

constexpr const char* kSparsity = "Sparsity";

}  // namespace

void declare_pruning_flags(core::FlagTable& table) {
  table
      .choice(
          "mask_algo", "mask_1d", mask_algorithm_names(),
          "which two weights of four stay: those of the greatest magnitude, or, in 4 x 4 blocks whose transposes are "
          "2:4 too, greedily, by the best of all patterns, or by the one that Paddle's mask_2d_best takes, which "
          "adds up weights with their signs")
      .group(kSparsity);
  table
      .list("asp_exclude",
            "layers that stay dense, by name or pattern: stem,layer4.*; empty: none. Those of fewer than four inputs "
            "always do")
      .automatic("the layer of the output")
      .group(kSparsity);
}

SparsityOptions read_pruning_flags(const core::FlagValues& values) {
  SparsityOptions options;
  options.algorithm = mask_algorithm_from_name(values.text("mask_algo"));
  if (values.given("asp_exclude")) options.exclude = values.list("asp_exclude");
  return options;
}

void declare_sparsity_flags(core::FlagTable& table) {
  table
      .boolean("asp", false,
               "prune the weights that the training starts from to 2:4 sparsity, and hold them there; a run that "
               "resumes goes on with its masks")
      .group(kSparsity);
  declare_pruning_flags(table);
}

std::string optimizer_of_flag(const std::string& value) {
  for (const Renamed& each : kTfCnnBenchmarks) {
    if (value == each.word) return each.name;
  }
  for (const Renamed& each : kFormer) {
    if (value == each.word) return each.name;
  }
  return value;
}

void name_optimizers_by_library(core::FlagTable& table) {
  for (const Renamed& each : kTfCnnBenchmarks) {
    if (std::string_view(each.word) != each.name) table.rename_value("optimizer", each.word, each.name);
  }
}

namespace {

double number_of_flag(const core::FlagValues& values, const OptimizerNumber& number) {
  switch (number.range) {
    case NumberRange::kSwitch:
      return values.boolean(number.flag) ? 1 : 0;
    case NumberRange::kCount:
      return static_cast<double>(values.integer(number.flag));
    case NumberRange::kChoice: {
      const auto found = std::find(number.choices.begin(), number.choices.end(), values.text(number.flag));
      return static_cast<double>(found - number.choices.begin());
    }
    default:
      return values.real(number.flag);
  }
}

}  // namespace

OptimizerNumbers read_optimizer_numbers(const core::FlagValues& values, const std::string& optimizer) {
  OptimizerNumbers numbers;
  if (!optimizer_formulas().has(optimizer)) return numbers;
  for (const OptimizerNumber& number : optimizer_formulas().get(optimizer).numbers) {
    if (number.flag.empty()) continue;
    numbers[number.name] = number_of_flag(values, number);
  }
  return numbers;
}

OptimizerNumbers default_optimizer_numbers(const std::string& optimizer) {
  static const core::FlagTable table = [] {
    core::FlagTable flags;
    declare_optimizer_flags(flags);
    return flags;
  }();
  return read_optimizer_numbers(core::FlagValues(table), optimizer);
}

void check_optimizer_flags(const core::FlagValues& values, const std::string& value, bool tf_cnn_benchmarks) {
  static const std::set<std::string, std::less<>> of_benchmarks = {
      "momentum", "rmsprop_decay", "rmsprop_momentum", "rmsprop_epsilon", "adam_beta1", "adam_beta2", "adam_epsilon"};
  std::map<std::string, std::vector<std::string>> readers;  // of each flag
  for (const std::string& name : optimizer_formulas().names()) {
    for (const OptimizerNumber& number : optimizer_formulas().get(name).numbers) {
      if (!number.flag.empty()) readers[number.flag].push_back(name);
    }
  }
  const auto is_set = [&](const std::string& flag) {
    if (!of_benchmarks.contains(flag)) return values.changed(flag);
    return !tf_cnn_benchmarks && values.source(flag) == core::FlagSource::kCommandLine;
  };
  const std::string optimizer = optimizer_of_flag(value);
  const bool has_matrices = optimizer == "muon_sgd" || optimizer == "muon_adamw";
  if (values.given("muon_exclude") && !has_matrices) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("--muon_exclude is for --optimizer=muon_adamw or muon_sgd, not for {}", value));
  }
  for (const auto& [flag, names] : readers) {
    if (!is_set(flag) || std::find(names.begin(), names.end(), optimizer) != names.end()) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("--{} is for --optimizer={}, not for {}", flag, fmt::join(names, " or "), value));
  }
}

std::string optimizers_help() {
  std::string text =
      "Values of --optimizer\n"
      "  w is a weight, g its gradient (with the weight decay, where that is not decoupled; clipped), lr the learning\n"
      "  rate, t the number of updates, this one included. m stands for --momentum, for --rmsprop_momentum, or for a\n"
      "  mean of gradients; d for --rmsprop_decay, b1 for --adam_beta1, b2 for --adam_beta2, eta for\n"
      "  --lars_trust_coefficient; |w| is the norm of a parameter.\n";
  for (const std::string& name : optimizer_formulas().names()) {
    const FormulaOptimizer& declared = optimizer_formulas().get(name);
    text += fmt::format("\n  {}: {}\n", name, declared.source);
    std::string line;
    for (const char c : declared.formula + "\n") {
      if (c != '\n') {
        line += c;
        continue;
      }
      text += fmt::format("    {}\n", line);
      line.clear();
    }
  }
  return text;
}

}  // namespace trainyard::optim
