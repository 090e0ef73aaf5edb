#include "trainyard/train/session/start_facts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::start_facts_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(StartFacts, FlagsCountButForThoseThatMayDiffer) {
  StartFacts facts;
  add_flag_facts({{"batch_size", int64_t{32}}, {"train_dir", std::string("out")}, {"eval", true}}, facts);
  EXPECT_EQ(facts, (StartFacts{{"--batch_size", "32"}, {"--eval", "true"}}));
}

TEST(StartFacts, AGraphIsItsLayersParametersAndBuffers) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "tiny"});
  const auto x = b.batch_norm("norm", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3}));
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
  StartFacts facts;
  add_graph_facts(graph, facts);
  EXPECT_THAT(facts, Contains(parallel::StartFact{"parameter fc.weight", "[5, 4]"}));
  EXPECT_THAT(facts, Contains(parallel::StartFact{"buffer norm.running_mean", "[4]"}));
  const auto conv =
      std::find_if(facts.begin(), facts.end(), [](const auto& f) { return f.item == "layer conv of the model"; });
  ASSERT_NE(conv, facts.end());
  EXPECT_THAT(conv->value, HasSubstr("convolution"));
  EXPECT_THAT(conv->value, HasSubstr("3x3"));
}

// Its path may differ between hosts, so what lies there is compared.
TEST(StartFacts, ATeacherIsItsLayersAndValues) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "tiny"});
  const auto x = b.batch_norm("norm", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3}));
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
  const auto teacher_of = [&graph](uint64_t seed) {
    Teacher teacher{.graph = graph, .weights = std::make_shared<nn::ParameterSet>()};
    nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = teacher.weights.get()});
    teacher.weights->allocate();
    teacher.weights->initialize(seed);
    return teacher;
  };
  const auto facts_of = [](const Teacher& teacher) {
    StartFacts facts;
    add_teacher_facts(teacher, facts);
    return facts;
  };
  const Teacher teacher = teacher_of(1);
  const StartFacts usual = facts_of(teacher);
  EXPECT_EQ(facts_of(teacher_of(1)), usual);
  EXPECT_THAT(usual, Contains(parallel::StartFact{"the teacher: parameter fc.weight", "[5, 4]"}));
  EXPECT_NE(facts_of(teacher_of(2)), usual);
  teacher.weights->buffer(0).add_(1);
  EXPECT_NE(facts_of(teacher), usual) << "statistics count, too";
}

// Each of them changes what a rank adds to the others' training.
TEST(StartFacts, ATrainingIsItsNumbers) {
  const auto facts_of = [](const std::function<void(TowerTrainerOptions&)>& change, int64_t steps = 100) {
    TowerTrainerOptions options = tiny_options();
    change(options);
    const TowerTrainer trainer(options, tiny_source(8, 2));
    StartFacts facts;
    add_trainer_facts(trainer, steps, facts);
    return facts;
  };
  const StartFacts usual = facts_of([](auto&) {});
  EXPECT_EQ(facts_of([](auto&) {}), usual);
  EXPECT_THAT(usual, Contains(parallel::StartFact{"hyperparameter momentum", "0.9"}));
  EXPECT_THAT(usual, Contains(parallel::StartFact{"learning_rate of step 99", "0.05"}));
  const auto warm = [](int64_t steps) {
    return [steps](auto& options) { options.learning_rate = optim::with_warmup(optim::constant(0.05), 0.05, steps); };
  };
  EXPECT_NE(facts_of(warm(10)), facts_of(warm(50))) << "which both begin with 0";
  const std::vector<std::function<void(TowerTrainerOptions&)>> changes{
      [](auto& options) { options.micro_steps = 2; },
      [](auto& options) { options.on_nan = OnNan::kSkip; },
      [](auto& options) {
        options.devices.dtype = at::kDouble;
        options.devices.executor = "reference";
      },
      [](auto& options) { options.devices.loss_scale = optim::LossScalerOptions{.scale = 8}; },
      [](auto& options) { options.devices.loss_scale = optim::LossScalerOptions{.scale = 8, .automatic = true}; },
      [](auto& options) { options.sharpness_aware = optim::SharpnessAwareOptions{}; },
      [](auto& options) { options.learning_rate = optim::constant(0.1); },
      [](auto& options) {
        options.make_optimizer = optim::momentum({.momentum = 0.5, .nesterov = true, .weight_decay = 1e-3});
      },
      [](auto& options) { options.make_optimizer = optim::momentum({.nesterov = true, .weight_decay = 1e-4}); }};
  for (size_t i = 0; i < changes.size(); ++i) EXPECT_NE(facts_of(changes[i]), usual) << i;
  for (const int64_t steps : {1, 2, 3, 9}) {
    const StartFacts few = facts_of([](auto&) {}, steps);
    std::set<std::string> items;
    for (const parallel::StartFact& fact : few) items.insert(fact.item);
    EXPECT_EQ(items.size(), few.size()) << "no step is there twice";
    EXPECT_TRUE(items.contains(fmt::format("learning_rate of step {}", steps - 1)));
  }
}

