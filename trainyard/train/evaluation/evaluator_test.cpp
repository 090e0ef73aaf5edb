#include "trainyard/train/evaluation/evaluator.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/forward_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/initialized_model.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::evaluator_test {
namespace {

// [fc] alone on 3 x 1 x 1 images, so that logits can be worked out by hand.
nn::Graph linear_graph() {
  nn::GraphBuilder b({.image = {3, 1, 1}, .name = "linear"});
  return b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 7}));
}

struct LinearModel : InitializedModel {
  LinearModel() : InitializedModel(linear_graph()) {}
};

struct Samples {
  at::Tensor images = at::empty({10, 3, 1, 1}), labels = at::empty({10}, at::kLong);
  Samples() {
    core::RandomStream stream(1, "samples");
    for (int64_t i = 0; i < 30; ++i) images.mutable_data_ptr<float>()[i] = 3 * stream.normal();
    for (int64_t i = 0; i < 10; ++i) labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(stream.below(7));
  }
};

// Cross-entropy and ranks by definition, in double.
Evaluation by_definition(LinearModel& model, const Samples& samples, int64_t count) {
  const at::Tensor weight = model.set.value(*model.set.find("fc.weight")),
                   bias = model.set.value(*model.set.find("fc.bias"));
  Evaluation result{.samples = count, .classes = std::vector<ClassCount>(7)};
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> logits;
    for (int64_t c = 0; c < 7; ++c) {
      double logit = bias[c].item<double>();
      for (int64_t f = 0; f < 3; ++f) logit += weight[c][f].item<double>() * samples.images[i][f][0][0].item<double>();
      logits.push_back(logit);
    }
    const double own = logits[static_cast<size_t>(samples.labels[i].item<int64_t>())];
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    const auto larger = std::count_if(logits.begin(), logits.end(), [&](double logit) { return logit > own; });
    ClassCount& of_class = result.classes[static_cast<size_t>(samples.labels[i].item<int64_t>())];
    ++of_class.total;
    of_class.right += larger < 1 ? 1 : 0;
    result.loss += (std::log(sum) - own) / static_cast<double>(count);
    result.top_1 += (larger < 1 ? 1.0 : 0.0) / static_cast<double>(count);
    result.top_5 += (larger < 5 ? 1.0 : 0.0) / static_cast<double>(count);
  }
  return result;
}

void expect_equal(const Evaluation& actual, const Evaluation& expected) {
  EXPECT_NEAR(actual.loss, expected.loss, 1e-5);
  EXPECT_NEAR(actual.top_1, expected.top_1, 1e-12);
  EXPECT_NEAR(actual.top_5, expected.top_5, 1e-12);
  EXPECT_EQ(actual.samples, expected.samples);
  ASSERT_EQ(actual.classes.size(), expected.classes.size());
  for (size_t i = 0; i < expected.classes.size(); ++i) {
    EXPECT_EQ(actual.classes[i].right, expected.classes[i].right) << i;
    EXPECT_EQ(actual.classes[i].total, expected.classes[i].total) << i;
  }
  EXPECT_GT(actual.seconds, 0.0);
}

TEST(Evaluator, MeasuresNothingOfBatchesWithoutLabels) {
  LinearModel model;
  const Samples samples;
  int64_t seen = 0;
  EvaluatorOptions options{.graph = linear_graph(), .labels = false};
  options.on_output = [&seen](const data::Batch& batch, const at::Tensor& output) {
    EXPECT_EQ(output.size(0), batch.samples());
    seen += batch.samples();
  };
  Evaluator evaluator(options, model.set);
  const auto make = [&samples](const data::BatchPlace&) -> core::NamedTensors { return {{"images", samples.images}}; };
  data::FunctionSource source(make, {.batch_size = 10});
  Evaluation result = evaluator.run(source, 2);
  EXPECT_EQ(seen, 20);
  EXPECT_EQ(result.samples, 20);
  EXPECT_FALSE(result.has_loss);
  EXPECT_FALSE(result.has_accuracies);
  EXPECT_FALSE(value_of(result, "loss").has_value());
  EXPECT_TRUE(names_of_values(result).empty());
  result.more = {{"COCO/AP", 0.5}};
  EXPECT_EQ(value_of(result, "COCO/AP"), 0.5);
  EXPECT_EQ(names_of_values(result), std::vector<std::string>{"COCO/AP"});
  Evaluation all;
  add_samples(result, all);
  EXPECT_FALSE(all.has_loss);
}

