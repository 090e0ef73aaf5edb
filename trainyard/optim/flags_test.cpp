// The flags of optimizers and of sparsity: what is declared, what is read of them, and with which optimizers they are
// refused.
#include "trainyard/optim/flags.h"

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim::flags_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

core::FlagTable optimizer_table() {
  core::FlagTable table;
  declare_optimizer_flags(table);
  return table;
}

struct Declared {
  std::string name, kind, default_text, help;  // help: how it begins
};

void expect_declared(const core::FlagTable& table, const std::vector<Declared>& expected, const std::string& group) {
  std::vector<std::string> names;
  for (const Declared& each : expected) names.push_back(each.name);
  ASSERT_EQ(table.names(), names);
  for (const Declared& each : expected) {
    const core::FlagSpec& spec = *table.find(each.name);
    EXPECT_EQ(core::flag_kind_name(spec.kind), each.kind) << each.name;
    EXPECT_EQ(core::format_flag_value(spec.default_value), each.default_text) << each.name;
    EXPECT_TRUE(spec.help.starts_with(each.help)) << each.name << ": " << spec.help;
    EXPECT_EQ(spec.group_name, group) << each.name;
  }
}

// Those of formulas follow from the last optimizer to the first: muon_sgd, lion, lars, lamb.
TEST(OptimizerFlagTable, HasEachFlagWithItsKindAndDefault) {
  const core::FlagTable table = optimizer_table();
  expect_declared(table,
                  {{"optimizer", "enum", "sgd", "tf_cnn_benchmarks' momentum, rmsprop and adam are"},
                   {"momentum", "float", "0.9", "of the momentum optimizers and lars"},
                   {"nesterov", "boolean", "false", "Nesterov's form of torch_momentum and keras_momentum"},
                   {"momentum_dampening", "float", "0", "of torch_momentum: what the velocity does not take"},
                   {"rmsprop_decay", "float", "0.9", "decay of the rmsprop optimizers' mean square"},
                   {"rmsprop_momentum", "float", "0.9", "momentum of the rmsprop optimizers"},
                   {"rmsprop_epsilon", "float", "1", "added inside tf_rmsprop's and keras_rmsprop's square root"},
                   {"rmsprop_centered", "boolean", "false", "divide by the root of the variance"},
                   {"adam_beta1", "float", "0.9", "decay of the adam and nadam optimizers' and lamb's mean"},
                   {"adam_beta2", "float", "0.999", "decay of the adam and nadam optimizers' and lamb's mean square"},
                   {"adam_epsilon", "float", "1e-08", "added to the adam and nadam optimizers' and lamb's root"},
                   {"muon_momentum", "float", "0.95", "momentum of muon's matrices"},
                   {"muon_steps", "integer", "5", "Newton-Schulz iterations"},
                   {"muon_normalize_weights", "boolean", "false", "make the norm of each of muon's matrices"},
                   {"muon_rate", "enum", "original", "what the rate of muon's matrices is multiplied by"},
                   {"lion_beta1", "float", "0.9", "part of lion's mean in its direction"},
                   {"lion_beta2", "float", "0.99", "decay of lion's mean"},
                   {"lars_trust_coefficient", "float", "0.001", "eta of lars"},
                   {"lamb_bias_correction", "boolean", "true", "correct the bias of lamb's means"},
                   {"adapt_undecayed", "boolean", "false", "lars and lamb give parameters that do not decay"},
                   {"muon_exclude", "list", "", "parameters or layers, by name or pattern, that muon_sgd"}},
                  "Optimizer");
  EXPECT_THAT(table.find("muon_rate")->choices,
              ElementsAre("none", "original", "match_rms_adamw", "spectral_unclamped"));
  EXPECT_EQ(table.find("muon_exclude")->automatic_rule, "the layer of the output");
}

TEST(OptimizerFlagTable, HasTheWordsOfTfCnnBenchmarksInFrontOfTheNames) {
  const core::FlagTable table = optimizer_table();
  const core::FlagSpec& optimizer = *table.find("optimizer");
  EXPECT_THAT(optimizer.choices,
              ElementsAre("momentum", "sgd", "rmsprop", "adam", "keras_adamw", "keras_momentum", "keras_nadam",
                          "keras_rmsprop", "lamb", "lars", "lion", "muon_adamw", "muon_sgd", "schedule_free_adamw",
                          "schedule_free_sgd", "tf_adam", "tf_momentum", "tf_nesterov", "tf_rmsprop", "torch_adam",
                          "torch_adamw", "torch_momentum", "torch_nadam", "torch_radam", "torch_rmsprop"));
  EXPECT_EQ(optimizer.former_values,
            (std::map<std::string, std::string>{
                {"plain_momentum", "tf_momentum"}, {"adamw", "torch_adamw"}, {"nadam", "torch_nadam"}}));
}

