#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/initialized_model.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::inference_runner_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

// A tiny model with random weights, beside the PretendTrainer that does not train it.
struct MeasuredModel : InitializedModel {
  MeasuredModel() : InitializedModel(tiny_graph()) {}
  std::shared_ptr<Evaluator> evaluator(std::function<bool()> stops = {}) {
    return std::make_shared<Evaluator>(
        EvaluatorOptions{.graph = graph, .devices = {.executor = "reference"}, .stops = std::move(stops)}, set);
  }
};

std::shared_ptr<data::BatchSource> once(int64_t samples) {
  return tiny_source(samples, 4, 1, false);
}
std::vector<std::shared_ptr<Metric>> top_1_and_loss() {
  return {std::make_shared<TopKAccuracy>(1), std::make_shared<MeanLoss>()};
}

struct TextRecord : Monitor {
  explicit TextRecord(std::vector<std::string>& to) : names(to) {}
  void write(const Scalars&) override {}
  void write_texts(const Texts& texts) override {
    for (const auto& [name, text] : texts.values) names.push_back(name);
  }
  std::vector<std::string>& names;
};

MeasuredModel& conformance_model() {
  static MeasuredModel model;
  return model;
}
TRAINYARD_CALLBACK_CONFORMANCE(InferenceRunner, [] {
  return std::make_shared<InferenceRunner>(conformance_model().evaluator(),
                                           std::vector<InferenceSet>{{"val", once(6), top_1_and_loss()}});
});

TEST(InferenceRunner, MeasuresEachSetWithItsMetrics) {
  MeasuredModel model;
  std::vector<InferenceSet> sets{
      {"val", once(10), top_1_and_loss()},
      {"other/part", once(7), {std::make_shared<MeanLoss>(), std::make_shared<ConfusionMatrix>(kTinyClasses)}},
      {"short", once(12), top_1_and_loss(), 2}};
  PretendTrainer trainer;
  std::vector<std::string> texts;
  trainer.monitors().add(std::make_unique<TextRecord>(texts));
  int waits = 0;
  trainer.add(std::make_shared<InferenceRunner>(model.evaluator(), sets, InferenceOptions{.before = [&] { ++waits; }}));
  trainer.train({.steps_per_epoch = 3, .max_epoch = 2});
  const MonitorSet& monitors = trainer.monitors();
  const auto evaluated = [&](int64_t samples, int64_t batches = 0) {
    return model.evaluator()->run(*once(samples), batches);
  };
  EXPECT_EQ(monitors.latest("val/top_1_accuracy"), evaluated(10).top_1);
  EXPECT_EQ(monitors.latest("val/loss"), evaluated(10).loss);
  EXPECT_EQ(monitors.latest("other/part/loss"), evaluated(7).loss);
  EXPECT_EQ(monitors.latest("short/loss"), evaluated(12, 2).loss);
  EXPECT_THAT(monitors.history("val/top_5_accuracy"), IsEmpty()) << "nobody asked for it";
  EXPECT_EQ(monitors.history("val/loss"), (MonitorSet::History{{3, evaluated(10).loss}, {6, evaluated(10).loss}}))
      << "each time all of the set";
  EXPECT_EQ(texts, (std::vector<std::string>{"other/part/confusion_matrix", "other/part/confusion_matrix"}));
  EXPECT_EQ(waits, 2);
}

TEST(InferenceRunner, RunsWhenAPeriodicTriggerSays) {
  MeasuredModel model;
  PretendTrainer trainer;
  const auto runner = std::make_shared<InferenceRunner>(model.evaluator(),
                                                        std::vector<InferenceSet>{{"val", once(6), top_1_and_loss()}});
  trainer.add(std::make_shared<PeriodicTrigger>(runner, Period{.every_k_steps = 2}, true));
  trainer.train({.steps_per_epoch = 3, .max_epoch = 2});
  std::vector<int64_t> steps;
  for (const auto& [step, value] : trainer.monitors().history("val/loss")) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 2, 4, 6}));
}

std::shared_ptr<data::BatchSource> no_samples() {
  return std::make_shared<data::GeneratorSource>(
      [](int64_t, const core::StopToken&) -> data::Generator {
        return [] { return std::optional<core::NamedTensors>(); };
      },
      data::GeneratorSourceOptions{.repeat = false});
}

