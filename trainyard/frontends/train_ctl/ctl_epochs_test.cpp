#include "trainyard/frontends/train_ctl/ctl_epochs.h"

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::frontends::ctl_epochs_test {
namespace {

using ::testing::ElementsAre, ::testing::Pair;

constexpr int64_t kClasses = 7, kBatch = 2, kSteps = 3;
constexpr std::array<float, kClasses> kLogits = {1.5F, 1, 0.5F, 0, -0.5F, -1, -1.5F};  // of every image
// Of an epoch's five batches, of which the plan takes three.
constexpr int64_t kLabels[5][kBatch] = {{0, 5}, {1, 4}, {0, 0}, {6, 6}, {6, 6}};
constexpr double kTop1 = (1 / 2.0 + 0 + 1) / 3, kTop5 = (1 / 2.0 + 1 + 1) / 3;

// Means of the cross entropies of the first three batches.
double expected_loss() {
  double sum = 0, exponentials = 0;
  for (const float logit : kLogits) exponentials += std::exp(static_cast<double>(logit));
  for (int64_t batch = 0; batch < kSteps; ++batch) {
    for (const int64_t label : kLabels[batch]) {
      sum += std::log(exponentials) - static_cast<double>(kLogits.at(static_cast<size_t>(label)));
    }
  }
  return sum / static_cast<double>(kSteps * kBatch);
}

class Recorder : public train::Monitor {
 public:
  explicit Recorder(std::vector<train::Scalars>& written) : written_(written) {}
  void write(const train::Scalars& scalars) override { written_.push_back(scalars); }

 private:
  std::vector<train::Scalars>& written_;
};

// A network whose logits are its biases: images are zero, and the rate is too small to change anything.
class CtlEpochsOfBiases : public ::testing::Test {
 protected:
  using Place = std::pair<int64_t, int64_t>;  // epoch and batch

  CtlEpochsOfBiases() {
    nn::GraphBuilder b({.image = {3, 2, 2}, .name = "biases"});
    const CtlModel model{.graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = kClasses}))};
    train::TowerTrainerOptions options = ctl_trainer_options(model, {.momentum = 0.9, .batch_size = kBatch}, plan_,
                                                             {.executor = "auto"}, {.intra_op_threads = 1});
    options.learning_rate = optim::constant(1e-9);
    options.start = [](nn::ParameterSet& set) {
      set.values().zero_();
      at::Tensor bias = set.value(*set.find("fc.bias"));
      for (int64_t c = 0; c < kClasses; ++c) bias[c].fill_(kLogits.at(static_cast<size_t>(c)));
    };
    const auto make = [this](const data::BatchPlace& place) -> core::NamedTensors {
      places_.emplace_back(place.epoch, place.batch);
      const at::Tensor labels = at::empty({kBatch}, at::kLong);
      for (int64_t i = 0; i < kBatch; ++i) labels.mutable_data_ptr<int64_t>()[i] = kLabels[place.batch][i];
      return {{"images", at::zeros({kBatch, 3, 2, 2})}, {"labels", labels}};
    };
    trainer_ = std::make_unique<train::TowerTrainer>(
        options, std::make_shared<data::FunctionSource>(
                     make, data::FunctionSourceOptions{.batch_size = kBatch, .batches_per_epoch = 5}));
    trainer_->monitors().add(std::make_unique<Recorder>(written_));
  }

  // Two epochs with a validation, whose loss is 1/2, and a checkpoint.
  std::shared_ptr<CtlEpochs> train_two_epochs(bool validates_each_epoch) {
    CtlEpochsOptions options{.plan = plan_, .display_every = 2, .out = &out_};
    options.plan.validates_each_epoch = validates_each_epoch;
    options.validate = [this] {
      validated_.push_back(trainer_->global_step());
      return std::optional(train::Evaluation{.loss = 0.5, .top_1 = 0.25, .top_5 = 0.75});
    };
    options.save = [this] {
      const int64_t step = trainer_->global_step();
      return train::CheckpointInfo{.path = fmt::format("run/model.ckpt-{}", step), .global_step = step};
    };
    auto epochs = std::make_shared<CtlEpochs>(*trainer_, options);
    trainer_->add(epochs);
    trainer_->train({.steps_per_epoch = kSteps, .max_epoch = 2});
    return epochs;
  }
  // What was printed, without times and the rounded loss of the training.
  std::string lines() const {
    std::string text = std::regex_replace(out_.str(), std::regex("(images_per_sec|time_taken): [0-9.]+"), "$1: #");
    return std::regex_replace(text, std::regex("\nloss: [0-9.]+ "), "\nloss: # ");
  }

  CtlPlan plan_{.global_batch_size = kBatch, .steps_per_epoch = kSteps, .end_step = 2 * kSteps};
  std::vector<Place> places_;
  std::vector<int64_t> validated_;
  std::vector<train::Scalars> written_;
  std::ostringstream out_;
  std::unique_ptr<train::TowerTrainer> trainer_;
};

TEST_F(CtlEpochsOfBiases, BeginAtTheFirstSample) {
  train_two_epochs(true);
  EXPECT_THAT(places_, ElementsAre(Pair(0, 0), Pair(0, 1), Pair(0, 2), Pair(1, 0), Pair(1, 1), Pair(1, 2)))
      << "the other two batches of each epoch are left out";
}

