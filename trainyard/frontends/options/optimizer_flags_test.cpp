// What the flags of optimizers do to a training: each value of --optimizer trains in a way of its own, and each flag
// changes the training of those optimizers that read it, and is refused with others.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/optim/flags.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::optimizer_flags_test {
namespace {

using ::testing::HasSubstr;

TfCnnOptions optimizer_run(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "--model=lenet",         "--device=cpu",           "--batch_size=2",  "--num_batches=4",
      "--display_every=1",     "--num_warmup_batches=0", "--deterministic", "--init_learning_rate=0.01",
      "--num_intra_threads=1", "--weight_decay=0.1",     "--synthetic"};
  for (const std::string& argument : more) {
    const std::string name = argument.substr(0, argument.find('=') + 1);
    std::erase_if(arguments, [&](const std::string& given) { return !name.empty() && given.starts_with(name); });
    arguments.push_back(argument);
  }
  const Dialect dialect = Dialect::kTrainyard;
  return read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect);
}

// Checksums of the values after the run.
std::map<std::string, int64_t> trained_values(std::vector<std::string> more) {
  const core::TempDir temp;
  more.push_back("--train_dir=" + temp.path());
  std::ostringstream out;
  BenchmarkCnn(optimizer_run(more)).run(out);
  const std::string path = core::join_path(train::find_checkpoint(temp.path()).path, "manifest.json");
  std::map<std::string, int64_t> checksums;
  const auto manifest = nlohmann::json::parse(core::local_file_system().read_file(path));
  for (const auto& entry : manifest.at("tensors")) {
    const std::string name = entry.at("name");
    if (name.starts_with("model/")) checksums[name] = entry.at("crc32c");
  }
  return checksums;
}

const std::vector<std::string>& optimizer_values() {
  return tf_cnn_flags(Dialect::kTrainyard).find("optimizer")->choices;
}

TEST(OptimizerFlags, NameAllOptimizers) {
  std::vector<std::string> names;
  for (const std::string& value : optimizer_values()) names.push_back(optim::optimizer_of_flag(value));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, optim::optimizers().names());
  EXPECT_EQ(optim::optimizer_of_flag("momentum"), "tf_nesterov");
  EXPECT_EQ(optim::optimizer_of_flag("plain_momentum"), "tf_momentum");
}

// In our own dialect tf_cnn_benchmarks' words are what earlier versions called the same optimizers; in its own they
// stay.
TEST(OptimizerFlags, FormerNamesAreReadAsTodays) {
  const auto read = [](Dialect dialect, const std::string& value) {
    return core::parse_flags(tf_cnn_flags(dialect), {"--optimizer=" + value}).text("optimizer");
  };
  const std::map<std::string, std::string> words = {
      {"momentum", "tf_nesterov"}, {"rmsprop", "tf_rmsprop"}, {"adam", "tf_adam"}};
  const std::map<std::string, std::string> former = {
      {"plain_momentum", "tf_momentum"}, {"adamw", "torch_adamw"}, {"nadam", "torch_nadam"}};
  for (const auto& [word, name] : words) {
    EXPECT_EQ(read(Dialect::kTrainyard, word), name);
    EXPECT_EQ(read(Dialect::kTfCnnBenchmarks, word), word);
    EXPECT_EQ(optim::optimizer_of_flag(word), name);
  }
  for (const auto& [word, name] : former) {
    EXPECT_EQ(read(Dialect::kTrainyard, word), name);
    EXPECT_EQ(read(Dialect::kTfCnnBenchmarks, word), name);
  }
}

TEST(OptimizerFlags, EachValueTrainsInAWayOfItsOwn) {
  std::map<std::map<std::string, int64_t>, std::string> seen;
  for (const std::string& value : optimizer_values()) {
    const auto values = trained_values({"--optimizer=" + value});
    ASSERT_FALSE(values.empty()) << value;
    const auto [same, is_new] = seen.emplace(values, value);
    // PyTorch's momentum without dampening is the plain one.
    EXPECT_TRUE(is_new || (value == "torch_momentum" && same->second == "tf_momentum"))
        << value << " is " << same->second;
  }
}

