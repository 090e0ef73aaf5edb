// The learning rate of a run from its flags: the values of tf_cnn_benchmarks' own tests, and each schedule over the
// steps and epochs of a run.
#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::run_schedule_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

using Arguments = std::vector<std::string>;
using Oracle = std::vector<std::pair<int64_t, double>>;

LearningRateOptions options_of(const Arguments& arguments) {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
  check_learning_rate_decay(values);
  LearningRateOptions options;
  const auto piecewise = check_schedule_flags(values);
  options = read_learning_rate(values);
  options.piecewise = piecewise;
  return options;
}

ScheduleFacts imagenet(int64_t batch) {
  return {.train_examples = 1281167, .examples_per_step = batch, .steps = 20'000'000};
}
// 10 epochs of 20 steps.
ScheduleFacts small() {
  return {.train_examples = 160, .examples_per_step = 8, .steps = 200};
}

void expect_rates(const optim::LearningRate& rate, const Oracle& oracle) {
  for (const auto& [step, expected] : oracle) EXPECT_NEAR(rate(step), expected, 1e-9 * expected + 1e-15) << step;
}
void expect_schedule(const Arguments& arguments, const ScheduleFacts& facts, const Oracle& oracle) {
  SCOPED_TRACE(arguments.empty() ? "" : arguments.back());
  expect_rates(make_run_schedule(options_of(arguments), facts).learning_rate, oracle);
}

TEST(RunSchedule, IsTfCnnBenchmarks) {
  ScheduleFacts resnet50 = imagenet(256);
  resnet50.model = models::find_model("resnet50", "imagenet").schedule;
  expect_schedule(
      {}, resnet50,
      {{0, 0.0}, {150136, 0.128}, {150137, 0.0128}, {300273, 0.0128}, {300274, 0.00128}, {10000000, 0.0000128}});
  expect_schedule({"--init_learning_rate=1"}, imagenet(256), {{0, 1.0}, {10000000, 1.0}});
  expect_schedule({"--init_learning_rate=1", "--num_learning_rate_warmup_epochs=5"}, imagenet(256),
                  {{0, 0.0}, {12511, 0.5}, {25022, 1.0}, {10000000, 1.0}});
  const Oracle staircase = {{0, 1.0}, {80071, 1.0}, {80072, 0.5}, {160143, 0.5}, {160144, 0.375}, {10000000, 0.375}};
  const Arguments decay = {"--init_learning_rate=1", "--learning_rate_decay_factor=.5", "--num_epochs_per_decay=2",
                           "--minimum_learning_rate=.375"};
  expect_schedule(decay, imagenet(32), staircase);
  Arguments named = decay;
  named.emplace_back("--learning_rate_schedule=staircase");
  expect_schedule(named, imagenet(32), staircase);
  expect_schedule({"--piecewise_learning_rate_schedule=1;3;.1;5;.01"}, imagenet(32),
                  {{0, 1.0}, {120108, 1.0}, {120109, 0.1}, {200181, 0.1}, {200182, 0.01}, {100000000, 0.01}});
}

// tf_cnn_benchmarks' resnet_model_test: the model's rate for 256 images, a batch of 64 on each of 8 devices.
TEST(RunSchedule, AModelsOwnRateFollowsTheBatch) {
  ScheduleFacts facts = imagenet(512);
  facts.model = models::find_model("resnet50", "imagenet").schedule;
  const auto after_warmup = [&] {
    return make_run_schedule(options_of({}), facts).learning_rate(static_cast<int64_t>(1281167.0 / 512 * 6));
  };
  EXPECT_DOUBLE_EQ(after_warmup(), 0.256);
  facts.summed_replicas = 8;
  EXPECT_DOUBLE_EQ(after_warmup(), 0.032);
  facts.model = models::find_model("vgg16", "imagenet").schedule;
  EXPECT_DOUBLE_EQ(after_warmup(), facts.model.learning_rate) << "for no batch";
}