TEST(Evaluation, HasTheNumbersThatWereMeasured) {
  using ::testing::ElementsAre;
  Evaluation evaluation{.loss = 0.25, .top_1 = 0.375, .top_5 = 0.75, .classes = {{3, 4}, {0, 0}, {1, 4}}};
  evaluation.more = {{"average_precision", 0.125}};
  EXPECT_THAT(names_of_values(evaluation),
              ElementsAre("loss", "top_1_accuracy", "top_5_accuracy", "mean_class_accuracy", "average_precision"));
  EXPECT_EQ(value_of(evaluation, "loss"), 0.25);
  EXPECT_EQ(value_of(evaluation, "top_1_accuracy"), 0.375);
  EXPECT_EQ(value_of(evaluation, "top_5_accuracy"), 0.75);
  EXPECT_EQ(value_of(evaluation, "mean_class_accuracy"), 0.5);
  EXPECT_EQ(value_of(evaluation, "average_precision"), 0.125);
  EXPECT_FALSE(value_of(evaluation, "average").has_value());
  evaluation.classes = {{0, 0}, {0, 0}};
  EXPECT_FALSE(value_of(evaluation, "mean_class_accuracy").has_value()) << "no class has a sample";
  evaluation.has_accuracies = false;
  EXPECT_THAT(names_of_values(evaluation), ElementsAre("loss", "average_precision"));
  EXPECT_FALSE(value_of(evaluation, "top_1_accuracy").has_value());
  evaluation.has_loss = false;
  EXPECT_THAT(names_of_values(evaluation), ElementsAre("average_precision"));
  EXPECT_FALSE(value_of(evaluation, "loss").has_value());
}

TEST(Evaluator, SeesEverySampleOnce) {
  LinearModel model;
  const Samples samples;
  Evaluator evaluator({.graph = model.graph}, model.set);
  const Evaluation expected = by_definition(model, samples, 10);
  ASSERT_GT(expected.top_5, expected.top_1) << "the samples must tell the two apart";
  // 10 samples as 4 + 4 + 2, as 6 + 4 on two replicas, and in one.
  for (const auto& [batch, replicas] : {std::pair<int64_t, int>{4, 1}, {3, 2}, {8, 2}, {16, 1}}) {
    MemorySource source(samples.images, samples.labels, batch, replicas, false);
    expect_equal(evaluator.run(source), expected);
  }
}

// Each thread has an executor; batches that are shorter, empty or more than there are threads count, too.
TEST(Evaluator, ReplicasOnThreadsCountTheSame) {
  LinearModel model;
  const Samples samples;
  const Evaluation expected = by_definition(model, samples, 10);
  for (const int threads : {2, 3}) {
    int64_t seen = 0;
    Evaluator evaluator({.graph = model.graph,
                         .on_output =
                             [&seen](const data::Batch& batch, const at::Tensor& output) {
                               EXPECT_EQ(batch.samples(), output.size(0));
                               seen += batch.samples();
                             },
                         .replicas = replica_thread_options(threads, 2, {})},
                        model.set);
    for (const auto& [batch, replicas] : {std::pair<int64_t, int>{4, 1}, {3, 2}, {4, 3}, {1, 7}, {16, 2}}) {
      MemorySource source(samples.images, samples.labels, batch, replicas, false);
      expect_equal(evaluator.run(source), expected);
    }
    EXPECT_EQ(seen, 50);
  }
  EXPECT_TRUE(replica_thread_options(1, 8, {}).empty());
  EXPECT_EQ(replica_thread_options(4, 8, {})[3].intra_op_threads, 2);
}

