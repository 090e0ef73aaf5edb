// Every number flag of every command through the ends of its type: a value runs or is refused by name, and nothing
// crashes, hangs, or takes memory without an end.
#include <chrono>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"

namespace trainyard::cli::number_flags_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStopAfter = std::chrono::seconds(1);  // of what would run for ever, as it should
constexpr auto kLongest = std::chrono::seconds(60);   // on a machine that does other work, too
constexpr int64_t kMostMemory = int64_t{4} << 30;     // bytes of the process

const std::vector<std::string> kIntegers = {"-1", "0", "1", "2147483648", "4611686018427387904"};
const std::vector<std::string> kReals = {"-1", "0", "1e-300", "1e308", "-1e308"};

struct NumberFlag {
  std::string name;
  bool integer = false;
};

// As --help lists them.
std::vector<NumberFlag> number_flags(const std::string& help) {
  const std::regex pattern("--([a-z0-9_]+)=<(integer|float)");
  std::vector<NumberFlag> flags;
  for (auto at = std::sregex_iterator(help.begin(), help.end(), pattern); at != std::sregex_iterator(); ++at) {
    flags.push_back({(*at)[1], (*at)[2] == "integer"});
  }
  return flags;
}

// The command line with another value of the flag. "{new}" becomes a path that is not there yet.
Arguments with_value(const Arguments& base, const std::string& flag, const std::string& value,
                     const std::string& new_path) {
  Arguments arguments;
  for (std::string argument : base) {
    if (argument.starts_with("--" + flag + "=")) continue;
    if (const size_t at = argument.find("{new}"); at != std::string::npos) argument.replace(at, 5, new_path);
    arguments.push_back(argument);
  }
  arguments.push_back("--" + flag + "=" + value);
  return arguments;
}

// What an error calls the flag: its name, or what it means where the library checks it.
std::string said_as(const std::string& flag) {
  if (flag == "num_classes") return "number of classes";
  if (flag == "eval_resize_size") return "evaluation images are resized";
  if (flag == "stochastic_depth") return "stochastic depth";
  if (flag == "batch_norm_decay") return "batch norms to set the decay of";
  if (flag == "recalibrate_batch_norm") return "batch norms to recalibrate";
  if (flag == "num_eval_epochs") return "--num_epochs";  // one text of tf_cnn_benchmarks for both pairs
  return flag;
}

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

class NumberFlags : public ::testing::Test {
 protected:
  void SetUp() override {
    data::write_shapes({.train_count = 24, .validation_count = 12, .train_shards = 1}, data_);
    const CommandResult trained = run_command(
        {"train", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_, "--device=cpu", "--batch_size=4",
         "--num_batches=2", "--num_warmup_batches=0", "--num_intra_threads=1", "--train_dir=" + run_});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    const auto png = data::encode_png(data::draw_shape(1, data::Subset::kTrain, 0, 32));
    core::local_file_system().write_file_atomically(image_, {reinterpret_cast<const char*>(png.data()), png.size()});
  }

  // Flags of `help` with each of their values in `base`.
  void walk(const Arguments& help, const Arguments& base, const std::set<std::string>& not_here = {}) {
    const std::vector<NumberFlag> flags = number_flags(run_command(help).out);
    ASSERT_FALSE(flags.empty());
    for (const NumberFlag& flag : flags) {
      if (not_here.contains(flag.name)) continue;
      for (const std::string& value : flag.integer ? kIntegers : kReals) {
        check(base, flag.name, value);
      }
    }
  }