// tf_cnn_benchmarks reads --resnet_base_lr in its class ResnetModel alone: the rate at a batch of 256. At step 30,000
// of ImageNet the warm-up has ended, and the rate has not fallen yet.
TEST(RunSchedule, ABaseRateIsOfTheBenchmarksResnets) {
  const auto rate = [](const char* model, const char* dataset, int64_t batch, const Arguments& arguments) {
    ScheduleFacts facts = imagenet(batch);
    facts.model = models::find_model(model, dataset).schedule;
    return make_run_schedule(options_of(arguments), facts).learning_rate(30'000);
  };
  const Arguments base = {"--resnet_base_lr=0.5"};
  for (const char* model : {"resnet50", "resnet50_v1.5", "resnet101_v2"}) {
    EXPECT_DOUBLE_EQ(rate(model, "imagenet", 256, base), 0.5) << model;
    EXPECT_DOUBLE_EQ(rate(model, "imagenet", 512, base), 1.0) << model;
  }
  EXPECT_DOUBLE_EQ(rate("resnet50", "imagenet", 256, {"--resnet_base_lr=0.5", "--init_learning_rate=2"}), 2);
  EXPECT_DOUBLE_EQ(rate("official_resnet50", "imagenet", 256, base), 0.1);  // 0.0125 for 32 images
  for (const auto& [model, dataset] : {std::pair{"ssd300", "coco"}, std::pair{"ssd300_vgg16", "coco"},
                                       std::pair{"dali/resnet50", "imagenet"}, std::pair{"resnet20", "cifar10"}}) {
    EXPECT_EQ(rate(model, dataset, 256, base), rate(model, dataset, 256, {})) << model;
  }
}

// tf_cnn_benchmarks, ssd_model.py: rates fall at steps 160,000 and 200,000 of a batch of 32, and rise for five of
// COCO's epochs, whatever the data: int(118287 / 128 * 5) = 4620 steps.
TEST(RunSchedule, AModelsBoundariesMayBeStepsOfItsBatch) {
  const models::DefaultSchedule ssd{.learning_rate = 1e-3,
                                    .batch_size = 32,
                                    .warmup_epochs = 5,
                                    .boundary_steps = {160000, 200000},
                                    .factors = {1, 0.1, 0.01},
                                    .epoch_examples = 118287};
  ScheduleFacts facts{.model = ssd, .train_examples = 80, .examples_per_step = 128, .steps = 1'000'000};
  expect_schedule({}, facts,
                  {{0, 0.0}, {2310, 2e-3}, {4620, 4e-3}, {40000, 4e-3}, {40001, 4e-4}, {50000, 4e-4}, {50001, 4e-5}});
  const RunSchedule schedule = make_run_schedule({}, facts);
  EXPECT_EQ(schedule.warmup_steps, 4620);
  EXPECT_EQ(schedule.boundaries, (std::vector<int64_t>{40001, 50001}));
  facts.examples_per_step = 7;  // 160000 * 32 // 7 = 731428
  expect_schedule({}, facts, {{731428, 1e-3 * 7 / 32}, {731429, 1e-4 * 7 / 32}});
}

// tf_cnn_benchmarks' SSD300Model.get_learning_rate() at every step of a training, for batches that divide 160,000 * 32
// and that do not, and for gradients that are summed over replicas.
TEST(RunSchedule, EveryStepOfSsd300HasTheOriginalsRate) {
  for (const int64_t batch : {8, 32, 100, 2048}) {
    for (const int replicas : {1, 8}) {
      ScheduleFacts facts{.model = models::find_model("ssd300", "coco").schedule,
                          .train_examples = 117266,  // those with boxes: the original counts all
                          .examples_per_step = batch,
                          .steps = 240'000 * 32 / batch,
                          .summed_replicas = replicas};
      const RunSchedule schedule = make_run_schedule({}, facts);
      const double base = 1e-3 / replicas * static_cast<double>(batch) / 32;
      const auto warmup = static_cast<int64_t>(118287.0 / static_cast<double>(batch) * 5);
      const int64_t first = int64_t{160'000} * 32 / batch, second = int64_t{200'000} * 32 / batch;
      EXPECT_EQ(schedule.warmup_steps, warmup);
      EXPECT_EQ(schedule.boundaries, (std::vector<int64_t>{first + 1, second + 1}));
      int64_t wrong = 0;
      for (int64_t step = 0; step < facts.steps; ++step) {
        const double steady = step <= first ? base : step <= second ? base * 0.1 : base * 0.01;
        const double expected = step < warmup ? base * static_cast<double>(step) / static_cast<double>(warmup) : steady;
        if (!(std::abs(schedule.learning_rate(step) - expected) <= 1e-12 * expected)) ++wrong;
      }
      EXPECT_EQ(wrong, 0) << batch << " images a step, " << replicas << " replicas";
    }
  }
}

TEST(RunSchedule, CosineFallsToItsMinimumAfterTheWarmup) {
  expect_schedule({"--init_learning_rate=.4", "--num_learning_rate_warmup_epochs=2", "--warmup_learning_rate=.1",
                   "--minimum_learning_rate=.05", "--learning_rate_schedule=cosine"},
                  small(), {{0, 0.1}, {20, 0.25}, {40, 0.4}, {120, 0.225}, {200, 0.05}});
  // The factor of a warm-up that multiplies: the cosine begins at step 0.
  const auto cosine = [](int64_t step) { return 0.2 * (1 + std::cos(M_PI * static_cast<double>(step) / 200)); };
  expect_schedule({"--init_learning_rate=.4", "--num_learning_rate_warmup_epochs=2", "--warmup_learning_rate=.1",
                   "--learning_rate_warmup=multiply", "--learning_rate_schedule=cosine"},
                  small(), {{0, 0.1}, {20, 0.625 * cosine(20)}, {40, cosine(40)}, {100, 0.2}});
}

// timm's CosineLRScheduler without warmup_prefix: the cosine begins at step 0, and the warm-up hides its first part.
TEST(RunSchedule, AWarmupMayCoverTheBeginningOfTheSchedule) {
  const auto cosine = [](int64_t step) {
    return 0.05 + 0.175 * (1 + std::cos(M_PI * static_cast<double>(step) / 200));
  };
  expect_schedule({"--init_learning_rate=.4", "--num_learning_rate_warmup_epochs=2", "--warmup_learning_rate=.1",
                   "--minimum_learning_rate=.05", "--learning_rate_warmup=cover", "--learning_rate_schedule=cosine"},
                  small(), {{0, 0.1}, {20, 0.25}, {39, 0.3925}, {40, cosine(40)}, {120, cosine(120)}, {200, 0.05}});
}

// 10 epochs of 17 images in batches of 5: the epochs begin in steps 0, 4, 7, 11, 14, 17, ...
TEST(RunSchedule, ARateMayChangeByTheEpoch) {
  const ScheduleFacts facts = {.train_examples = 17, .examples_per_step = 5, .steps = 34};
  const auto cosine = [](double epoch) { return 0.2 * (1 + std::cos(M_PI * (epoch - 2) / 8)); };
  const Arguments arguments = {"--init_learning_rate=.2",          "--num_learning_rate_warmup_epochs=2",
                               "--warmup_learning_rate=.1",        "--learning_rate_schedule=cosine",
                               "--learning_rate_updates=epoch",    "--learning_rate_scaling=linear",
                               "--learning_rate_base_batch_size=2"};
  const RunSchedule schedule = make_run_schedule(options_of(arguments), facts);
  const double top = 0.2 * 5 / 2;
  expect_rates(schedule.learning_rate, {{0, 0.1},
                                        {3, 0.1},
                                        {4, 0.3},
                                        {6, 0.3},
                                        {7, top},
                                        {10, top},
                                        {11, top / 0.4 * cosine(3)},
                                        {13, top / 0.4 * cosine(3)},
                                        {14, top / 0.4 * cosine(4)},
                                        {33, top / 0.4 * cosine(9)}});
  EXPECT_EQ(schedule.warmup_steps, 7);
  EXPECT_EQ(schedule.name, "cosine by the epoch");
  // PyTorch's StepLR of two epochs, and rates by epochs.
  const RunSchedule stairs = make_run_schedule(
      options_of({"--init_learning_rate=1", "--learning_rate_schedule=staircase", "--num_epochs_per_decay=2",
                  "--learning_rate_decay_factor=.5", "--learning_rate_updates=epoch"}),
      facts);
  expect_rates(stairs.learning_rate, {{6, 1.0}, {7, 0.5}, {13, 0.5}, {14, 0.25}, {33, 0.0625}});
  EXPECT_THAT(stairs.boundaries, ElementsAre(7, 14, 21, 28));
  // A step has two and a half epochs.
  const RunSchedule short_epochs = make_run_schedule(
      options_of({"--init_learning_rate=1", "--learning_rate_schedule=staircase", "--num_epochs_per_decay=1",
                  "--learning_rate_decay_factor=.5", "--learning_rate_updates=epoch"}),
      {.train_examples = 2, .examples_per_step = 5, .steps = 3});
  expect_rates(short_epochs.learning_rate, {{0, 1.0}, {1, 0.25}, {2, 0.03125}});
  EXPECT_THAT(short_epochs.boundaries, ElementsAre(1, 2));
  const RunSchedule piecewise = make_run_schedule(
      options_of({"--piecewise_learning_rate_schedule=1;1;.5;3;.1", "--learning_rate_updates=epoch"}), facts);
  expect_rates(piecewise.learning_rate, {{3, 1.0}, {4, 0.5}, {10, 0.5}, {11, 0.1}});
}

// 10 epochs of 17 images in batches of 6 are 29 steps, 4 images more than 10 epochs: PyTorch's CosineAnnealingLR with a
// T_max of 10, and not of 11.
TEST(RunSchedule, ARateByTheEpochKnowsNoEpochThatOnlyTheLastStepReachesInto) {
  const ScheduleFacts facts = {.train_examples = 17, .examples_per_step = 6, .steps = 29};
  const auto cosine = [](double epoch) { return 0.2 * (1 + std::cos(M_PI * epoch / 10)); };
  expect_schedule({"--init_learning_rate=.4", "--learning_rate_updates=epoch", "--learning_rate_schedule=cosine"},
                  facts,
                  {{0, 0.4},
                   {2, 0.4},
                   {3, cosine(1)},
                   {5, cosine(1)},
                   {6, cosine(2)},
                   {25, cosine(8)},
                   {26, cosine(9)},
                   {28, cosine(9)}});
  // A run that ends within an epoch has that one, too.
  const ScheduleFacts part = {.train_examples = 17, .examples_per_step = 6, .steps = 4};
  expect_schedule({"--init_learning_rate=.4", "--learning_rate_updates=epoch", "--learning_rate_schedule=polynomial"},
                  part, {{0, 0.4}, {2, 0.4}, {3, 0.2}});
}

// Half a cosine, or a line, over the 160 steps in front of the cooldown.
TEST(RunSchedule, ACooldownStaysAtTheMinimum) {
  const Arguments cooldown = {"--init_learning_rate=.4", "--minimum_learning_rate=.04",
                              "--num_learning_rate_cooldown_epochs=2"};
  const auto with = [&](const Arguments& more) {
    Arguments all = cooldown;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto cosine = [](int64_t step) { return 0.04 + 0.18 * (1 + std::cos(M_PI * static_cast<double>(step) / 160)); };
  expect_schedule(with({"--learning_rate_schedule=cosine"}), small(),
                  {{0, 0.4}, {40, cosine(40)}, {80, 0.22}, {159, cosine(159)}, {160, 0.04}, {199, 0.04}});
  expect_schedule(with({"--learning_rate_schedule=polynomial"}), small(),
                  {{0, 0.4}, {80, 0.22}, {120, 0.13}, {160, 0.04}, {199, 0.04}});
  const LearningRateOptions options = options_of(with({"--learning_rate_schedule=cosine"}));
  EXPECT_THAT(make_run_schedule(options, small()).boundaries, ElementsAre(160));
  const auto message = [&](const Arguments& more) {
    return core::message_of([&] { make_run_schedule(options_of(with(more)), small()); });
  };
  EXPECT_THAT(message({"--learning_rate_schedule=cosine", "--num_learning_rate_warmup_epochs=8"}),
              ::testing::HasSubstr("--num_learning_rate_cooldown_epochs"));
  EXPECT_THAT(
      message({"--learning_rate_schedule=exponential", "--num_epochs_per_decay=1", "--learning_rate_decay_factor=.5"}),
      ::testing::HasSubstr("cannot be used with --num_learning_rate_cooldown_epochs"));
  EXPECT_THAT(message({"--learning_rate_schedule=polynomial", "--num_epochs_per_decay=1"}),
              ::testing::HasSubstr("the decay ends with it"));
  EXPECT_THAT(core::message_of([] {
                options_of({"--init_learning_rate=.4", "--num_learning_rate_cooldown_epochs=2"});
              }),
              ::testing::HasSubstr("is of --learning_rate_schedule=cosine"));
}

TEST(RunSchedule, RestartsCountInEpochsBehindTheWarmup) {
  const LearningRateOptions options = options_of(
      {"--init_learning_rate=.4", "--num_learning_rate_warmup_epochs=1", "--num_epochs_per_decay=2",
       "--restart_period_factor=2", "--learning_rate_decay_factor=.5", "--learning_rate_schedule=cosine_restarts"});
  const RunSchedule schedule = make_run_schedule(options, small());
  expect_rates(schedule.learning_rate,
               {{10, 0.2}, {20, 0.4}, {40, 0.2}, {60, 0.2}, {100, 0.1}, {140, 0.1}, {220, 0.05}});
  EXPECT_THAT(schedule.boundaries, ElementsAre(60, 140));
  EXPECT_EQ(schedule.warmup_steps, 20);
}

TEST(RunSchedule, PolynomialFallsOverTheRunOrItsOwnEpochs) {
  const Arguments line = {"--init_learning_rate=.4", "--minimum_learning_rate=.1",
                          "--learning_rate_schedule=polynomial"};
  expect_schedule(line, small(), {{0, 0.4}, {100, 0.25}, {200, 0.1}});
  Arguments square = line;
  square.insert(square.begin(), {"--polynomial_power=2", "--num_epochs_per_decay=4"});
  expect_schedule(square, small(), {{0, 0.4}, {40, 0.175}, {80, 0.1}, {199, 0.1}});
  EXPECT_THAT(make_run_schedule(options_of(square), small()).boundaries, ElementsAre(80));
  square.insert(square.begin(), "--polynomial_cycle");
  expect_schedule(square, small(), {{40, 0.175}, {80, 0.1}, {100, 0.1 + 0.3 * 0.375 * 0.375}, {160, 0.1}});
  EXPECT_THAT(make_run_schedule(options_of(square), small()).boundaries, ElementsAre(81, 161));
}

TEST(RunSchedule, AStaircaseMayFallSeveralTimesAnEpoch) {
  expect_schedule({"--init_learning_rate=.4", "--num_epochs_per_decay=.5", "--learning_rate_decay_factor=.5",
                   "--learning_rate_schedule=staircase"},
                  small(), {{0, 0.4}, {9, 0.4}, {10, 0.2}, {19, 0.2}, {20, 0.1}});
}

TEST(RunSchedule, ExponentialFallsSmoothly) {
  expect_schedule({"--init_learning_rate=.4", "--num_epochs_per_decay=2", "--learning_rate_decay_factor=.25",
                   "--minimum_learning_rate=.02", "--learning_rate_schedule=exponential"},
                  small(), {{0, 0.4}, {20, 0.2}, {40, 0.1}, {60, 0.05}, {199, 0.02}});
}

TEST(RunSchedule, OneCycleIsAsLongAsTheRun) {
  const RunSchedule schedule =
      make_run_schedule(options_of({"--init_learning_rate=.4", "--one_cycle_rise=.25", "--one_cycle_start_divisor=10",
                                    "--one_cycle_end_divisor=100", "--one_cycle_momentum=.8,.9",
                                    "--one_cycle_shape=linear", "--learning_rate_schedule=one_cycle"}),
                        small());
  expect_rates(schedule.learning_rate, {{0, 0.04}, {49, 0.4}, {199, 0.0004}});
  expect_rates(schedule.momentum, {{0, 0.9}, {49, 0.8}, {124, 0.85}, {199, 0.9}});
  EXPECT_THAT(schedule.boundaries, ElementsAre(50));
  EXPECT_FALSE(make_run_schedule(options_of({"--init_learning_rate=.4", "--learning_rate_schedule=one_cycle"}), small())
                   .momentum);
}

TEST(RunSchedule, RatesScaleWithTheGlobalBatch) {
  ScheduleFacts facts{.train_examples = 10240, .examples_per_step = 1024, .steps = 100};
  expect_schedule({"--init_learning_rate=.1", "--learning_rate_scaling=linear"}, facts, {{0, 0.4}});
  expect_schedule({"--init_learning_rate=.1", "--learning_rate_scaling=sqrt"}, facts, {{0, 0.2}});
  expect_schedule({"--init_learning_rate=.1", "--learning_rate_base_batch_size=512", "--learning_rate_scaling=linear"},
                  facts, {{0, 0.2}});
  expect_schedule({"--piecewise_learning_rate_schedule=.1;5;.01", "--num_learning_rate_warmup_epochs=1",
                   "--learning_rate_scaling=linear"},
                  facts, {{5, 0.2}, {10, 0.4}, {99, 0.04}});
  facts.summed_replicas = 4;
  expect_schedule({"--init_learning_rate=.1", "--learning_rate_scaling=linear"}, facts, {{0, 0.1}});
}

// An epoch is half a step here, so that the first boundary is in front of the first step. tf_cnn_benchmarks takes the
// first number of the text for the warm-up.
TEST(RunSchedule, AWarmupRisesToTheFirstPieceAlsoWhereNoStepHasIt) {
  const ScheduleFacts facts{.train_examples = 10, .examples_per_step = 20, .steps = 100};
  expect_schedule({"--piecewise_learning_rate_schedule=1;1;.5", "--num_learning_rate_warmup_epochs=8"}, facts,
                  {{0, 0.0}, {1, 0.25}, {3, 0.75}, {4, 0.5}, {99, 0.5}});
}

TEST(RunSchedule, BoundariesAreTheFirstStepsOfTheirPieces) {
  ScheduleFacts facts = small();
  const auto boundaries = [&](const Arguments& arguments) {
    const RunSchedule schedule = make_run_schedule(options_of(arguments), facts);
    for (const int64_t step : schedule.boundaries) {
      EXPECT_NE(schedule.learning_rate(step), schedule.learning_rate(step - 1)) << step;
    }
    return schedule.boundaries;
  };
  EXPECT_THAT(boundaries({"--piecewise_learning_rate_schedule=1;3;.1;7;.01;11;.001"}), ElementsAre(60, 140));
  EXPECT_THAT(boundaries({"--init_learning_rate=1", "--num_epochs_per_decay=4", "--learning_rate_decay_factor=.5"}),
              ElementsAre(80, 160));
  EXPECT_THAT(boundaries({"--init_learning_rate=1"}), IsEmpty());
  facts.model = {.learning_rate = 1, .boundary_epochs = {2, 6}, .factors = {1, .1, .01}};
  EXPECT_THAT(boundaries({}), ElementsAre(41, 121));
  facts.steps = 1'000'000;
  EXPECT_EQ(
      boundaries({"--init_learning_rate=1", "--num_epochs_per_decay=.1", "--learning_rate_decay_factor=.5"}).size(),
      20U);
}

TEST(RunSchedule, FlagsThatContradictEachOtherAreRefusedByName) {
  const auto problem = [](const std::string& flags) {
    Arguments arguments;
    std::istringstream words(flags);
    for (std::string word; words >> word;) arguments.push_back(word);
    return core::problem_of([&] { options_of(arguments); });
  };
  const std::string rate = "--init_learning_rate=1 ";
  EXPECT_EQ(problem("--polynomial_power=2 " + rate), "--polynomial_power is of --learning_rate_schedule=polynomial");
  EXPECT_EQ(problem("--one_cycle_momentum=.8,.9 " + rate),
            "--one_cycle_momentum is of --learning_rate_schedule=one_cycle");
  EXPECT_EQ(problem("--learning_rate_schedule=one_cycle --restart_period_factor=2 " + rate),
            "--learning_rate_schedule=one_cycle cannot be used with --restart_period_factor");
  EXPECT_EQ(problem("--learning_rate_schedule=one_cycle --one_cycle_momentum=.8 " + rate),
            "--one_cycle_momentum needs two numbers, the least and the most, not 1");
  EXPECT_EQ(problem("--learning_rate_schedule=one_cycle --minimum_learning_rate=.1 " + rate),
            "--learning_rate_schedule=one_cycle cannot be used with --minimum_learning_rate");
  EXPECT_EQ(problem("--learning_rate_schedule=one_cycle --num_learning_rate_warmup_epochs=1 " + rate).substr(0, 90),
            "--learning_rate_schedule=one_cycle cannot be used with --num_learning_rate_warmup_epochs: ");
  EXPECT_EQ(problem("--learning_rate_schedule=cosine_restarts " + rate),
            "--learning_rate_schedule=cosine_restarts requires --num_epochs_per_decay");
  EXPECT_EQ(problem("--learning_rate_schedule=exponential --num_epochs_per_decay=1 " + rate),
            "--learning_rate_schedule=exponential requires --learning_rate_decay_factor");
  EXPECT_EQ(problem("--learning_rate_schedule=polynomial"),
            "--learning_rate_schedule=polynomial requires --init_learning_rate");
  EXPECT_EQ(problem("--learning_rate_schedule=polynomial --polynomial_cycle " + rate),
            "--polynomial_cycle requires --num_epochs_per_decay: the length of a cycle");
  EXPECT_EQ(problem("--learning_rate_warmup=multiply " + rate),
            "--learning_rate_warmup requires --num_learning_rate_warmup_epochs");
  EXPECT_EQ(problem("--warmup_learning_rate=.1 --num_learning_rate_warmup_epochs=1"),
            "--warmup_learning_rate requires --init_learning_rate or --piecewise_learning_rate_schedule");
  EXPECT_EQ(problem("--learning_rate_base_batch_size=128 " + rate),
            "--learning_rate_base_batch_size requires --learning_rate_scaling");
  EXPECT_NE(problem("--learning_rate_scaling=linear"), "");
  EXPECT_THAT(problem("--learning_rate_updates=epoch"), ::testing::HasSubstr("a model's own rate changes by steps"));
  EXPECT_THAT(problem("--learning_rate_updates=epoch --learning_rate_schedule=one_cycle " + rate),
              ::testing::HasSubstr("a cycle counts in steps"));
  EXPECT_EQ(problem("--learning_rate_updates=epoch --num_learning_rate_warmup_epochs=1.5 " + rate),
            "--learning_rate_updates=epoch requires whole epochs, and --num_learning_rate_warmup_epochs is 1.5");
  EXPECT_EQ(problem("--learning_rate_scaling=linear --piecewise_learning_rate_schedule=1;3;.1"), "");
}

TEST(RunSchedule, OptionsFilledByHandMustBeComplete) {
  const auto refused = [](const LearningRateOptions& options) {
    return core::code_of([&] { make_run_schedule(options, small()); }) == core::ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.init_learning_rate = 1, .schedule = "linear"}));
  EXPECT_TRUE(refused({.schedule = "cosine"}));
  EXPECT_TRUE(refused({.schedule = "piecewise"}));
  EXPECT_TRUE(refused({.init_learning_rate = 1, .schedule = "staircase"}));
  EXPECT_FALSE(refused({.init_learning_rate = 1, .schedule = "cosine"}));
  EXPECT_TRUE(refused({.changes_by_epoch = true}));
  EXPECT_TRUE(refused({.init_learning_rate = 1, .schedule = "one_cycle", .changes_by_epoch = true}));
}

