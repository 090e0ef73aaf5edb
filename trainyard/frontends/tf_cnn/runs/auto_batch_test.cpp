// --batch_size=auto: the batch that is found is the largest of its budget, the same each time, and the run takes no
// more than what was planned.
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::auto_batch_test {
namespace {

using ::testing::HasSubstr;

TfCnnOptions options_of(int64_t mebibytes) {
  TfCnnOptions options;
  options.model = "resnet20";
  options.input.data_name = "cifar10";
  options.device.gpu = false;
  options.batch_size = kLargestBatch;
  options.batch_memory_bytes = mebibytes << 20;
  options.steps.num_batches = 2;
  options.steps.num_warmup_batches = 0;
  return options;
}

struct Found {
  int64_t batch = 0;
  std::string log;
};

Found find(const TfCnnOptions& options) {
  testing::internal::CaptureStderr();
  int64_t batch = 0;
  try {
    batch = prepare(options).batch_size;
  } catch (...) {
    testing::internal::GetCapturedStderr();
    throw;
  }
  return {batch, testing::internal::GetCapturedStderr()};
}

// Returns MiB that the line says the batch needs, and those of one image more.
std::pair<int64_t, int64_t> needs(const std::string& log) {
  std::smatch found;
  const std::regex line(
      "batch_size=auto: ([0-9]+) images a device need ([0-9]+) MiB of ([0-9]+) MiB of "
      "--batch_size_memory_mib; ([0-9]+) would need ([0-9]+) MiB");
  if (!std::regex_search(log, found, line)) return {};
  EXPECT_EQ(std::stoll(found[4]), std::stoll(found[1]) + 1);
  return {std::stoll(found[2]), std::stoll(found[5])};
}

TEST(AutoBatch, IsTheLargestOfItsBudgetEachTime) {
  const Found first = find(options_of(700)), again = find(options_of(700)), more = find(options_of(800));
  EXPECT_GT(first.batch, 1);
  EXPECT_EQ(first.batch, again.batch);
  EXPECT_GT(more.batch, first.batch);
  const auto [planned, beyond] = needs(first.log);
  EXPECT_LE(planned, 700);
  EXPECT_GE(beyond, 699) << first.log;  // the numbers are rounded down
  EXPECT_LE(beyond - planned, 3) << "one image more";
}

TEST(AutoBatch, TakesWhatEachReplicaAndTheEvaluationsNeed) {
  const int64_t alone = find(options_of(800)).batch;
  TfCnnOptions two = options_of(800);
  two.device.replicas = 2;
  const int64_t of_two = find(two).batch;
  EXPECT_LT(of_two, alone);
  EXPECT_GT(3 * of_two, alone) << "the program and its share are there once";

  TfCnnOptions evaluates = options_of(800);
  evaluates.mode = RunMode::kTrainingAndEvaluation;
  evaluates.steps.eval_every_n_steps = 1;
  EXPECT_LT(find(evaluates).batch, alone);

  TfCnnOptions forward = options_of(800);
  forward.mode = RunMode::kForwardOnly;
  const int64_t forwards = find(forward).batch;
  EXPECT_GT(forwards, alone) << "nothing is kept for a backward pass";
  forward.device.replicas = 2;
  EXPECT_LT(find(forward).batch, forwards);
  forward.device.replicas = 1;
  forward.eval_batch_size = 1;
  EXPECT_EQ(find(forward).batch, forwards) << "there are no evaluations, whose batches have that size";
  forward.eval_batch_size = 0;
  forward.input.batches_ahead = 50;
  EXPECT_LT(find(forward).batch, forwards) << "batches that wait";

  TfCnnOptions recomputing = options_of(800);
  recomputing.device.recompute = "blocks";
  EXPECT_GT(find(recomputing).batch, alone);
}

// The input hands over all micro-steps of a step before it begins.
TEST(AutoBatch, CountsTheBatchesOfAllMicroSteps) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  for (const std::string kind : {"cat", "dog"}) {
    files.make_directories(temp.file("photos/train/" + kind));
    for (int i = 0; i < 8; ++i) {
      files.write_file_atomically(temp.file("photos/train/" + kind + "/" + std::to_string(i) + ".png"),
                                  "nobody decodes it here");
    }
  }
  const auto planned = [&](int micro_steps) -> int64_t {
    TfCnnOptions options = options_of(2000);
    options.model = "trivial";
    options.input.data_name.clear();
    options.input.data_dir = temp.file("photos");
    options.input.batches_ahead = 2;
    options.image_size = 512;  // 3 MiB an image
    options.micro_steps = micro_steps;
    const std::string log = find(options).log;
    std::smatch found;
    EXPECT_THAT(log, HasSubstr(" MiB of 2000 MiB of --batch_size_memory_mib; "
                               "more would be too few steps of 16 images ("));
    // 16 images are steps of one image, whatever there is memory for.
    if (!std::regex_search(log, found, std::regex("batch_size=auto: 1 images a device need ([0-9]+) MiB"))) {
      ADD_FAILURE() << log;
      return 0;
    }
    return std::stoll(found[1]);
  };
  const int64_t one = planned(1), nine = planned(9);
  EXPECT_GE(nine - one, 8 * 3 - 1);
  EXPECT_LE(nine - one, 8 * 3 + 1);
}

TEST(AutoBatch, TheRunHasIt) {
  std::ostringstream out;
  testing::internal::CaptureStderr();
  TfCnnOptions options = options_of(560);
  const RunStatistics statistics = BenchmarkCnn(options).run(out);
  const std::string log = testing::internal::GetCapturedStderr();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(log, found, std::regex("batch_size=auto: ([0-9]+) images"))) << log;
  EXPECT_THAT(out.str(), HasSubstr("Batch size:  " + found[1].str() + " global"));
  EXPECT_EQ(statistics.num_steps, 2);
}