TEST_F(CtlEpochsOfBiases, PrintMeansAndValidations) {
  const auto epochs = train_two_epochs(true);
  EXPECT_EQ(epochs->means().steps, kSteps);
  EXPECT_NEAR(epochs->means().loss, expected_loss(), 1e-5);
  EXPECT_NEAR(epochs->means().top_1, kTop1, 1e-12);
  EXPECT_NEAR(epochs->means().top_5, kTop5, 1e-12);
  EXPECT_THAT(validated_, ElementsAre(3, 6));
  EXPECT_EQ(lines(),
            "global_step: 2 images_per_sec: #\n"
            "epoch: 0 time_taken: #\n"
            "Saved checkpoint for epoch 1: run/model.ckpt-3\n"
            "loss: # - top1: 0.5000 - top5: 0.8333 - val_loss: 0.5 - val_top1: 0.2500 - val_top5: 0.7500 - "
            "learning_rate: 1e-09\n"
            "global_step: 4 images_per_sec: #\n"
            "global_step: 6 images_per_sec: #\n"
            "epoch: 1 time_taken: #\n"
            "Saved checkpoint for epoch 2: run/model.ckpt-6\n"
            "loss: # - top1: 0.5000 - top5: 0.8333 - val_loss: 0.5 - val_top1: 0.2500 - val_top5: 0.7500 - "
            "learning_rate: 1e-09\n");
  EXPECT_NE(out_.str().find(fmt::format("\nloss: {:.6g} - top1", epochs->means().loss)), std::string::npos)
      << out_.str();
  const std::string all = out_.str();
  epochs->save_rest();
  EXPECT_EQ(out_.str(), all) << "nothing was done since the last checkpoint";
}

TEST_F(CtlEpochsOfBiases, ValidateAtTheEndAlone) {
  const auto epochs = train_two_epochs(false);
  EXPECT_THAT(validated_, ElementsAre(6));
  EXPECT_TRUE(epochs->validation().has_value());
  const std::string text = lines();
  EXPECT_EQ(text.find("val_loss"), text.rfind("val_loss"));
  EXPECT_NE(text.find("loss: # - top1: 0.5000 - top5: 0.8333 - learning_rate: 1e-09\nglobal_step: 4 "),
            std::string::npos)
      << text;
}

TEST_F(CtlEpochsOfBiases, WriteTheirNumbers) {
  train_two_epochs(true);
  std::vector<const train::Scalars*> of_epochs;
  for (const train::Scalars& scalars : written_) {
    if (!scalars.values.empty() && scalars.values.front().first == "train_loss") of_epochs.push_back(&scalars);
  }
  ASSERT_EQ(of_epochs.size(), 2U);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    const train::Scalars& scalars = *of_epochs[epoch];
    EXPECT_EQ(scalars.global_step, epoch == 0 ? 3 : 6);
    EXPECT_DOUBLE_EQ(scalars.epoch, epoch == 0 ? 1 : 2);
    EXPECT_EQ(scalars.phase, "train");
    EXPECT_GT(scalars.wall_time, 1e9);
    ASSERT_EQ(scalars.values.size(), 8U);
    const std::pair<const char*, double> expected[] = {{"train_loss", expected_loss()},
                                                       {"train_top1", kTop1},
                                                       {"train_top5", kTop5},
                                                       {"val_loss", 0.5},
                                                       {"val_top1", 0.25},
                                                       {"val_top5", 0.75},
                                                       {"learning_rate", 1e-9}};
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(scalars.values[i].first, expected[i].first);
      EXPECT_NEAR(scalars.values[i].second, expected[i].second, i == 0 ? 1e-5 : 1e-12) << expected[i].first;
    }
    EXPECT_EQ(scalars.values[7].first, "images_per_sec");
    EXPECT_GT(scalars.values[7].second, 0);
  }
}

TEST_F(CtlEpochsOfBiases, MeansAreSavedWithTheLengthOfAnEpoch) {
  const auto epochs = train_two_epochs(true);
  core::MemoryState state;
  epochs->save(state);
  EXPECT_EQ(state.integer("steps_per_epoch"), kSteps);
  CtlEpochs same(*trainer_, {.plan = plan_, .out = &out_});
  same.load(state);
  EXPECT_EQ(same.means().steps, kSteps);
  EXPECT_EQ(same.means().loss, epochs->means().loss);
  EXPECT_EQ(same.means().top_1, epochs->means().top_1);
  EXPECT_EQ(same.means().top_5, epochs->means().top_5);
  CtlPlan longer = plan_;
  longer.steps_per_epoch = 4;
  CtlEpochs other(*trainer_, {.plan = longer, .out = &out_});
  EXPECT_EQ(core::message_of([&] { other.load(state); }),
            "the run in log_dir had epochs of another length: expected 3 steps, got 4 steps of 2 images; give the "
            "batch_size, the devices and the data that it had, or another log_dir");
  EXPECT_EQ(other.means().steps, 0);
}

}  // namespace
}  // namespace trainyard::frontends::ctl_epochs_test
