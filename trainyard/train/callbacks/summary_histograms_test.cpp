// The distributions that a summary shows, against the numbers of the step counted here.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::summary_histograms_test {
namespace {

struct HistogramRecord : Monitor {
  explicit HistogramRecord(std::map<int64_t, std::map<std::string, formats::Histogram>>& to) : by_step(to) {}
  void write(const Scalars&) override {}
  void write_histograms(const Histograms& histograms) override {
    EXPECT_EQ(histograms.wall_time, 1.7e9);
    for (const auto& [name, histogram] : histograms.values) {
      EXPECT_TRUE(by_step[histograms.global_step].emplace(name, histogram).second) << name << " twice";
    }
  }
  std::map<int64_t, std::map<std::string, formats::Histogram>>& by_step;
};

// Looks at the step before the summary does.
struct Look : Callback {
  std::string name() const override { return "look"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    const nn::ParameterSet& set = *view.replicas[0].parameters;
    gradients[trainer.global_step()] = set.gradient(*set.find("conv.weight")).clone();
    values[trainer.global_step()] = set.value(*set.find("conv.weight")).clone();
  }
  std::map<int64_t, at::Tensor> gradients, values;  // of conv.weight
};

struct Recorded {
  std::map<int64_t, std::map<std::string, formats::Histogram>> histograms;
  std::shared_ptr<Look> look = std::make_shared<Look>();
};

Recorded train_four_steps(SummaryHistograms histograms, const TowerTrainerOptions& options) {
  Recorded run;
  TowerTrainer trainer(options, tiny_source(80, 8, options.devices.replicas));
  trainer.monitors().add(std::make_unique<HistogramRecord>(run.histograms));
  trainer.add(run.look);
  trainer.add(std::make_shared<SummaryCallback>(
      SummaryOptions{.every_steps = 2, .batch_size = 8, .histograms = histograms, .wall_clock = [] { return 1.7e9; }}));
  trainer.train({.steps_per_epoch = 4});
  return run;
}

formats::Histogram histogram_of(const at::Tensor& tensor) {
  return formats::make_histogram({tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())});
}

TEST(SummaryHistograms, AreThoseOfTheStepsGradientsAndValues) {
  Recorded run = train_four_steps(SummaryHistograms::kAll, tiny_options({}, 2));
  ASSERT_EQ(run.histograms.size(), 2U);
  for (const int64_t step : {2, 4}) {
    auto& shown = run.histograms[step];
    EXPECT_EQ(shown.size(), 2 * 5 + 1U) << "conv, bn's two, fc's two, and log_gradients";
    EXPECT_EQ(shown["conv.weight/gradients"], histogram_of(run.look->gradients[step]));
    EXPECT_EQ(shown["conv.weight"], histogram_of(run.look->values[step]));
    double largest = -HUGE_VAL;
    for (const auto& [name, histogram] : shown) {
      if (!name.ends_with("/gradients")) continue;
      largest = std::max({largest, std::log(std::abs(histogram.min)), std::log(std::abs(histogram.max))});
    }
    EXPECT_DOUBLE_EQ(shown["log_gradients"].max, largest);
    EXPECT_GT(shown["log_gradients"].count, 200);
  }
  EXPECT_NE(run.histograms[2]["conv.weight"], run.histograms[4]["conv.weight"]);
}

// A scale that is a power of two changes no bit of what the optimizer uses, and the scaled gradients are other numbers.
TEST(SummaryHistograms, ShowGradientsWithoutTheirLossScale) {
  TowerTrainerOptions options = tiny_options();
  Recorded plain = train_four_steps(SummaryHistograms::kAll, options);
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 128, .automatic = true, .raise_after = 1};
  Recorded scaled = train_four_steps(SummaryHistograms::kAll, options);
  EXPECT_EQ(plain.histograms, scaled.histograms);
  EXPECT_FALSE(plain.look->gradients[2].equal(scaled.look->gradients[2]));
}

TEST(SummaryHistograms, OfTheSecondLevelAreOneAndOfTheFirstNone) {
  const Recorded run = train_four_steps(SummaryHistograms::kLogGradients, tiny_options());
  ASSERT_EQ(run.histograms.size(), 2U);
  EXPECT_EQ(run.histograms.at(2).size(), 1U);
  EXPECT_TRUE(run.histograms.at(2).contains("log_gradients"));
  EXPECT_TRUE(train_four_steps(SummaryHistograms::kNone, tiny_options()).histograms.empty());
}

}  // namespace
}  // namespace trainyard::train::summary_histograms_test