TEST(AutoBatch, AnEvaluationHasItToo) {
  const core::TempDir temp;
  TfCnnOptions training = options_of(560);
  training.batch_size = 2;
  training.batch_memory_bytes.reset();
  training.saving.train_dir = temp.file("run");
  std::ostringstream out;
  BenchmarkCnn(training).run(out);
  TfCnnOptions evaluation = options_of(560);
  evaluation.mode = RunMode::kEvaluation;
  evaluation.saving.train_dir = temp.file("run");
  const int64_t batch = find(evaluation).batch;
  EXPECT_GT(batch, 2);
  evaluation.eval_batch_size = 3;  // then nothing depends on it
  const PreparedRun run = prepare(evaluation);
  EXPECT_EQ(run.eval_batch_size, 3);
  EXPECT_EQ(run.batch_size, run.model->default_batch_size);
}

// A model of the caller's own hears the size that is found before its network is built for it.
class Own : public BenchmarkModel {
 public:
  std::string name() const override { return "own"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 16, 16}}, {"labels", {}}}; }
  void set_batch_size(int64_t size) override { heard = size; }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    built_for = heard;
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = options.num_classes}));
  }
  int64_t heard = 0;
  mutable int64_t built_for = 0;
};

TEST(AutoBatch, AModelOfTheCallersOwnHearsIt) {
  TfCnnOptions options = options_of(600);
  const auto own = std::make_shared<Own>();
  const PreparedRun run = prepare(options, {.model = own});
  EXPECT_GT(run.batch_size, 1);
  EXPECT_EQ(own->heard, run.batch_size);
  EXPECT_EQ(own->built_for, run.batch_size);
}

TEST(AutoBatch, RefusesWhatItCannotDo) {
  EXPECT_EQ(core::code_of([] { find(options_of(1)); }), core::ErrorCode::kNoSpace);
  TfCnnOptions reference = options_of(700);
  reference.device.executor = "reference";
  EXPECT_EQ(core::code_of([&] { find(reference); }), core::ErrorCode::kUnsupported);
  TfCnnOptions processes = options_of(700);
  processes.device.variable_update = "horovod";
  EXPECT_NO_THROW(processes.validate());
  processes.batch_memory_bytes.reset();
  EXPECT_THAT(core::message_of([&] { processes.validate(); }), HasSubstr("of one process"));
  TfCnnOptions without = options_of(700);
  without.batch_size = 4;
  EXPECT_THAT(core::message_of([&] { without.validate(); }), HasSubstr("--batch_size=auto"));
  without.batch_memory_bytes = -1;
  EXPECT_EQ(core::code_of([&] { without.validate(); }), core::ErrorCode::kInvalidArgument);
  without.batch_size = -2;
  EXPECT_EQ(core::code_of([&] { without.validate(); }), core::ErrorCode::kInvalidArgument);
}

TEST(AutoBatch, IsAValueOfTheFlag) {
  const auto read = [](const std::vector<std::string>& arguments) {
    return read_options(core::parse_flags(tf_cnn_flags(), arguments), Dialect::kTfCnnBenchmarks);
  };
  const TfCnnOptions options = read({"--batch_size=auto", "--batch_size_memory_mib=3"});
  EXPECT_EQ(options.batch_size, kLargestBatch);
  EXPECT_EQ(options.batch_memory_bytes, int64_t{3} << 20);
  EXPECT_EQ(read({"--batch_size=12"}).batch_size, 12);
  EXPECT_THAT(core::message_of([&] { read({"--batch_size=-1"}); }), HasSubstr("must not be negative"));
  EXPECT_THAT(core::message_of([&] { read({"--batch_size=automatic"}); }), HasSubstr("is not an integer"));
  EXPECT_THAT(core::message_of([&] { read({"--eval_batch_size=auto"}); }), HasSubstr("is not an integer"));
}

}  // namespace
}  // namespace trainyard::frontends::auto_batch_test