// Keeps all outputs.
struct KeepOutputs : public Callback {
  std::vector<at::Tensor> all;
  std::string name() const override { return "keep_outputs"; }
  void after_step(Trainer&, const StepView& view) override {
    for (const ReplicaView& replica : view.replicas) all.push_back(replica.outputs["logits"]);
  }
};

TEST(ForwardTrainer, DevicesOnThreadsGiveWhatOneDeviceGives) {
  const Samples samples;
  const auto outputs = [&](int devices) {
    ForwardTrainer trainer(
        {.graph = linear_graph(), .keep_outputs = true, .replicas = replica_thread_options(devices, 1, {})},
        std::make_shared<MemorySource>(samples.images, samples.labels, 2, 5));
    const auto kept = std::make_shared<KeepOutputs>();
    trainer.add(kept);
    trainer.train({.steps_per_epoch = 2});
    EXPECT_EQ(trainer.batch_seconds().size(), 5U);
    return kept->all;
  };
  const std::vector<at::Tensor> one = outputs(1), several = outputs(3);
  ASSERT_EQ(one.size(), 10U);
  ASSERT_EQ(several.size(), 10U);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(several[i])) << i;
}

// Only rank 0 has a file of weights, and all begin with what it has read.
TEST(ForwardTrainer, RanksComputeWithTheParametersOfTheFirst) {
  const Samples samples;
  std::vector<at::Tensor> values(3);
  parallel::on_ranks(3, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    ForwardOptions options{.graph = linear_graph()};
    options.devices.processes = group;
    options.seed = static_cast<uint64_t>(group->rank());
    if (group->rank() == 0) {
      options.start = [](nn::ParameterSet& set) {
        const at::NoGradGuard guard;
        set.value(*set.find("fc.bias")).fill_(2.5);
      };
    }
    ForwardTrainer trainer(std::move(options), std::make_shared<MemorySource>(samples.images, samples.labels, 2));
    values[static_cast<size_t>(group->rank())] = trainer.parameters().values().clone();
    EXPECT_EQ(trainer.parameters().value(*trainer.parameters().find("fc.bias"))[3].item<double>(), 2.5);
  });
  EXPECT_TRUE(values[1].equal(values[0]));
  EXPECT_TRUE(values[2].equal(values[0]));
}

TEST(Evaluator, CountsBatchesAndWraps) {
  LinearModel model;
  const Samples samples;
  Evaluator evaluator({.graph = model.graph}, model.set);
  MemorySource source(samples.images, samples.labels, 5);
  expect_equal(evaluator.run(source, 1), by_definition(model, samples, 5));
  Evaluation three_times = by_definition(model, samples, 10);
  three_times.samples = 30;
  for (ClassCount& of_class : three_times.classes) of_class = {3 * of_class.right, 3 * of_class.total};
  source.seek({});
  expect_equal(evaluator.run(source, 6), three_times);
}

TEST(Evaluator, StopsBeforeABatchWhenItIsAsked) {
  LinearModel model;
  const Samples samples;
  int asked = 0;
  Evaluator evaluator({.graph = model.graph, .stops = [&asked] { return ++asked > 3; }}, model.set);
  MemorySource source(samples.images, samples.labels, 5);
  const auto error = core::error_of([&] { evaluator.run(source, 1000000); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kCancelled);
  EXPECT_EQ(asked, 4);
}

TEST(Evaluator, OnlyReadsTheSet) {
  const TowerTrainerOptions options = tiny_options();
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 3});
  nn::ParameterSet& set = trainer.parameters();
  const nn::ParameterSet before = set.clone();
  const uint64_t version = set.version();
  Evaluator evaluator({.graph = options.graph}, set);
  const Evaluation first = evaluator.run(*tiny_source(40, 8, 1, false));
  const Evaluation again = evaluator.run(*tiny_source(40, 8, 1, false));
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_TRUE(set.values().equal(before.values()));
  EXPECT_TRUE(set.gradients().equal(before.gradients()));
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) EXPECT_TRUE(set.buffer(i).equal(before.buffer(i)));
  EXPECT_EQ(set.version(), version);
}