TEST(OptimizerFlagTable, MayHaveTheNamesOfTheLibraryAlone) {
  core::FlagTable table = optimizer_table();
  name_optimizers_by_library(table);
  const core::FlagSpec& optimizer = *table.find("optimizer");
  EXPECT_EQ(optimizer.former_values, (std::map<std::string, std::string>{{"plain_momentum", "tf_momentum"},
                                                                         {"adamw", "torch_adamw"},
                                                                         {"nadam", "torch_nadam"},
                                                                         {"momentum", "tf_nesterov"},
                                                                         {"rmsprop", "tf_rmsprop"},
                                                                         {"adam", "tf_adam"}}));
  EXPECT_EQ(optimizer.choices.size(), 22U);
  EXPECT_EQ(optimizer.choices.front(), "sgd");
  EXPECT_EQ(core::parse_flags(table, {"--optimizer=momentum"}).text("optimizer"), "tf_nesterov");
}

TEST(OptimizerOfFlag, IsTheNameInTheRegistry) {
  for (const auto& [value, name] : std::map<std::string, std::string>{{"momentum", "tf_nesterov"},
                                                                      {"sgd", "sgd"},
                                                                      {"rmsprop", "tf_rmsprop"},
                                                                      {"adam", "tf_adam"},
                                                                      {"plain_momentum", "tf_momentum"},
                                                                      {"adamw", "torch_adamw"},
                                                                      {"nadam", "torch_nadam"},
                                                                      {"lars", "lars"},
                                                                      {"tf_momentum", "tf_momentum"},
                                                                      {"unknown", "unknown"}}) {
    EXPECT_EQ(optimizer_of_flag(value), name);
  }
}

// Of flags alone: where a flag has another default than the optimizer, as --rmsprop_epsilon, it is the flag's.
TEST(OptimizerNumbersOfFlags, AreTheDefaultsOfTheFlags) {
  const OptimizerNumbers means{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}};
  const OptimizerNumbers rmsprop{{"mean_square_decay", 0.9}, {"momentum", 0.9}, {"epsilon", 1}, {"centered", 0}};
  OptimizerNumbers lamb = means, muon = means;
  lamb["bias_correction"] = 1;
  lamb["adapt_undecayed"] = 0;
  muon["muon_momentum"] = 0.95;
  muon["muon_steps"] = 5;
  muon["normalize_weights"] = 0;
  muon["muon_rate"] = 1;
  EXPECT_EQ(default_optimizer_numbers("sgd"), OptimizerNumbers());
  EXPECT_EQ(default_optimizer_numbers("tf_nesterov"), (OptimizerNumbers{{"momentum", 0.9}}));
  EXPECT_EQ(default_optimizer_numbers("torch_momentum"),
            (OptimizerNumbers{{"momentum", 0.9}, {"dampening", 0}, {"nesterov", 0}}));
  EXPECT_EQ(default_optimizer_numbers("tf_rmsprop"), rmsprop);
  EXPECT_EQ(default_optimizer_numbers("torch_adam"), means);
  EXPECT_EQ(default_optimizer_numbers("lars"),
            (OptimizerNumbers{{"momentum", 0.9}, {"trust_coefficient", 0.001}, {"adapt_undecayed", 0}}));
  EXPECT_EQ(default_optimizer_numbers("lamb"), lamb);
  EXPECT_EQ(default_optimizer_numbers("muon_adamw"), muon);
  EXPECT_EQ(default_optimizer_numbers("lion"), (OptimizerNumbers{{"beta1", 0.9}, {"beta2", 0.99}}));
  EXPECT_EQ(default_optimizer_numbers("unknown"), OptimizerNumbers()) << "a program's own optimizer";
}