// One optimizer of each family that reads the flag.
TEST(OptimizerFlags, ChangeTheTraining) {
  const std::map<std::string, std::vector<std::string>> flags = {
      {"--momentum=0.1", {"tf_nesterov", "lars"}},
      {"--nesterov", {"torch_momentum", "keras_momentum"}},
      {"--momentum_dampening=0.5", {"torch_momentum"}},
      {"--rmsprop_decay=0.5", {"tf_rmsprop", "torch_rmsprop"}},
      {"--rmsprop_momentum=0.1", {"tf_rmsprop", "torch_rmsprop"}},
      {"--rmsprop_epsilon=0.1", {"tf_rmsprop", "torch_rmsprop"}},
      {"--rmsprop_centered", {"tf_rmsprop", "torch_rmsprop"}},
      {"--adam_beta1=0.1", {"tf_adam", "torch_nadam", "lamb"}},
      {"--adam_beta2=0.1", {"tf_adam", "torch_nadam", "lamb"}},
      {"--adam_epsilon=0.1", {"tf_adam", "torch_nadam", "lamb"}},
      {"--lars_trust_coefficient=0.5", {"lars"}},
      {"--nolamb_bias_correction", {"lamb"}},
      {"--muon_momentum=0.5", {"muon_sgd", "muon_adamw"}},
      {"--muon_steps=2", {"muon_sgd", "muon_adamw"}},
      {"--muon_normalize_weights", {"muon_sgd", "muon_adamw"}},
      {"--muon_rate=match_rms_adamw", {"muon_sgd", "muon_adamw"}},
      {"--muon_exclude=", {"muon_sgd", "muon_adamw"}},
      {"--lion_beta1=0.1", {"lion"}},
      {"--lion_beta2=0.1", {"lion"}},
      {"--lookahead_steps=2", {"tf_nesterov", "muon_sgd"}},
      {"--decoupled_weight_decay", {"sgd", "tf_adam"}},
  };
  std::map<std::string, std::map<std::string, int64_t>> plain;
  for (const auto& [flag, optimizers] : flags) {
    for (const std::string& optimizer : optimizers) {
      const std::string chosen = "--optimizer=" + optimizer;
      if (!plain.contains(optimizer)) plain[optimizer] = trained_values({chosen});
      EXPECT_NE(trained_values({chosen, flag}), plain[optimizer]) << optimizer << " " << flag;
    }
  }
}

// One move at the end is by the last alpha; an earlier one of a longer training is not.
TEST(OptimizerFlags, AlphaOfLookaheadIsTheLastOneAtTheEnd) {
  const std::vector<std::string> constant = {"--optimizer=sgd", "--num_batches=3", "--lookahead_steps=3",
                                             "--lookahead_alpha=0.25"};
  const std::vector<std::string> falls = {"--optimizer=sgd", "--num_batches=3", "--lookahead_steps=3",
                                          "--lookahead_alpha=1", "--lookahead_final_alpha=0.25"};
  EXPECT_EQ(trained_values(falls), trained_values(constant));
  const auto longer = [](std::vector<std::string> flags) {
    flags[1] = "--num_batches=6";
    return trained_values(flags);
  };
  EXPECT_NE(longer(falls), longer(constant));
}

// It needs parameters that do not decay: those of batch normalization.
TEST(OptimizerFlags, AdaptUndecayedChangesTheTraining) {
  const std::vector<std::string> plain = {"--optimizer=lars", "--model=resnet20", "--data_name=cifar10",
                                          "--num_batches=2"};
  std::vector<std::string> adapted = plain;
  adapted.emplace_back("--adapt_undecayed");
  EXPECT_NE(trained_values(adapted), trained_values(plain));
}

// The names of the tensors that one step changes in another way than it does without `more`.
std::set<std::string> changed_by(const std::vector<std::string>& more) {
  std::vector<std::string> one_step = {"--optimizer=torch_momentum", "--num_batches=1"};
  const auto plain = trained_values(one_step);
  one_step.insert(one_step.end(), more.begin(), more.end());
  std::set<std::string> changed;
  for (const auto& [name, checksum] : trained_values(one_step)) {
    if (plain.at(name) != checksum) changed.insert(name);
  }
  return changed;
}

