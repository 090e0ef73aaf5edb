#include <memory>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::distillation_test {
namespace {

using ::testing::HasSubstr;

// A teacher that has learned something: statistics of its batch norm among it.
std::shared_ptr<nn::ParameterSet> taught_weights(const nn::Graph& graph = tiny_graph()) {
  TowerTrainerOptions options = tiny_options();
  options.graph = graph;
  options.seed = 99;
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 20});
  return std::make_shared<nn::ParameterSet>(trainer.parameters().clone());
}

TowerTrainerOptions student_options(std::shared_ptr<nn::ParameterSet> weights, const DistillationOptions& options,
                                    int replicas = 1) {
  TowerTrainerOptions student = tiny_options({.batch_norm = false, .dropout = 0.2}, replicas);
  student.loss = distilled(classifier_loss(), {.graph = tiny_graph(), .weights = std::move(weights)}, options);
  return student;
}

TEST(Distillation, IsTheWeightedSumOfBothLosses) {
  const auto weights = taught_weights();
  const std::shared_ptr<MemorySource> source = tiny_source(80, 8);
  const data::Batch batch = source->next()[0];
  nn::ParameterSet frozen = nn::ParameterSet::sharing_values(*weights);
  const auto teacher = nn::make_executor("reference", tiny_graph(),
                                         {.mode = nn::Mode::kInference, .frozen = true, .parameters = &frozen});
  const at::Tensor taught = teacher->forward(batch.images(), {});
  for (const DistillationOptions options : {DistillationOptions{0.0, 2.0}, {0.3, 1.0}, {0.7, 4.0}, {1.0, 2.0}}) {
    TowerTrainerOptions student = student_options(weights, options);
    student.graph = tiny_graph({.batch_norm = false});
    student.learning_rate = optim::constant(0);
    student.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
    TowerTrainer trainer(student, tiny_source(80, 8));
    trainer.train({.steps_per_epoch = 1});
    const at::Tensor logits = trainer.inference_tower()({.batch = batch.tensors}).outputs["logits"];
    const double hard = nn::softmax_cross_entropy(logits, batch.labels()).item<double>();
    const double soft = nn::distillation_loss(logits, taught, options.temperature).item<double>();
    EXPECT_NEAR(trainer.last_base_loss(), (1 - options.weight) * hard + options.weight * soft, 1e-5) << options.weight;
  }
}

TEST(Distillation, BringsAStudentToItsTeacher) {
  const auto weights = taught_weights();
  TowerTrainerOptions options = student_options(weights, {.weight = 1, .temperature = 2});
  options.graph = tiny_graph();
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 1});
  const double at_first = trainer.last_base_loss();
  trainer.train({.steps_per_epoch = 200});
  EXPECT_LT(trainer.last_base_loss(), 0.25 * at_first);
}

TEST(Distillation, LeavesTheTeacherAsItIsAndOutOfTheCheckpoint) {
  const auto weights = taught_weights();
  const nn::ParameterSet before = weights->clone();
  TowerTrainer trainer(student_options(weights, {.weight = 0.5, .temperature = 2}, 2), tiny_source(96, 8, 2));
  TowerTrainerOptions alone_options = tiny_options({.batch_norm = false, .dropout = 0.2}, 2);
  TowerTrainer alone(alone_options, tiny_source(96, 8, 2));
  for (TowerTrainer* each : {&trainer, &alone}) each->train({.steps_per_epoch = 5});
  EXPECT_TRUE(weights->values().equal(before.values()));
  EXPECT_TRUE(weights->buffer(0).equal(before.buffer(0)));
  EXPECT_FALSE(trainer.parameters().values().equal(alone.parameters().values()));
  core::MemoryState state, state_alone;
  trainer.save(state);
  alone.save(state_alone);
  const auto models = [](const core::MemoryState& all) {
    std::vector<std::string> names;
    for (const std::string& name : all.names()) {
      if (!name.starts_with("kernels/")) names.push_back(name);
    }
    return names;
  };
  EXPECT_EQ(models(state), models(state_alone));
}

TEST(Distillation, CountsTheTeachersMemoryOnce) {
  const auto weights = taught_weights();
  TowerTrainer trainer(student_options(weights, {}, 3), tiny_source(96, 8, 3));
  TowerTrainer alone(tiny_options({.batch_norm = false, .dropout = 0.2}, 3), tiny_source(96, 8, 3));
  for (TowerTrainer* each : {&trainer, &alone}) each->train({.steps_per_epoch = 1});
  int64_t statistics = 0;
  for (size_t i = 0; i < weights->buffer_count(); ++i) {
    statistics += static_cast<int64_t>(weights->buffer(static_cast<int>(i)).nbytes());
  }
  EXPECT_EQ(trainer.memory()->parameters - alone.memory()->parameters,
            static_cast<int64_t>(weights->values().nbytes()) + 3 * statistics);
  EXPECT_EQ(trainer.memory()->gradients, alone.memory()->gradients);
}

TEST(Distillation, ResumesBitForBitOnAnyReplicas) {
  const auto weights = taught_weights();
  for (const int replicas : {1, 2}) {
    const auto make = [&] {
      return std::make_unique<TowerTrainer>(student_options(weights, {.weight = 0.7, .temperature = 3}, replicas),
                                            tiny_source(96, 8, replicas));
    };
    auto whole = make();
    whole->train({.steps_per_epoch = 9});
    auto first = make();
    first->train({.steps_per_epoch = 4});
    core::MemoryState state;
    first->save(state);
    auto second = make();
    second->load(state);
    second->train({.steps_per_epoch = 9, .starting_step = 4});
    EXPECT_TRUE(second->parameters().values().equal(whole->parameters().values())) << replicas;
  }
}

TEST(Distillation, RefusesWhatDoesNotFit) {
  const auto weights = taught_weights();
  EXPECT_THAT(core::message_of([&] { student_options(nullptr, {}); }), HasSubstr("no weights"));
  EXPECT_THAT(core::message_of([&] { student_options(weights, {.weight = 1.5}); }), HasSubstr("weight of 0 to 1"));
  EXPECT_THAT(core::message_of([&] { student_options(weights, {.temperature = 0}); }), HasSubstr("above 0"));
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "other"});
  const nn::Graph other = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 5}));
  TowerTrainerOptions options = student_options(weights, {});
  nn::ParameterSet set;
  nn::make_executor("reference", other, {.parameters = &set});
  set.allocate();
  options.loss =
      distilled(classifier_loss(), {.graph = other, .weights = std::make_shared<nn::ParameterSet>(std::move(set))}, {});
  TowerTrainer trainer(options, tiny_source(80, 8));
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }), HasSubstr("compared with its teacher"));
}

}  // namespace
}  // namespace trainyard::train::distillation_test