// Mean over the batch, of targets that are no classes.
at::Tensor squared_error(const at::Tensor& output, const at::Tensor& targets) {
  return at::square(output.sub(targets.to(output.scalar_type()))).mean();
}

TEST(Evaluator, ALossOfItsOwnTakesManyLabelsASample) {
  LinearModel model;
  const Samples samples;
  const at::Tensor targets = at::zeros({10, 7});
  for (int64_t i = 0; i < 10; ++i) targets[i][i % 7] = targets[i][(i + 2) % 7] = 1;
  Evaluator evaluator({.graph = model.graph, .loss = squared_error}, model.set);
  MemorySource source(samples.images, targets, 4, 1, false);
  const Evaluation result = evaluator.run(source);
  EXPECT_FALSE(result.has_accuracies);
  EXPECT_EQ(result.samples, 10);
  EXPECT_EQ(result.not_finite, 0);
  EXPECT_TRUE(result.classes.empty());
  const at::Tensor all = model.owner->forward(samples.images, {});
  EXPECT_NEAR(result.loss, squared_error(all.to(at::kDouble), targets).item<double>(), 1e-5);
}

TEST(Evaluator, ALossOfItsOwnTakesNumbersToComeCloseTo) {
  LinearModel model;
  const Samples samples;
  const at::Tensor targets = samples.labels.to(at::kFloat).mul(0.5);
  const auto first_output = [](const at::Tensor& output, const at::Tensor& labels) {
    return squared_error(output.select(1, 0), labels);
  };
  Evaluator evaluator({.graph = model.graph, .loss = first_output}, model.set);
  MemorySource source(samples.images, targets, 5, 1, false);
  const Evaluation result = evaluator.run(source);
  EXPECT_FALSE(result.has_accuracies);
  const at::Tensor all = model.owner->forward(samples.images, {});
  EXPECT_NEAR(result.loss, squared_error(all.select(1, 0), targets).item<double>(), 1e-5);
}

// Numbers of persons, say, whose pictures are to come close to each other: there are more of them than outputs.
TEST(Evaluator, ALossOfItsOwnTakesNumbersThatAreNoClasses) {
  LinearModel model;
  const Samples samples;
  const auto mean_label = [](const at::Tensor&, const at::Tensor& labels) { return labels.to(at::kFloat).mean(); };
  for (const int64_t number : {7, -100}) {
    const at::Tensor labels = samples.labels.clone();
    labels[5] = number;  // in the second of three batches
    Evaluator evaluator({.graph = model.graph, .loss = mean_label}, model.set);
    MemorySource source(samples.images, labels, 4, 1, false);
    const Evaluation result = evaluator.run(source);
    EXPECT_FALSE(result.has_accuracies) << number;
    EXPECT_TRUE(result.classes.empty());
    EXPECT_EQ(result.right_1, 0);
    EXPECT_EQ(result.top_5, 0);
    EXPECT_NEAR(result.loss, labels.to(at::kDouble).mean().item<double>(), 1e-4);
    source.seek({});
    Evaluator asked({.graph = model.graph, .loss = mean_label, .accuracies = true}, model.set);
    EXPECT_THAT(core::message_of([&] { asked.run(source); }), ::testing::HasSubstr("a label is not one of the"));
  }
}

