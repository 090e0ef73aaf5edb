// The numbers of step lines and of the progress line: which loss, and over which steps a speed is a mean.
#include <cmath>
#include <regex>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends::shown_numbers_test {
namespace {

using ::testing::HasSubstr;

TfCnnOptions two_steps() {
  TfCnnOptions options;
  options.model = "lenet";
  options.batch_size = 2;
  options.steps.num_batches = 2;
  options.steps.num_warmup_batches = 1;
  options.display.display_every = 1;
  options.device.gpu = false;
  options.device.deterministic = true;
  options.learning_rate.init_learning_rate = 0.001;
  return options;
}

// What the line of a step shows.
struct Shown {
  double mean = 0, uncertainty = 0, loss = 0;
};

Shown shown(const std::string& lines, int step) {
  const std::regex line("\n" + std::to_string(step) +
                        "\timages/sec: ([0-9.]+) \\+/- ([0-9.]+) \\(jitter = [0-9.]+\\)\t([0-9.]+)");
  std::smatch found;
  if (!std::regex_search(lines, found, line)) {
    ADD_FAILURE() << "no step " << step << " in:\n" << lines;
    return {};
  }
  return {.mean = std::stod(found[1]), .uncertainty = std::stod(found[2]), .loss = std::stod(found[3])};
}

std::string lines_of(const TfCnnOptions& options) {
  std::ostringstream out;
  BenchmarkCnn(options).run(out);
  return out.str();
}

// With a weight of 1 the speed is that of the newest step: two speeds whose standard error is u differ by sqrt(8) u.
// The numbers have one digit behind the point.
TEST(ShownSpeeds, AreMeansOfTheWeightThatIsAskedFor) {
  for (const RunMode mode : {RunMode::kTraining, RunMode::kForwardOnly}) {
    TfCnnOptions options = two_steps();
    options.mode = mode;
    options.display.display_perf_ewma = 1;
    const std::string lines = lines_of(options);
    const Shown first = shown(lines, 1), second = shown(lines, 2);
    EXPECT_NEAR(std::abs(second.mean - first.mean), std::sqrt(8.0) * second.uncertainty, 0.1 + std::sqrt(8.0) * 0.051)
        << run_mode_name(mode) << "\n"
        << lines;
  }
}

TEST(ShownLosses, HaveTheWeightDecayUnlessTheBaseIsAskedFor) {
  TfCnnOptions options = two_steps();
  options.update.weight_decay = 0.5;
  std::ostringstream total, base;
  const RunStatistics of_total = BenchmarkCnn(options).run(total);
  options.loss.loss_type_to_report = "base_loss";
  const RunStatistics of_base = BenchmarkCnn(options).run(base);
  const double all = shown(total.str(), 2).loss, part = shown(base.str(), 2).loss;
  EXPECT_GT(all, part + 1);
  EXPECT_NEAR(all, of_total.last_average_loss.value_or(0), 0.0006);
  EXPECT_NEAR(part, of_base.last_average_loss.value_or(0), 0.0006);
}

// Returns what a run writes to stderr.
std::string progress_of(TfCnnOptions options, const char* progress) {
  options.display.progress = progress;
  testing::internal::CaptureStderr();
  lines_of(options);
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressLine, ShowsTheLossOfTheLines) {
  EXPECT_THAT(progress_of(two_steps(), "on"), HasSubstr(" images/s loss "));
  EXPECT_THAT(progress_of(two_steps(), "off"), ::testing::Not(HasSubstr("\x1b[K")));
}

// An evaluation behind each step; the last one sees the images plain and in two views.
TEST(ProgressLine, ShowsEachEvaluationAndItsAccuracy) {
  TfCnnOptions options = two_steps();
  options.mode = RunMode::kTrainingAndEvaluation;
  options.steps.eval_every_n_steps = 1;
  options.steps.num_eval_batches = 1;
  options.tta = train::TestTimeAugmentation::kFlip;
  const std::string text = progress_of(options, "on");
  int evaluations = 0;
  for (size_t at = text.find("evaluating 0/1"); at != std::string::npos; at = text.find("evaluating 0/1", at + 1)) {
    ++evaluations;
  }
  EXPECT_EQ(evaluations, 3) << text;
  EXPECT_THAT(text, HasSubstr(" accuracy "));
}

}  // namespace
}  // namespace trainyard::frontends::shown_numbers_test
