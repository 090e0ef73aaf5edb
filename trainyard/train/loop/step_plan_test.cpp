#include "trainyard/train/loop/step_plan.h"

#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::train::step_plan_test {
namespace {

std::string problem_of(const StepPlanOptions& options) {
  return core::problem_of([&] { make_step_plan(options); });
}

// testNumBatchesAndEpochs of tf_cnn_benchmarks.
TEST(BatchesAndEpochs, UpstreamOracles) {
  const auto check = [](BatchesAndEpochs got, int64_t batches, double epochs) {
    EXPECT_EQ(got.batches, batches);
    EXPECT_DOUBLE_EQ(got.epochs, epochs);
  };
  check(batches_and_epochs({}, {}, 10, 100), 100, 10.0);
  check(batches_and_epochs(21, {}, 25, 50), 21, 10.5);
  check(batches_and_epochs({}, 3, 2, 3), 5, 10.0 / 3);
  check(batches_and_epochs({}, 4, 2, 3), 6, 4);
  check(batches_and_epochs(0, {}, 10, 100), 100, 10.0);  // 0 means the default
  check(batches_and_epochs(0, 3, 2, 3), 5, 10.0 / 3);
  EXPECT_EQ(core::problem_of([] { batches_and_epochs(1, 1, 2, 3); }),
            "At most one of --num_batches and --num_epochs may be specified.");
}

StepPlanOptions small_run() {
  return {.num_batches = 7, .global_batch_size = 2, .train_examples = 10, .eval_examples = 4};
}

TEST(StepPlan, EvaluationFollowsTrainingUnlessToldOtherwise) {
  StepPlanOptions options = small_run();
  EXPECT_EQ(make_step_plan(options).num_eval_batches, 7);
  EXPECT_DOUBLE_EQ(make_step_plan(options).num_eval_epochs, 3.5);
  options.num_eval_batches = 3;
  EXPECT_EQ(make_step_plan(options).num_eval_batches, 3);
  options.num_eval_batches.reset();
  options.num_batches.reset();
  options.num_epochs = 2;  // of its own examples
  EXPECT_EQ(make_step_plan(options).num_batches, 10);
  EXPECT_EQ(make_step_plan(options).num_eval_batches, 4);
  // testEvalDuringTrainingNumEpochs of tf_cnn_benchmarks.
  EXPECT_EQ(make_step_plan({.num_eval_epochs = 100.0 / 50000,
                            .global_batch_size = 1,
                            .global_eval_batch_size = 2,
                            .train_examples = 1281167,
                            .eval_examples = 50000})
                .num_eval_batches,
            50);
}

TEST(StepPlan, WarmupGrowsWithTheAutotuneThreshold) {
  const auto warmup = [](std::optional<int64_t> given, std::optional<int64_t> threshold, int64_t group) {
    StepPlanOptions options = small_run();
    options.num_warmup_batches = given;
    options.autotune_threshold = threshold;
    options.batch_group_size = group;
    const StepPlan plan = make_step_plan(options);
    return std::pair(plan.num_warmup_batches, plan.warmup_was_rounded);
  };
  EXPECT_EQ(warmup({}, {}, 1), std::pair(int64_t{10}, false));
  EXPECT_EQ(warmup({}, 0, 1), std::pair(int64_t{10}, false));
  EXPECT_EQ(warmup({}, 1, 1), std::pair(int64_t{10}, false));
  EXPECT_EQ(warmup({}, 2, 1), std::pair(int64_t{20}, false));
  EXPECT_EQ(warmup({}, 3, 1), std::pair(int64_t{45}, false));
  EXPECT_EQ(warmup(0, 3, 4), std::pair(int64_t{0}, false));
  EXPECT_EQ(warmup(5, {}, 4), std::pair(int64_t{8}, true));  // tf_cnn_benchmarks' testBatchGroupSize
  EXPECT_EQ(warmup(8, {}, 4), std::pair(int64_t{8}, false));
}

// The steps after which a run of `options` evaluates, its end not counted.
std::vector<int64_t> evaluations(const StepPlanOptions& options) {
  const StepPlan plan = make_step_plan(options);
  std::vector<int64_t> steps;
  for (int64_t step = -2; step <= plan.num_batches; ++step) {
    if (plan.evaluate_after(step, plan.num_batches)) steps.push_back(step);
  }
  return steps;
}

// testEvalDuringTraining of tf_cnn_benchmarks: seven steps; a final evaluation follows each.
TEST(StepPlan, EvaluationsDuringTraining) {
  StepPlanOptions options = small_run();
  EXPECT_TRUE(evaluations(options).empty()) << "none is asked for";
  options.eval_every_n_epochs = 0;
  EXPECT_TRUE(evaluations(options).empty());

  options = small_run();
  options.eval_every_n_steps = 2;
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{2, 4, 6}));

  options = small_run();
  options.eval_every_n_epochs = 2.0 * 2 / 10;
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{2, 4, 6}));
  options.eval_every_n_epochs = 1;
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{5}));
  options.eval_every_n_epochs = 1e-12;
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));

  options.num_batches = int64_t{1} << 53;
  options.eval_every_n_epochs = 1;
  EXPECT_NE(problem_of(options).find("more than 1000000 evaluations"), std::string::npos) << problem_of(options);

  options = small_run();
  options.eval_at_steps = {2, 3, 5, 7, 1000};
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{2, 3, 5}));

  options = small_run();
  options.eval_at_epochs = {0, 0.25, 0.3, 1.0};  // part of an example does not count: 2.5 are 2
  EXPECT_EQ(evaluations(options), (std::vector<int64_t>{1, 2, 5}));
}