// The rates of eight steps, the last one among them, and all else once.
TEST(StartFacts, ATrainingTellsTheRatesOfEightSteps) {
  StartFacts facts;
  add_trainer_facts(TowerTrainer(tiny_options(), tiny_source(8, 2)), 100, facts);
  std::vector<std::string> steps;
  const std::string rate = "learning_rate of step ";
  for (const parallel::StartFact& fact : facts) {
    if (fact.item.starts_with(rate)) steps.push_back(fact.item.substr(rate.size()));
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"11", "24", "36", "49", "61", "74", "86", "99"}));
  for (const parallel::StartFact& usual :
       StartFacts{{"devices of a process", "1"},
                  {"batches of a replica and step (micro_steps)", "1"},
                  {"the floats of activations", "Float"},
                  {"what is done with numbers that are not finite (0 stop, 1 skip, 2 ignore)", "0"},
                  {"the radius of sharpness-aware minimization", "0"},
                  {"the loss scale", "none"}}) {
    EXPECT_THAT(facts, Contains(usual)) << usual.item;
  }
}

// Ranks with other numbers of replicas would take some batches twice and others never.
TEST(StartFacts, ATrainingTellsItsReplicas) {
  for (const int replicas : {2, 3}) {
    TowerTrainerOptions options = tiny_options();
    options.devices.replicas = replicas;
    options.exchange.variable_update = "replicated";
    StartFacts facts;
    add_trainer_facts(TowerTrainer(options, tiny_source(12, 2, replicas)), 100, facts);
    EXPECT_THAT(facts, Contains(parallel::StartFact{"devices of a process", std::to_string(replicas)}));
  }
}

TEST(StartFacts, TheProgramIsItsVersionAndInstructions) {
  StartFacts facts;
  add_program_facts(facts);
  ASSERT_EQ(facts.size(), 3U);
  for (const auto& [item, value] : facts) EXPECT_NE(value, "") << item;
}

TEST(StartFacts, ClassesHaveTheirNumbers) {
  StartFacts facts{{"--eval", "true"}};
  add_class_facts({"cat", "dog"}, facts);
  EXPECT_EQ(facts, (StartFacts{{"--eval", "true"}, {"class 0 of the data", "cat"}, {"class 1 of the data", "dog"}}));
}

// Each number of the rule is another one, and the radius and the update are not those of others.
TEST(StartFacts, ATrainingTellsItsLossScaleUpdateAndRadius) {
  TowerTrainerOptions options = tiny_options();
  options.exchange.variable_update = "replicated";
  options.sharpness_aware = optim::SharpnessAwareOptions{.rho = 0.25};
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 8,
                                                        .automatic = true,
                                                        .rule = optim::LossScaleRule::kPaddle,
                                                        .raise_after = 5,
                                                        .lower_after = 3,
                                                        .raise_factor = 4,
                                                        .lower_factor = 0.25};
  StartFacts facts;
  add_trainer_facts(TowerTrainer(options, tiny_source(8, 2)), 100, facts);
  EXPECT_THAT(facts, Contains(parallel::StartFact{"how variables are updated", "replicated"}));
  EXPECT_THAT(facts, Contains(parallel::StartFact{"the radius of sharpness-aware minimization", "0.25"}));
  EXPECT_THAT(facts,
              Contains(parallel::StartFact{
                  "the loss scale", "from 8 on, times 4 after 5 steps, times 0.25 after 3 overflows, at least 1"}));
}

TEST(StartFacts, AGraphTellsItsOutputsAndWhatEachLayerReads) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "tiny"});
  const auto x = b.global_average_pool("pool", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3}));
  StartFacts facts;
  add_graph_facts(b.build(b.linear("fc", x, {.out_features = 5})), facts);
  EXPECT_THAT(facts, Contains(parallel::StartFact{"output logits of the model", "node 3, loss weight 1"}));
  const auto fc =
      std::find_if(facts.begin(), facts.end(), [](const auto& f) { return f.item == "layer fc of the model"; });
  ASSERT_NE(fc, facts.end());
  EXPECT_THAT(fc->value, HasSubstr(" of 2 to [5]"));
}

}  // namespace
}  // namespace trainyard::train::start_facts_test
