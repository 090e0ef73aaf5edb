// The range test of a whole run, on a linear model whose largest stable rate is known: for a loss
// 0.5 |W x - y|^2 with the same x in all samples, the curvature is |x|^2, and gradient descent converges below
// 2 / |x|^2. The targets y are 1.02 and 0.98 in turn, so that the gradient never vanishes.
#include <algorithm>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/optim/schedules/rate_range.h"
#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::frontends::find_learning_rate_test {
namespace {

using ::testing::HasSubstr;

constexpr double kPixel = 0.5;
constexpr double kCurvature = 3 * 4 * 4 * kPixel * kPixel;  // |x|^2
constexpr double kStable = 2 / kCurvature;

class LeastSquares : public BenchmarkModel {
 public:
  std::string name() const override { return "least_squares"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 4, 4}}, {"labels", {}}}; }
  core::NamedTensors get_synthetic_inputs(const SyntheticBatch& wanted) const override {
    return {{"images", at::full({wanted.batch_size, 3, 4, 4}, kPixel)},
            {"labels", at::full({wanted.batch_size}, wanted.batch % 2, at::kLong)}};
  }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 2, .bias = false}));
  }
  train::LossFunction loss_function() const override {
    return [factor = loss_factor](const at::Tensor& output, const at::Tensor& labels) {
      return factor * 0.5 * (output - (0.98 + 0.04 * labels.unsqueeze(1))).square().sum(1).mean();
    };
  }

  double loss_factor = 1;
};

TfCnnOptions options_of(const core::TempDir& temp) {
  TfCnnOptions options;
  options.dialect = Dialect::kTrainyard;
  options.model = "";
  options.device.gpu = false;
  options.device.variable_update = "replicated";
  options.batch_size = 4;
  options.num_classes = 2;
  options.update.optimizer = "sgd";
  options.update.weight_decay = 0;
  options.range_test =
      RangeTestRequest{.rates = {.lowest = 1e-6, .highest = 1e3, .steps = 180}, .picture = temp.file("found.svg")};
  return options;
}

double number_behind(const std::string& text, const std::string& words) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(words + "([0-9.e+-]+)"))) return 0;
  return std::stod(found[1]);
}

TEST(FindLearningRate, FindsTheStableRatesOfALinearModel) {
  const core::TempDir temp;
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options_of(temp), nullptr, std::make_shared<LeastSquares>()).run(out);
  testing::internal::GetCapturedStderr();
  const std::string text = out.str();
  const double end = number_behind(text, "diverged at a learning rate of ");
  EXPECT_GT(end, kStable) << "it diverged at a rate that converges\n" << text;
  EXPECT_LT(end, 20 * kStable) << text;
  const double steepest = number_behind(text, "steepest slope at "), proposal = number_behind(text, "Proposal: ");
  for (const double rate : {steepest, proposal}) {
    EXPECT_LT(rate, kStable) << text;
    EXPECT_GT(rate, kStable / 1000) << text;
  }
  EXPECT_EQ(number_behind(text, "--init_learning_rate="), proposal) << text;

  // The files say the same: a line for each step, the last of which is where it ended.
  core::FileSystem& files = core::local_file_system();
  std::istringstream lines(files.read_file(temp.file("found.csv"), 1 << 20));
  std::string line, last;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "step,learning_rate,loss,smoothed_loss");
  while (std::getline(lines, line)) last = line;
  EXPECT_NEAR(std::stod(last.substr(last.find(',') + 1)), end, 0.01 * end);
  EXPECT_THAT(files.read_file(temp.file("found.svg"), 1 << 20), HasSubstr("range test</text>"));
}

// A warm-up begins at a rate of 0, which says nothing about what a training multiplies its rate by.
TEST(FindLearningRate, TheProposalIsWrittenForAScaledRate) {
  const core::TempDir temp;
  TfCnnOptions options = options_of(temp);
  options.learning_rate.init_learning_rate = 3;
  options.learning_rate.schedule = "constant";
  options.learning_rate.warmup_epochs = 1;
  options.learning_rate.scaling = optim::BatchScaling::kLinear;
  options.learning_rate.scaling_batch_size = 1;  // and batches are of 4
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options, nullptr, std::make_shared<LeastSquares>()).run(out);
  testing::internal::GetCapturedStderr();
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("\n         --learning_rate_scaling multiplies this rate by 4\n"));
  const double proposal = number_behind(text, "Proposal: ");
  ASSERT_GT(proposal, 0) << text;
  EXPECT_NEAR(4 * number_behind(text, "--init_learning_rate=") / proposal, 1, 0.02) << text;
}