TEST(OptimizerNumbersOfFlags, AreReadByTheKindOfEach) {
  const core::FlagTable table = optimizer_table();
  const auto read = [&table](const std::vector<std::string>& arguments, const std::string& optimizer) {
    return read_optimizer_numbers(core::parse_flags(table, arguments), optimizer);
  };
  EXPECT_EQ(
      read({"--momentum=0.5", "--muon_momentum=0.25", "--muon_steps=3", "--muon_normalize_weights",
            "--muon_rate=spectral_unclamped"},
           "muon_sgd"),
      (OptimizerNumbers{
          {"momentum", 0.5}, {"muon_momentum", 0.25}, {"muon_steps", 3}, {"normalize_weights", 1}, {"muon_rate", 3}}));
  EXPECT_EQ(read({"--muon_rate=none"}, "muon_sgd").at("muon_rate"), 0);
  EXPECT_EQ(read({"--muon_rate=match_rms_adamw"}, "muon_sgd").at("muon_rate"), 2);
  EXPECT_EQ(read({"--momentum=0.5", "--nesterov", "--momentum_dampening=0.125"}, "torch_momentum"),
            (OptimizerNumbers{{"momentum", 0.5}, {"nesterov", 1}, {"dampening", 0.125}}));
  EXPECT_EQ(read({"--rmsprop_decay=0.5", "--rmsprop_momentum=0.25", "--rmsprop_epsilon=0.125", "--rmsprop_centered"},
                 "keras_rmsprop"),
            (OptimizerNumbers{{"mean_square_decay", 0.5}, {"momentum", 0.25}, {"epsilon", 0.125}, {"centered", 1}}));
  EXPECT_EQ(read({"--adam_beta1=0.5", "--adam_beta2=0.25", "--adam_epsilon=0.125", "--nolamb_bias_correction",
                  "--adapt_undecayed"},
                 "lamb"),
            (OptimizerNumbers{
                {"beta1", 0.5}, {"beta2", 0.25}, {"epsilon", 0.125}, {"bias_correction", 0}, {"adapt_undecayed", 1}}));
  EXPECT_EQ(read({"--lars_trust_coefficient=0.25"}, "lars").at("trust_coefficient"), 0.25);
  EXPECT_EQ(read({"--lion_beta1=0.5", "--lion_beta2=0.25"}, "lion"),
            (OptimizerNumbers{{"beta1", 0.5}, {"beta2", 0.25}}));
}

std::string refusal(const std::string& flag, const std::string& value, const std::string& optimizer,
                    core::FlagSource source = core::FlagSource::kCommandLine, bool tf_cnn_benchmarks = false) {
  const core::FlagTable table = optimizer_table();
  core::FlagValues values(table);
  values.set(flag, value, source);
  return core::message_of([&] { check_optimizer_flags(values, optimizer, tf_cnn_benchmarks); });
}

TEST(CheckOptimizerFlags, RefusesThoseThatTheOptimizerDoesNotRead) {
  EXPECT_EQ(refusal("nesterov", "true", "sgd"),
            "--nesterov is for --optimizer=keras_momentum or torch_momentum, not for sgd");
  EXPECT_EQ(refusal("nesterov", "true", "torch_momentum"), "no error");
  EXPECT_EQ(refusal("nesterov", "true", "keras_momentum"), "no error");
  EXPECT_EQ(refusal("nesterov", "false", "sgd"), "no error") << "the default";
  EXPECT_EQ(refusal("muon_steps", "4", "lamb"), "--muon_steps is for --optimizer=muon_adamw or muon_sgd, not for lamb");
  EXPECT_EQ(refusal("lars_trust_coefficient", "0.5", "momentum", core::FlagSource::kFile, true),
            "--lars_trust_coefficient is for --optimizer=lars, not for momentum")
      << "the word of the flag, from any source and in any dialect";
  EXPECT_EQ(refusal("adapt_undecayed", "true", "lamb"), "no error");
  EXPECT_EQ(refusal("adapt_undecayed", "true", "adam"),
            "--adapt_undecayed is for --optimizer=lamb or lars, not for adam");
}