TEST(Evaluator, ALossOfItsOwnKeepsTheAccuraciesOfClasses) {
  LinearModel model;
  const Samples samples;
  const auto zero = [](const at::Tensor& output, const at::Tensor&) { return at::zeros({}, output.options()); };
  Evaluator evaluator({.graph = model.graph, .loss = zero}, model.set);
  MemorySource source(samples.images, samples.labels, 4, 1, false);
  Evaluation expected = by_definition(model, samples, 10);
  expected.loss = 0;
  expect_equal(evaluator.run(source), expected);
  Evaluator without({.graph = model.graph, .loss = zero, .accuracies = false}, model.set);
  source.seek({});
  EXPECT_FALSE(without.run(source).has_accuracies);
}

TEST(Evaluator, RefusesWhatDoesNotFit) {
  LinearModel model;
  nn::ParameterSet empty;
  EXPECT_THROW(Evaluator({.graph = model.graph}, empty), core::Error);
  EXPECT_THROW(Evaluator({.graph = tiny_graph()}, model.set), core::Error);
  const Samples samples;
  Evaluator evaluator({.graph = model.graph}, model.set);
  MemorySource once(samples.images, samples.labels, 5, 1, false);
  EXPECT_THROW(evaluator.run(once, 3), core::Error) << "fewer batches than asked for";
  EXPECT_THROW(evaluator.run(once), core::Error) << "nothing is left";
}

TEST(Evaluator, ThreadsOfReplicasHaveNamesCoresAndPlaces) {
  const std::vector<core::ThreadPlacement> placement = {{.cpus = {3}}, {.cpus = {5}}};
  const std::vector<core::ThreadOptions> threads = replica_thread_options(3, 2, placement);
  ASSERT_EQ(threads.size(), 3U);
  EXPECT_EQ(threads[0].name, "replica 0");
  EXPECT_EQ(threads[2].name, "replica 2");
  EXPECT_EQ(threads[1].intra_op_threads, 1) << "of two threads for three replicas";
  EXPECT_EQ(threads[0].placement.cpus, std::vector<int>{3});
  EXPECT_EQ(threads[1].placement.cpus, std::vector<int>{5});
  EXPECT_EQ(threads[2].placement.cpus, std::vector<int>{3});
  EXPECT_TRUE(replica_thread_options(2, 2, {})[1].placement.cpus.empty());
}

TEST(Evaluator, TellsWhatAnInputHadThatEndedEarly) {
  LinearModel model;
  const Samples samples;
  Evaluator evaluator({.graph = model.graph}, model.set);
  MemorySource once(samples.images, samples.labels, 5, 1, false);
  EXPECT_THAT(core::message_of([&] { evaluator.run(once, 3); }),
              core::Says("ended early: expected 3 batches, got 2 batches with 10 samples; evaluate fewer batches"));
  EXPECT_THAT(core::message_of([&] { evaluator.run(once); }),
              core::Says("ended early: expected at least one sample, got 0 batches with 0 samples; "));
}

// A source that has waited before, and waits two seconds for each batch.
class WaitingSource : public data::SourceDecorator {
 public:
  explicit WaitingSource(std::shared_ptr<data::BatchSource> inner) : SourceDecorator(std::move(inner)) {}
  std::vector<data::Batch> next() override {
    waited_ += 2;
    return source()->next();
  }
  double waited_seconds() const override { return waited_; }

 private:
  double waited_ = 8;
};

TEST(Evaluator, CountsTheWaitsForItsOwnBatches) {
  LinearModel model;
  const Samples samples;
  Evaluator evaluator({.graph = model.graph}, model.set);
  WaitingSource source(std::make_shared<MemorySource>(samples.images, samples.labels, 5));
  EXPECT_EQ(evaluator.run(source, 1).input_seconds, 2);
  EXPECT_EQ(evaluator.run(source, 3).input_seconds, 6);
}