// Two ranks that have ten and three samples, of which one has none in the second set.
TEST(InferenceRunner, RanksMeasureTheirPartsTogether) {
  const auto whole = tiny_source(13, 13, 1, false);
  const data::Batch all = whole->next()[0];
  const auto part = [&](int64_t begin, int64_t count) {
    return std::make_shared<MemorySource>(all.images().narrow(0, begin, count), all.labels().narrow(0, begin, count), 4,
                                          1, false);
  };
  MeasuredModel model;
  const Evaluation expected = model.evaluator()->run(*part(0, 13));
  const auto ranks = parallel::make_thread_communicators(2);
  const auto run_rank = [&](int rank) {
    MeasuredModel own;
    std::vector<InferenceSet> sets{
        {"val", rank == 0 ? part(0, 10) : part(10, 3), top_1_and_loss()},
        {"one", rank == 0 ? std::shared_ptr<data::BatchSource>(part(0, 13)) : no_samples(), top_1_and_loss()}};
    PretendTrainer trainer;
    trainer.add(std::make_shared<InferenceRunner>(own.evaluator(), sets,
                                                  InferenceOptions{.ranks = ranks[static_cast<size_t>(rank)].get()}));
    trainer.train({.steps_per_epoch = 1});
    for (const char* set : {"val", "one"}) {
      EXPECT_EQ(trainer.monitors().latest(std::string(set) + "/top_1_accuracy"), expected.top_1) << set << rank;
      EXPECT_NEAR(*trainer.monitors().latest(std::string(set) + "/loss"), expected.loss, 1e-7) << set << rank;
    }
  };
  core::Thread other({.name = "rank 1"}, [&] { run_rank(1); });
  run_rank(0);
  other.join();
}

TEST(InferenceRunner, WhatWasStoppedWritesNothing) {
  MeasuredModel model;
  PretendTrainer trainer;
  int asked = 0;
  trainer.add(std::make_shared<InferenceRunner>(model.evaluator([&] { return ++asked == 2; }),
                                                std::vector<InferenceSet>{{"val", once(10), top_1_and_loss()}}));
  trainer.train({.steps_per_epoch = 1});
  EXPECT_EQ(trainer.monitors().latest("val/loss"), std::nullopt);
}

TEST(InferenceRunner, RefusesSetsThatCannotBe) {
  MeasuredModel model;
  const auto problem = [&](std::vector<InferenceSet> sets) {
    return core::message_of([&] { InferenceRunner(model.evaluator(), std::move(sets)); });
  };
  EXPECT_THAT(problem({}), HasSubstr("validation sets"));
  EXPECT_THAT(problem({{"train", once(4), top_1_and_loss()}}), HasSubstr("not \"train\""));
  EXPECT_THAT(problem({{"val", nullptr, top_1_and_loss()}}), HasSubstr("a source and metrics"));
  EXPECT_THAT(problem({{"val", once(4), {}}}), HasSubstr("a source and metrics: validation set 'val'"));
  EXPECT_THAT(problem({{"a", once(4), top_1_and_loss()}, {"a", once(4), top_1_and_loss()}}), HasSubstr("named 'a'"));
  EXPECT_THAT(problem({{"a", once(4), {std::make_shared<MeanLoss>(), std::make_shared<MeanLoss>()}}}),
              HasSubstr("two metrics give 'loss'"));
  PretendTrainer trainer;
  trainer.add(std::make_shared<InferenceRunner>(model.evaluator(),
                                                std::vector<InferenceSet>{{"val", no_samples(), top_1_and_loss()}}));
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }),
              HasSubstr("callback 'inference_val', trigger_epoch: validation set 'val'"));
}

struct RowRecord : Monitor {
  explicit RowRecord(std::vector<Scalars>& to, std::vector<size_t>* flushed = nullptr) : rows(to), flushes(flushed) {}
  void write(const Scalars& scalars) override { rows.push_back(scalars); }
  void flush() override {
    if (flushes != nullptr) flushes->push_back(rows.size());
  }
  std::vector<Scalars>& rows;
  std::vector<size_t>* flushes;  // how many rows there are at each
};

TEST(InferenceRunner, IsNamedAfterItsSetsAndWritesWhenTheyWereMeasured) {
  MeasuredModel model;
  const auto runner = std::make_shared<InferenceRunner>(
      model.evaluator(),
      std::vector<InferenceSet>{{"val", once(6), top_1_and_loss()}, {"other/part", once(4), top_1_and_loss()}},
      InferenceOptions{.wall_clock = [] { return 12.5; }});
  EXPECT_EQ(runner->name(), "inference_val_other.part") << "a part of saved names";
  PretendTrainer trainer;
  std::vector<Scalars> rows;
  trainer.monitors().add(std::make_unique<RowRecord>(rows));
  trainer.add(runner);
  trainer.train({.steps_per_epoch = 3});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].phase, "val");
  EXPECT_EQ(rows[1].phase, "other/part");
  for (const Scalars& row : rows) {
    EXPECT_EQ(row.global_step, 3);
    EXPECT_EQ(row.epoch, 1);
    EXPECT_EQ(row.wall_time, 12.5);
  }
}

// Who follows the run's files sees the numbers before those of a later step come.
TEST(InferenceRunner, FlushesTheMonitorsWhenAllSetsAreMeasured) {
  MeasuredModel model;
  PretendTrainer trainer;
  std::vector<Scalars> rows;
  std::vector<size_t> flushes;
  trainer.monitors().add(std::make_unique<RowRecord>(rows, &flushes));
  trainer.add(std::make_shared<InferenceRunner>(
      model.evaluator(),
      std::vector<InferenceSet>{{"val", once(6), top_1_and_loss()}, {"other", once(4), top_1_and_loss()}}));
  trainer.train({.steps_per_epoch = 1, .max_epoch = 2});
  EXPECT_THAT(flushes, ElementsAre(2U, 4U));
}

}  // namespace
}  // namespace trainyard::train::inference_runner_test