 private:
  void check(const Arguments& base, const std::string& flag, const std::string& value) {
    SCOPED_TRACE("--" + flag + "=" + value);
    core::StopSource stop;
    std::jthread watch([&](const std::stop_token& done) {
      const auto end = Clock::now() + kStopAfter;
      while (!done.stop_requested() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      stop.request_stop(core::StopReason::kSignal, "enough seen");
    });
    const auto start = Clock::now();
    const CommandResult result =
        run_command(with_value(base, flag, value, temp_.file("new_" + std::to_string(runs_++))), stop.token());
    watch.request_stop();
    EXPECT_LT(Clock::now() - start, kLongest);
    EXPECT_LT(peak_memory_bytes(), kMostMemory);
    // A rate or a decay of 1e308 makes weights that are not finite, and the run says so.
    const bool diverged = result.code == kFailure && result.err.find("finite") != std::string::npos;
    EXPECT_TRUE(diverged || result.code == kSuccess || result.code == kStoppedBySignal || result.code == kUsage)
        << result.code << ": " << result.err;
    EXPECT_EQ(result.err.find("internal"), std::string::npos) << result.err;
    const bool says_which =
        result.err.find(flag) != std::string::npos || result.err.find(said_as(flag)) != std::string::npos;
    EXPECT_TRUE(result.code != kUsage || says_which) << result.err;
  }

  core::TempDir temp_;
  int runs_ = 0;

 protected:
  const std::string data_ = temp_.file("shapes"), run_ = temp_.file("run"), image_ = temp_.file("image.png");
};

TEST_F(NumberFlags, OfTraining) {
  walk({"help"}, {"train", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_, "--device=cpu",
                  "--batch_size=2", "--num_batches=2", "--num_warmup_batches=0", "--num_intra_threads=1",
                  "--datasets_num_private_threads=1", "--train_dir={new}", "--save_model_steps=1"});
}

TEST_F(NumberFlags, OfTrainingWithEvaluations) {
  walk({"help"},
       {"train", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_, "--device=cpu", "--batch_size=2",
        "--num_batches=3", "--num_warmup_batches=0", "--num_intra_threads=1",
        "--train_dir=", "--eval_during_training_every_n_steps=1", "--num_eval_batches=1"},
       {"eval_during_training_every_n_epochs", "stop_at_top_1_accuracy"});
}

TEST_F(NumberFlags, OfEvaluation) {
  walk({"help"},
       {"eval", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_, "--device=cpu", "--batch_size=2",
        "--num_eval_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1", "--train_dir=" + run_,
        "--eval_dir={new}"},
       // Flags of trainings.
       {"eval_during_training_every_n_steps", "eval_during_training_every_n_epochs", "stop_at_top_1_accuracy"});
}

TEST_F(NumberFlags, OfPredict) {
  walk({"predict", "--help"}, {"predict", "--train_dir=" + run_, image_});
}

TEST_F(NumberFlags, OfExport) {
  walk({"export", "--help"}, {"export", "--train_dir=" + run_, "--format=safetensors", "--output={new}"});
}

TEST_F(NumberFlags, OfModels) {
  walk({"models", "--help"}, {"models", "lenet"});
}

TEST_F(NumberFlags, OfBenchData) {
  walk({"bench", "data", "--help"}, {"bench", "data", "--data_dir=" + data_, "--data_name=imagenet", "--image_size=48",
                                     "--seconds=0.01", "--batch_size=4"});
}

TEST_F(NumberFlags, OfBenchLayers) {
  walk({"bench", "layers", "--help"}, {"bench", "layers", "--model=trivial", "--data_name=cifar10", "--batch_size=1",
                                       "--num_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1"});
}

TEST_F(NumberFlags, OfDataCommands) {
  walk({"data", "make-shapes", "--help"},
       {"data", "make-shapes", "--output={new}", "--train_count=2", "--validation_count=1"});
  walk({"data", "verify", "--help"}, {"data", "verify", "--data_name=shapes", data_});
  walk({"data", "show", "--help"}, {"data", "show", "--data_name=imagenet", "--data_dir=" + data_, "--output={new}",
                                    "--count=1", "--subset=validation", "--image_size=48"});
  walk({"data", "convert", "--help"},
       {"data", "convert", "--data_name=shapes", "--from=" + data_, "--to=folder", "--output={new}"});
}

}  // namespace
}  // namespace trainyard::cli::number_flags_test