TEST(CheckOptimizerFlags, TakesTheSharedOnesFromFilesAndInTheDialectOfTfCnnBenchmarks) {
  const std::string momentum =
      "--momentum is for --optimizer=keras_momentum or lars or muon_sgd or schedule_free_sgd or tf_momentum or "
      "tf_nesterov or torch_momentum, not for tf_adam";
  EXPECT_EQ(refusal("momentum", "0.5", "tf_adam"), momentum);
  EXPECT_EQ(refusal("momentum", "0.9", "tf_adam"), momentum) << "a given flag, although it is the default";
  EXPECT_EQ(refusal("momentum", "0.5", "tf_adam", core::FlagSource::kFile), "no error");
  EXPECT_EQ(refusal("momentum", "0.5", "tf_adam", core::FlagSource::kCommandLine, true), "no error");
  for (const char* flag :
       {"rmsprop_decay", "rmsprop_momentum", "rmsprop_epsilon", "adam_beta1", "adam_beta2", "adam_epsilon"}) {
    EXPECT_THAT(refusal(flag, "0.5", "sgd"), HasSubstr(std::string("--") + flag + " is for --optimizer="));
    EXPECT_EQ(refusal(flag, "0.5", "sgd", core::FlagSource::kFile), "no error") << flag;
    EXPECT_EQ(refusal(flag, "0.5", "sgd", core::FlagSource::kCommandLine, true), "no error") << flag;
    const bool adam = std::string(flag).starts_with("adam");
    EXPECT_EQ(refusal(flag, "0.5", adam ? "adam" : "rmsprop"), "no error") << "as tf_cnn_benchmarks calls it";
    EXPECT_NE(refusal(flag, "0.5", adam ? "rmsprop" : "adam"), "no error") << flag;
  }
}

TEST(CheckOptimizerFlags, TakesNoMatricesOfMuonElsewhere) {
  for (const char* layers : {"head", ""}) {
    EXPECT_EQ(refusal("muon_exclude", layers, "momentum"),
              "--muon_exclude is for --optimizer=muon_adamw or muon_sgd, not for momentum");
    EXPECT_EQ(refusal("muon_exclude", layers, "muon_sgd"), "no error");
    EXPECT_EQ(refusal("muon_exclude", layers, "muon_adamw"), "no error");
  }
  const core::FlagTable table = optimizer_table();
  for (const std::string& value : table.find("optimizer")->choices) {
    EXPECT_EQ(core::message_of([&] { check_optimizer_flags(core::FlagValues(table), value, false); }), "no error");
  }
}

TEST(SparsityFlags, AreThoseOfPruningAndOneMore) {
  core::FlagTable pruning, sparsity;
  declare_pruning_flags(pruning);
  declare_sparsity_flags(sparsity);
  const Declared algorithm{"mask_algo", "enum", "mask_1d", "which two weights of four stay"},
      exclude{"asp_exclude", "list", "", "layers that stay dense"};
  expect_declared(pruning, {algorithm, exclude}, "Sparsity");
  expect_declared(sparsity, {{"asp", "boolean", "false", "prune the weights"}, algorithm, exclude}, "Sparsity");
  EXPECT_THAT(pruning.find("mask_algo")->choices,
              ElementsAre("mask_1d", "mask_2d_greedy", "mask_2d_best", "mask_2d_best_signed"));
  EXPECT_EQ(pruning.find("asp_exclude")->automatic_rule, "the layer of the output");
}

TEST(SparsityFlags, AreReadAsOptions) {
  core::FlagTable table;
  declare_pruning_flags(table);
  const auto read = [&table](const std::vector<std::string>& arguments) {
    return read_pruning_flags(core::parse_flags(table, arguments));
  };
  EXPECT_EQ(read({}).algorithm, MaskAlgorithm::kMask1d);
  EXPECT_FALSE(read({}).exclude.has_value()) << "the layer of the output";
  EXPECT_EQ(read({"--mask_algo=mask_2d_greedy"}).algorithm, MaskAlgorithm::kMask2dGreedy);
  EXPECT_EQ(read({"--mask_algo=mask_2d_best_signed"}).algorithm, MaskAlgorithm::kMask2dBestSigned);
  EXPECT_EQ(read({"--asp_exclude=stem,layer4.*"}).exclude, (std::vector<std::string>{"stem", "layer4.*"}));
  EXPECT_EQ(read({"--asp_exclude="}).exclude, std::vector<std::string>());
}

