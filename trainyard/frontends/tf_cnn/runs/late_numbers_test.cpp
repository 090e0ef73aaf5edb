// Numbers of evaluations that are computed while the training continues (--collect_eval_results_async).
#include <cstdint>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/frontends/tf_cnn/compliance_facts.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/models/testing/tiny_ssd.h"

namespace trainyard::frontends::late_numbers_test {
namespace {

using ::testing::Each, ::testing::Ge, ::testing::HasSubstr, ::testing::Lt, ::testing::Not;

constexpr const char* kReached = "Stopping, as the model indicates its custom goal was reached\n";
constexpr double kGoal = 0.05;

// Learns four images by heart, by which it is evaluated.
TfCnnOptions options_of_detector(const core::TempDir& temp, int64_t steps, int64_t between_evaluations) {
  data::write_boxes_to_learn(temp.file("four"), 4, 100);
  TfCnnOptions options;
  options.model = "tiny_ssd";
  options.mode = RunMode::kTrainingAndEvaluation;
  options.input.data_name = "coco";
  options.input.data_dir = temp.file("four");
  options.input.images.distortions = false;
  options.device.gpu = false;
  options.threads.intra_op_threads = 1;
  options.batch_size = 4;
  options.steps.num_warmup_batches = 0;
  options.steps.num_batches = steps;
  options.steps.eval_every_n_steps = between_evaluations;
  options.steps.num_eval_batches = 1;
  options.update.optimizer = "adam";
  options.update.weight_decay = 0;
  options.learning_rate.init_learning_rate = 0.003;
  options.saving.keep_best = "none";
  options.saving.train_dir = temp.file("run");
  options.display.display_every = 20;
  options.collect_eval_results_async = true;
  return options;
}

struct Trained {
  int64_t steps = 0;
  std::string out;
  std::vector<std::string> compliance;
};

Trained train(const TfCnnOptions& options) {
  Trained trained;
  PreparedRun run = prepare(options);
  run.compliance = std::make_shared<ComplianceRun>(
      std::make_shared<ComplianceLog>(
          ComplianceLogOptions{.write = [&trained](std::string_view line) { trained.compliance.emplace_back(line); }}),
      compliance_facts(run));
  std::ostringstream out;
  const core::StopSource stop;
  trained.steps = run_training(run, out, stop.token()).num_steps;
  trained.out = out.str();
  return trained;
}

// Returns the precisions that a text has.
std::vector<double> precisions(const std::string& text) {
  std::vector<double> found;
  const std::regex line("Current AP: (-?[0-9.]+)\n");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
    found.push_back(std::stod((*match)[1].str()));
  }
  return found;
}

int64_t count_with(const std::vector<std::string>& lines, const std::string& text) {
  int64_t count = 0;
  for (const std::string& line : lines) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

TEST(LateNumbers, OfADetectorEndTheTrainingAtItsGoal) {
  const core::TempDir temp;
  TfCnnOptions options = options_of_detector(temp, 200, 20);
  options.stop_at_top_1_accuracy = kGoal;
  const Trained trained = train(options);
  EXPECT_LT(trained.steps, 200);
  const size_t reached = trained.out.find(kReached);
  ASSERT_NE(reached, std::string::npos) << trained.out;
  EXPECT_EQ(trained.out.find(kReached, reached + 1), std::string::npos) << trained.out;
  std::vector<double> before = precisions(trained.out.substr(0, reached));
  ASSERT_FALSE(before.empty()) << trained.out;
  EXPECT_GE(before.back(), kGoal);
  before.pop_back();
  EXPECT_THAT(before, Each(Lt(kGoal)));
  EXPECT_EQ(count_with(trained.compliance, ") eval_accuracy: "), std::ssize(precisions(trained.out)));

  // Behind the last step there is nothing to end.
  options.steps.num_batches = trained.steps + 2;
  options.steps.eval_every_n_steps = 1000;
  const Trained longer = train(options);
  EXPECT_EQ(longer.steps, 2);
  EXPECT_THAT(precisions(longer.out), Each(Ge(kGoal))) << longer.out;
  EXPECT_EQ(precisions(longer.out).size(), 1U);
  EXPECT_THAT(longer.out, Not(HasSubstr(kReached)));
}

TEST(LateNumbers, OfADetectorEndNothingWithoutAGoal) {
  const core::TempDir temp;
  const Trained trained = train(options_of_detector(temp, 12, 2));
  EXPECT_EQ(trained.steps, 12);
  EXPECT_EQ(precisions(trained.out).size(), 6U) << trained.out;
  EXPECT_THAT(trained.out, Not(HasSubstr(kReached)));
}

}  // namespace
}  // namespace trainyard::frontends::late_numbers_test