TEST(RunSchedule, WhatIsIncompleteIsSaid) {
  const auto message = [](const LearningRateOptions& options) {
    return core::message_of([&] { make_run_schedule(options, small()); });
  };
  const std::string incomplete = "the learning rate's schedule is incomplete: expected ";
  EXPECT_EQ(message({.init_learning_rate = 1, .schedule = "linear"}),
            incomplete +
                "auto, constant, piecewise, staircase, exponential, polynomial, cosine, cosine_restarts or one_cycle, "
                "got linear");
  for (const std::string schedule :
       {"constant", "staircase", "exponential", "polynomial", "cosine", "cosine_restarts", "one_cycle"}) {
    EXPECT_EQ(message({.schedule = schedule}), incomplete + "init_learning_rate with it, got " + schedule);
  }
  EXPECT_EQ(message({.schedule = "piecewise"}), incomplete + "rates and epochs with it, got piecewise");
  EXPECT_EQ(message({.init_learning_rate = 1, .schedule = "staircase"}),
            incomplete + "num_epochs_per_decay with it, got staircase");
  const std::string by_epoch = "a rate of its own with changes_by_epoch, and not one_cycle, got ";
  EXPECT_EQ(message({.changes_by_epoch = true}), incomplete + by_epoch + "auto");
  EXPECT_EQ(message({.init_learning_rate = 1, .schedule = "one_cycle", .changes_by_epoch = true}),
            incomplete + by_epoch + "one_cycle");
}