// Single losses behind the end of the test are cut at the highest smoothed one, here far below 1.
TEST(FindLearningRate, ThePictureShowsWhatWasMeasured) {
  const core::TempDir temp;
  const TfCnnOptions options = options_of(temp);
  const auto model = std::make_shared<LeastSquares>();
  model->loss_factor = 1e-3;
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options, nullptr, model).run(out);
  testing::internal::GetCapturedStderr();
  core::FileSystem& files = core::local_file_system();
  optim::RangeTest test(options.range_test->rates);
  std::istringstream lines(files.read_file(temp.file("found.csv"), 1 << 20));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    test.note(std::stod(line.substr(line.find(',', line.find(',') + 1) + 1)));
  }
  train::CurveSeries loss{.name = "loss"}, smoothed{.name = "smoothed"}, proposed{.name = "proposal", .joined = false};
  for (const optim::RangeTestPoint& point : test.points()) {
    smoothed.x.push_back(point.rate);
    smoothed.y.push_back(point.smoothed);
  }
  ASSERT_FALSE(smoothed.y.empty());
  const double highest = *std::max_element(smoothed.y.begin(), smoothed.y.end());
  EXPECT_LT(highest, 0.1);
  bool cut = false;
  loss.x = smoothed.x;
  for (const optim::RangeTestPoint& point : test.points()) {
    loss.y.push_back(std::min(point.loss, highest));
    cut = cut || point.loss > highest;
  }
  EXPECT_TRUE(cut) << "nothing to cut";
  const std::optional<optim::RateProposal> proposal = test.proposal();
  ASSERT_TRUE(proposal.has_value());
  for (size_t i = 0; i < smoothed.x.size() && proposed.x.empty(); ++i) {
    if (smoothed.x[i] < proposal->tenth_of_minimum) continue;
    proposed.x.push_back(proposal->tenth_of_minimum);
    proposed.y.push_back(smoothed.y[i]);
  }
  EXPECT_EQ(
      files.read_file(temp.file("found.svg"), 1 << 20),
      train::curve_svg("least_squares on imagenet (synthetic): range test", {{.title = "loss",
                                                                              .series = {loss, smoothed, proposed},
                                                                              .x_axes = {{"learning rate"}},
                                                                              .logarithmic = true}}));
}

// A loss that does not depend on the weights: its files are written all the same.
TEST(FindLearningRate, WithoutAFallThereIsNoProposal) {
  class Constant : public LeastSquares {
   public:
    train::LossFunction loss_function() const override {
      return [](const at::Tensor& output, const at::Tensor&) { return 0 * output.mean() + 1; };
    }
  };
  const core::TempDir temp;
  TfCnnOptions options = options_of(temp);
  options.range_test->rates = {.lowest = 1e-6, .highest = 1e-3, .steps = 20};
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options, nullptr, std::make_shared<Constant>()).run(out);
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(out.str(), HasSubstr("The loss did not diverge up to 0.001: --max_lr may be higher\n"
                                   "No proposal: the loss fell nowhere."));
  EXPECT_EQ(out.str().find("Proposal: "), std::string::npos) << out.str();
  for (const char* file : {"found.svg", "found.csv"}) {
    EXPECT_TRUE(core::local_file_system().exists(temp.file(file))) << file;
  }
}

TEST(FindLearningRate, ALimitOfTheRatesIsSaid) {
  const core::TempDir temp;
  TfCnnOptions options = options_of(temp);
  options.range_test->rates.highest = kStable / 10;
  options.display.display_every = 50;
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options, nullptr, std::make_shared<LeastSquares>()).run(out);
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(out.str(), HasSubstr("The loss did not diverge up to 0.0167: --max_lr may be higher"));
  // The first step, each 50th and the last one are shown, and all are in the file.
  std::vector<std::string> shown;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) {
    if (line.find('\t') != std::string::npos) shown.push_back(line.substr(0, line.find('\t')));
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"Step", "1", "50", "100", "150", "180"}));
  EXPECT_THAT(out.str(), HasSubstr("\tsmoothed_loss\n1\t1e-06\t"));
  const std::string numbers = core::local_file_system().read_file(temp.file("found.csv"), 1 << 20);
  EXPECT_THAT(numbers, ::testing::StartsWith("step,learning_rate,loss,smoothed_loss\n1,1e-06,"));
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), '\n'), 1 + 180);
}

TEST(FindLearningRate, RefusesWhatDoesNotTrain) {
  const core::TempDir temp;
  TfCnnOptions options = options_of(temp);
  options.mode = RunMode::kForwardOnly;
  EXPECT_EQ(core::code_of([&] { options.validate(); }), core::ErrorCode::kInvalidArgument);
  options = options_of(temp);
  options.plot_schedule = "schedule.svg";
  EXPECT_THAT(core::message_of([&] { options.validate(); }), HasSubstr("plot_schedule"));
  options = options_of(temp);
  options.range_test->rates.steps = 2;
  EXPECT_EQ(core::code_of([&] { options.validate(); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::frontends::find_learning_rate_test