TEST(StepPlan, AResumedRunDoesWhatIsLeft) {
  EXPECT_EQ(end_local_step(20, 0), 20);
  EXPECT_EQ(end_local_step(20, 15), 5);  // as tf_cnn_benchmarks: 10 + 5 warm-up steps, then 20 in all
  EXPECT_EQ(end_local_step(20, 15, 2), 13);
  EXPECT_EQ(end_local_step(20, 25), 0);
}

TEST(StepPlan, RefusesWhatMakesNoSense) {
  const auto with = [](auto change) {
    StepPlanOptions options = small_run();
    change(options);
    return problem_of(options);
  };
  EXPECT_EQ(problem_of(small_run()), "");
  EXPECT_EQ(with([](auto& o) { o.num_batches = -1; }), "num_batches must not be negative, as -1 is");
  EXPECT_EQ(with([](auto& o) { o.num_batches.reset(), o.num_epochs = -0.5; }),
            "num_epochs must not be negative, as -0.5 is");
  EXPECT_EQ(with([](auto& o) { o.num_epochs = 1; }), "At most one of --num_batches and --num_epochs may be specified.");
  EXPECT_EQ(with([](auto& o) { o.num_batches.reset(), o.num_epochs = 1e300; }),
            "1e+300 epochs of 10 examples are too many");
  EXPECT_EQ(with([](auto& o) { o.num_warmup_batches = -1; }), "num_warmup_batches must not be negative, as -1 is");
  EXPECT_EQ(with([](auto& o) { o.autotune_threshold = -1; }), "autotune_threshold must not be negative, as -1 is");
  EXPECT_EQ(with([](auto& o) { o.autotune_threshold = int64_t{1} << 40; }),
            "autotune_threshold 1099511627776 is too large");
  EXPECT_EQ(with([](auto& o) { o.batch_group_size = 0; }), "batch_group_size must be positive, not 0");
  EXPECT_EQ(with([](auto& o) { o.global_batch_size = 0; }), "batch size must be positive, not 0");
  EXPECT_EQ(with([](auto& o) { o.train_examples = 0; }), "an epoch must have examples, not 0");
  EXPECT_EQ(with([](auto& o) { o.train_examples = 1; }), "");
  EXPECT_EQ(with([](auto& o) { o.eval_every_n_epochs = -1; }), "epochs between evaluations must be positive, not -1");
  EXPECT_EQ(with([](auto& o) { o.eval_every_n_steps = 0; }), "steps between evaluations must be positive, not 0");
  EXPECT_EQ(with([](auto& o) { o.eval_at_epochs = {-1}; }), "an epoch of evaluation must not be negative, as -1 is");
}

}  // namespace
}  // namespace trainyard::train::step_plan_test