TEST(RunSchedule, HasTheNameAndTheWarmupOfItsFlags) {
  const std::string rate = "--init_learning_rate=.4", named = "--learning_rate_schedule=";
  const std::string period = "--num_epochs_per_decay=2", factor = "--learning_rate_decay_factor=.5";
  for (const auto& [name, arguments] :
       std::vector<std::pair<std::string, Arguments>>{{"constant", {rate}},
                                                      {"staircase", {rate, period, factor}},
                                                      {"exponential", {rate, period, factor, named + "exponential"}},
                                                      {"polynomial", {rate, named + "polynomial"}},
                                                      {"cosine", {rate, named + "cosine"}},
                                                      {"cosine_restarts", {rate, period, named + "cosine_restarts"}},
                                                      {"piecewise", {"--piecewise_learning_rate_schedule=1;3;.1"}}}) {
    Arguments warmed = arguments;
    warmed.emplace_back("--num_learning_rate_warmup_epochs=2");
    const RunSchedule plain = make_run_schedule(options_of(arguments), small());
    const RunSchedule with_warmup = make_run_schedule(options_of(warmed), small());
    EXPECT_EQ(plain.name, name);
    EXPECT_EQ(with_warmup.name, name);
    EXPECT_EQ(plain.warmup_steps, 0) << name;
    EXPECT_EQ(with_warmup.warmup_steps, 40) << name;
    EXPECT_GT(plain.learning_rate(0), 0) << name;
    EXPECT_EQ(with_warmup.learning_rate(0), 0) << name;
    EXPECT_FALSE(plain.momentum) << name;
  }
  EXPECT_EQ(make_run_schedule(options_of({rate, named + "one_cycle"}), small()).name, "one_cycle");
  ScheduleFacts facts = small();
  facts.model = {.learning_rate = 1, .batch_size = 32};
  EXPECT_EQ(make_run_schedule({}, facts).name, "the model's own");
  EXPECT_DOUBLE_EQ(make_run_schedule({}, facts).learning_rate(0), 0.25) << "8 images a step";
  facts.rated_examples_per_step = 16;
  EXPECT_DOUBLE_EQ(make_run_schedule({}, facts).learning_rate(0), 0.5);
}