TEST(OptimizerFlags, GroupsOfParametersChangeTheTrainingOfThoseAlone) {
  const std::vector<std::string> plain = {"--optimizer=torch_momentum", "--num_batches=1"};
  std::set<std::string> all, biases;
  for (const auto& [name, checksum] : trained_values(plain)) {
    all.insert(name);
    if (name.ends_with(".bias")) biases.insert(name);
  }
  ASSERT_FALSE(biases.empty());
  EXPECT_EQ(changed_by({"--parameter_groups=*.bias:0.5"}), biases);
  // Weights alone: biases begin with 0, whose decay is 0.
  std::set<std::string> weights;
  std::set_difference(all.begin(), all.end(), biases.begin(), biases.end(), std::inserter(weights, weights.end()));
  EXPECT_EQ(changed_by({"--parameter_groups=*.weight:1:0.5"}), weights);
  EXPECT_TRUE(changed_by({"--parameter_groups=*:3:0.5,*:1"}).empty()) << "the last one counts";
}

// The rate of a group is the step's times its factor, in every step and with every optimizer of a family.
TEST(OptimizerFlags, AFactorOfAGroupIsThatOfTheRate) {
  for (const char* optimizer : {"sgd", "keras_momentum", "tf_rmsprop", "torch_adamw", "lars", "lamb"}) {
    const std::string chosen = std::string("--optimizer=") + optimizer;
    const auto halved = trained_values({chosen, "--init_learning_rate=0.015625"});
    EXPECT_EQ(trained_values({chosen, "--init_learning_rate=0.03125", "--parameter_groups=*:0.5"}), halved)
        << optimizer;
  }
}

TEST(OptimizerFlags, BadGroupsAreRefused) {
  const auto message = [](const std::string& groups) {
    return core::message_of([&] { optimizer_run({"--parameter_groups=" + groups}); });
  };
  for (const char* bad : {"head.*", ":2", "a:", "a:x", "a:-1", "a:inf", "a:nan", "a:1:", "a:1:-1", "a:1:2:3"}) {
    EXPECT_THAT(message(std::string("*:1,") + bad),
                HasSubstr(std::string("PATTERN:RATE_FACTOR or PATTERN:RATE_FACTOR:WEIGHT_DECAY")))
        << bad;
    EXPECT_THAT(message(std::string("*:1,") + bad), HasSubstr(std::string("'") + bad + "'"));
  }
  std::ostringstream out;
  EXPECT_THAT(core::message_of([&] { BenchmarkCnn(optimizer_run({"--parameter_groups=*.bais:2"})).run(out); },
                               core::ErrorCode::kNotFound),
              HasSubstr("no parameter is named as '*.bais'"));
}

TEST(OptimizerFlags, AreRefusedWithOptimizersThatDoNotReadThem) {
  const auto message = [](const std::vector<std::string>& more) {
    return core::message_of([&] { optimizer_run(more); });
  };
  EXPECT_THAT(message({"--nesterov"}), HasSubstr("--nesterov is for --optimizer=keras_momentum or torch_momentum, not "
                                                 "for sgd"));
  for (const char* flag : {"--momentum_dampening=0.5", "--rmsprop_centered", "--lars_trust_coefficient=0.5",
                           "--nolamb_bias_correction", "--adapt_undecayed"}) {
    EXPECT_THAT(message({"--optimizer=tf_adam", flag}), HasSubstr("not for tf_adam"));
  }
  EXPECT_THAT(message({"--optimizer=lars", "--decoupled_weight_decay"}), HasSubstr("not for --optimizer=lars"));
  EXPECT_THAT(message({"--optimizer=torch_momentum", "--nesterov", "--momentum_dampening=0.5"}),
              HasSubstr("as in PyTorch"));
  EXPECT_THAT(message({"--optimizer=tf_adan"}), HasSubstr("tf_adam"));
}

TEST(OptimizerFlags, OfBadNumbersAreRefused) {
  for (const char* flag : {"--optimizer=tf_adam --adam_beta1=1", "--optimizer=tf_adam --adam_epsilon=-1",
                           "--optimizer=tf_rmsprop --rmsprop_decay=2", "--optimizer=lars --lars_trust_coefficient=0"}) {
    std::istringstream words(flag);
    std::vector<std::string> more;
    for (std::string word; words >> word;) more.push_back(word);
    std::ostringstream out;
    EXPECT_EQ(core::code_of([&] { BenchmarkCnn(optimizer_run(more)).run(out); }), core::ErrorCode::kInvalidArgument)
        << flag;
  }
}

}  // namespace
}  // namespace trainyard::frontends::optimizer_flags_test