// Each optimizer is "  <name>: <source>" and its formula, one line a line, four blanks in.
TEST(OptimizersHelp, HasEachOptimizerWithItsFormula) {
  const std::string help = optimizers_help();
  std::istringstream lines(help);
  const auto next = [&lines] {
    std::string line;
    std::getline(lines, line);
    return line;
  };
  EXPECT_EQ(next(), "Values of --optimizer");
  EXPECT_TRUE(next().starts_with("  w is a weight, g its gradient"));
  EXPECT_TRUE(next().starts_with("  rate, t the number of updates"));
  EXPECT_TRUE(next().starts_with("  mean of gradients; d for"));
  EXPECT_EQ(next(), "  --lars_trust_coefficient; |w| is the norm of a parameter.");
  for (const std::string& name : optimizer_formulas().names()) {
    const FormulaOptimizer& declared = optimizer_formulas().get(name);
    EXPECT_EQ(next(), "");
    EXPECT_EQ(next(), "  " + name + ": " + declared.source);
    std::istringstream formula(declared.formula);
    for (std::string line; std::getline(formula, line);) EXPECT_EQ(next(), "    " + line) << name;
  }
  EXPECT_EQ(lines.peek(), std::istringstream::traits_type::eof());
  EXPECT_TRUE(help.ends_with("\n") && !help.ends_with("\n\n"));
}

// What families make of the texts of their members.
TEST(OptimizersHelp, HasTheTextsThatFamiliesCompose) {
  const std::string help = optimizers_help();
  const auto entry = [&help](const std::string& name) {
    const size_t begin = help.find("\n  " + name + ": ");
    if (begin == std::string::npos) return std::string("none");
    return help.substr(begin + 1, help.find("\n\n", begin + 1) - begin - 1);
  };
  EXPECT_EQ(entry("sgd"), "  sgd: stochastic gradient descent\n    w -= lr * g");
  const auto rmsprop = [](const std::string& first) {
    return "    s = d * s + (1 - d) * g^2, from s = " + first +
           ";  v = m * v + lr * g / sqrt(s + epsilon);  w -= v\n"
           "    centered: a = d * a + (1 - d) * g, and s - a^2 in the root";
  };
  EXPECT_EQ(entry("tf_rmsprop"), "  tf_rmsprop: TensorFlow 1's RMSPropOptimizer\n" + rmsprop("1"));
  EXPECT_EQ(entry("keras_rmsprop"), "  keras_rmsprop: Keras' RMSprop\n" + rmsprop("0"));
  EXPECT_THAT(entry("keras_nadam"), HasSubstr("u(t) = b1 * (1 - 0.5 * 0.96^t);  U(t)"));
  EXPECT_THAT(entry("torch_nadam"), HasSubstr("u(t) = b1 * (1 - 0.5 * 0.96^(0.004 t));  U(t)"));
  const std::string means = "    m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2\n",
                    decoupled = "    w -= lr * weight_decay * w;  " + means.substr(4),
                    hat = "    w -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)",
                    corrected = "    w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + epsilon)";
  EXPECT_EQ(entry("tf_adam"),
            "  tf_adam: Kingma and Ba 2015; TensorFlow 1's AdamOptimizer and Keras' Adam\n" + means + hat);
  EXPECT_EQ(entry("torch_adam"), "  torch_adam: Kingma and Ba 2015; PyTorch's Adam\n" + means + corrected);
  EXPECT_EQ(entry("torch_adamw"),
            "  torch_adamw: Loshchilov and Hutter 2019; PyTorch's AdamW\n" + decoupled + corrected);
  EXPECT_EQ(entry("keras_adamw"), "  keras_adamw: Loshchilov and Hutter 2019; Keras' AdamW\n" + decoupled + hat);
  EXPECT_THAT(entry("muon_adamw"), HasSubstr("and torch.optim.Muon; others by PyTorch's AdamW, as in Jordan's package "
                                             "muon\n    matrices: v = m * v + g;"));
  EXPECT_TRUE(entry("muon_adamw").ends_with("(x x^T)^2) x\n    others: torch_adamw"));
  EXPECT_TRUE(entry("muon_sgd").ends_with("(x x^T)^2) x\n    others: v = m * v + g;  w -= lr * (g + m * v)"));
  for (const auto& [name, source] : std::map<std::string, std::string>{{"schedule_free_sgd", "SGDScheduleFree"},
                                                                       {"schedule_free_adamw", "AdamWScheduleFree"}}) {
    EXPECT_TRUE(entry(name).starts_with("  " + name +
                                        ": Defazio et al., \"The Road Less Scheduled\", 2024; the "
                                        "package schedulefree's " +
                                        source + "\n"));
    EXPECT_TRUE(entry(name).ends_with("is evaluated, saved\n    and exported, as averaged weights are"));
  }
}

}  // namespace
}  // namespace trainyard::optim::flags_test