// The choices of a run are those that the caller holds, and a checkpoint's replace them.
TEST(ForwardTrainer, ComputesWithTheKernelsThatItIsGivenAndThoseOfItsCheckpoint) {
  const Samples samples;
  const auto source = [&] { return std::make_shared<MemorySource>(samples.images, samples.labels, 2); };
  ForwardOptions options{.graph = linear_graph()};
  const auto given = std::make_shared<nn::KernelChoices>(), loaded = std::make_shared<nn::KernelChoices>();
  given->add("a layer", "blocked");
  options.devices.kernels.choices = given;
  ForwardTrainer first(options, source());
  core::MemoryState saved;
  first.save(saved);
  EXPECT_THAT(saved.text("kernels/choices"), ::testing::HasSubstr("blocked\ta layer\n"));
  options.devices.kernels.choices = loaded;
  ForwardTrainer second(options, source());
  second.load(saved);
  EXPECT_EQ(loaded->find("a layer"), "blocked");
}

// An inference from a training's checkpoint leaves the training able to continue.
TEST(ForwardTrainer, SavesAgainWhatATrainingHasSaved) {
  TowerTrainer training(tiny_options(), tiny_source(24, 8));
  training.train({.steps_per_epoch = 2});
  core::MemoryState saved, again;
  training.save(saved);
  saved.integer("callback/cut_evaluation/missing", 1);
  saved.integer("run/found_batch", 24);
  ForwardTrainer forward({.graph = tiny_graph(), .saved_by_caller = {"run/"}}, tiny_source(24, 8));
  forward.load(saved);
  EXPECT_EQ(forward.global_step(), 2);
  forward.save(again);
  const core::StateReader &before = saved, &after = again;
  ASSERT_FALSE(before.names("optimizer/").empty());
  for (const char* prefix : {"model/", "optimizer/"}) {
    for (const std::string& name : before.names(prefix)) {
      ASSERT_TRUE(after.has(name)) << name;
      EXPECT_TRUE(after.tensor(name).equal(before.tensor(name))) << name;
    }
  }
  EXPECT_EQ(after.integer("input/offset"), before.integer("input/offset"));
  EXPECT_EQ(after.integer("trainer/step_in_epoch"), 2);
  EXPECT_FALSE(after.has("run/found_batch")) << "which the caller saves";
  EXPECT_FALSE(after.has("callback/cut_evaluation/missing")) << "these steps lack no evaluation";
}

TEST(ForwardTrainer, RunsOnAnAcceleratorAndWaitsForIt) {
  struct Waited : FakeAccelerator {
    void wait() override { ++waits; }
    int waits = 0;
  };
  const Samples samples;
  const auto outputs = [&](const std::shared_ptr<nn::Accelerator>& accelerator) {
    ForwardOptions options{.graph = linear_graph(), .keep_outputs = true};
    if (accelerator != nullptr) options.devices.accelerators = {accelerator};
    ForwardTrainer trainer(options, std::make_shared<MemorySource>(samples.images, samples.labels, 2));
    const auto kept = std::make_shared<KeepOutputs>();
    trainer.add(kept);
    trainer.train({.steps_per_epoch = 3});
    return kept->all;
  };
  const auto accelerator = std::make_shared<Waited>();
  const std::vector<at::Tensor> here = outputs(nullptr), there = outputs(accelerator);
  ASSERT_EQ(here.size(), 3U);
  ASSERT_EQ(there.size(), 3U);
  for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(here[i].equal(there[i])) << i;
  EXPECT_EQ(accelerator->waits, 3);
}

TEST(ForwardTrainer, AnAcceleratorIsOneDevice) {
  ForwardOptions options{.graph = linear_graph(), .replicas = replica_thread_options(2, 2, {})};
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  const Samples samples;
  EXPECT_EQ(core::message_of(
                [&] {
                  const ForwardTrainer trainer(options,
                                               std::make_shared<MemorySource>(samples.images, samples.labels, 2));
                },
                core::ErrorCode::kUnsupported),
            "forward passes on accelerators have one device: got 2");
}