TEST(RunSchedule, AnEndOfTheTrainingIsNoBoundary) {
  ScheduleFacts facts = small();
  const LearningRateOptions options = options_of({"--piecewise_learning_rate_schedule=1;3;.1;10;.01"});
  EXPECT_THAT(make_run_schedule(options, facts).boundaries, ElementsAre(60));
  facts.steps = 201;
  EXPECT_THAT(make_run_schedule(options, facts).boundaries, ElementsAre(60, 200));
  facts.steps = 60;
  EXPECT_THAT(make_run_schedule(options, facts).boundaries, IsEmpty());
}

TEST(RunSchedule, WhatLeavesNoStepIsSaid) {
  const auto message = [](const Arguments& more) {
    Arguments all = {"--init_learning_rate=.4", "--learning_rate_schedule=cosine"};
    all.insert(all.end(), more.begin(), more.end());
    return core::message_of([&] { make_run_schedule(options_of(all), small()); });
  };
  EXPECT_EQ(message({"--num_learning_rate_cooldown_epochs=2", "--num_learning_rate_warmup_epochs=8"}),
            "the cooldown of the learning rate leaves no step of the schedule: --num_learning_rate_cooldown_epochs: "
            "expected less than 2 epochs, got 2");
  EXPECT_EQ(message({"--num_learning_rate_cooldown_epochs=2", "--num_learning_rate_warmup_epochs=7"}), "no error");
  EXPECT_EQ(message({"--num_learning_rate_warmup_epochs=12"}),
            "the warm-up of the learning rate is as long as the training: --num_learning_rate_warmup_epochs: expected "
            "less than 10 epochs, got 12");
}

TEST(RunSchedule, AWarmupAsLongAsTheTrainingIsRefused) {
  for (const char* schedule : {"cosine", "polynomial"}) {
    const LearningRateOptions options = options_of({"--init_learning_rate=.4", "--num_learning_rate_warmup_epochs=10",
                                                    std::string("--learning_rate_schedule=") + schedule});
    const core::Error error = core::thrown_by([&] { make_run_schedule(options, small()); });
    EXPECT_EQ(error.detail().where, "--num_learning_rate_warmup_epochs");
    EXPECT_EQ(error.detail().expected, "less than 10 epochs");
  }
}

TEST(RunSchedule, AWarmupThatTheModelsOwnScheduleHasNoUseForIsWarnedAbout) {
  const auto warnings = [](const Arguments& arguments) {
    return learning_rate_warnings(core::parse_flags(tf_cnn_flags(), arguments)).size();
  };
  EXPECT_EQ(warnings({"--num_learning_rate_warmup_epochs=1"}), 1U);
  EXPECT_EQ(warnings({"--num_learning_rate_warmup_epochs=1", "--init_learning_rate=1"}), 0U);
  EXPECT_EQ(warnings({}), 0U);
}

}  // namespace
}  // namespace trainyard::frontends::run_schedule_test