// Five batches on two devices, by an executor that runs each node by itself.
TEST(ForwardTrainer, RecordsWhatItsDevicesDo) {
  struct Collect : Callback {
    explicit Collect(StepRecorder& to) : recorder(to) {}
    std::string name() const override { return "collect"; }
    void after_step(Trainer&, const StepView& view) override {
      if (view.global_step == 1 || view.global_step == 2) recorder.collect();
    }
    StepRecorder& recorder;
  };
  const Samples samples;
  ForwardOptions options{.graph = linear_graph(), .replicas = replica_thread_options(2, 2, {})};
  options.devices.executor = "reference";
  StepRecorder recorder(2);
  ForwardTrainer trainer(options, std::make_shared<MemorySource>(samples.images, samples.labels, 2, 5));
  trainer.add(std::make_shared<Collect>(recorder));
  trainer.train({.steps_per_epoch = 1});
  EXPECT_TRUE(recorder.steps().empty());
  trainer.record(&recorder);
  trainer.train({.steps_per_epoch = 2});
  trainer.record(nullptr);
  trainer.train({.steps_per_epoch = 1});
  EXPECT_EQ(trainer.global_step(), 4);
  ASSERT_EQ(recorder.steps().size(), 2U);
  for (size_t s = 0; s < 2; ++s) {
    const StepRecord& step = recorder.steps()[s];
    EXPECT_EQ(step.global_step, static_cast<int64_t>(s) + 1);
    ASSERT_EQ(step.trainer.parts.size(), 2U);
    EXPECT_EQ(step.trainer.parts[0].part, StepPart::kInput);
    EXPECT_EQ(step.trainer.parts[1].part, StepPart::kStep);
    ASSERT_EQ(step.replicas.size(), 2U);
    for (size_t r = 0; r < 2; ++r) {
      const size_t batches = r == 0 ? 3 : 2;
      ASSERT_EQ(step.replicas[r].parts.size(), batches);
      for (const PartRecord& part : step.replicas[r].parts) EXPECT_EQ(part.part, StepPart::kForward);
      EXPECT_EQ(step.replicas[r].nodes.size(), batches * linear_graph().nodes.size());
    }
  }
}

TEST(ForwardTrainer, KnowsTheMemoryOfItsExecutor) {
  const Samples samples;
  for (const char* executor : {"cpu", "reference"}) {
    ForwardOptions options{.graph = linear_graph(), .seed = 3};
    options.devices.executor = executor;
    ForwardTrainer trainer(options, std::make_shared<MemorySource>(samples.images, samples.labels, 2));
    nn::ParameterSet set;
    const auto own = nn::make_executor(executor, linear_graph(), {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(3);
    const auto expected = own->prepare(6), actual = trainer.prepare(6);
    ASSERT_EQ(actual.has_value(), expected.has_value()) << executor;
    if (!expected) continue;
    EXPECT_EQ(actual->activations, expected->activations) << executor;
  }
}

// The memory of an accelerator does not hold the batch.
class TooLarge : public nn::CustomLayer {
 public:
  nn::Shape output_shape(const std::vector<nn::Shape>& inputs) const override { return inputs.at(0); }
  at::Tensor forward(std::span<const at::Tensor>) override {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    return {};
  }
};

TEST(ForwardTrainer, ABatchThatAnAcceleratorHasNoRoomForIsNamed) {
  nn::GraphBuilder b({.image = {3, 1, 1}, .name = "large"});
  const auto x = b.linear("fc", b.flatten("flat", b.input()), {.out_features = 7});
  ForwardOptions options{.graph = b.build(b.foreign("large", x, nn::custom_layer<TooLarge>("TooLarge")))};
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  const Samples samples;
  ForwardTrainer trainer(options, std::make_shared<MemorySource>(samples.images, samples.labels, 2));
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }, core::ErrorCode::kNoSpace),
              ::testing::HasSubstr("with a batch of 2"));
}

}  // namespace
}  // namespace trainyard::train::evaluator_test
