#include "trainyard/train/step/tower.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::tower_test {
namespace {

// The same graph and loss that tiny_options() trains, as a tower of one's own.
TowerFunction own_tower(const TinyModel& model = {}, std::atomic<int>* calls = nullptr) {
  return [model, calls](TowerContext& context) -> TowerStep {
    if (calls != nullptr) ++*calls;
    nn::Executor& net = context.graph(tiny_graph(model), {.runs_whole_batch = true});
    return [&net](const TowerInput& in) -> TowerOutput {
      const at::Tensor logits = net.forward(in.batch["images"], in.random);
      return {.losses = {{"cost", nn::softmax_cross_entropy(logits, in.batch["labels"])}},
              .outputs = {{"logits", logits}}};
    };
  };
}

TowerTrainerOptions tower_options(TowerFunction tower, int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = {};
  options.tower = std::move(tower);
  return options;
}

std::shared_ptr<data::BatchSource> made_by(data::MakeBatch make, int replicas = 1) {
  return std::make_shared<data::FunctionSource>(std::move(make), data::FunctionSourceOptions{.replicas = replicas});
}

at::Tensor trained(TowerTrainer& trainer, int64_t steps) {
  trainer.train({.steps_per_epoch = steps});
  return trainer.parameters().values().clone();
}

TEST(Tower, OfAGraphAndALossGivesTheBitsOfTheBuiltInOne) {
  TowerTrainer built_in(tiny_options({.dropout = 0.3}, 2), tiny_source(80, 8, 2));
  TowerTrainer own(tower_options(own_tower({.dropout = 0.3}), 2), tiny_source(80, 8, 2));
  EXPECT_TRUE(trained(built_in, 6).equal(trained(own, 6)));
  EXPECT_EQ(built_in.last_base_loss(), own.last_base_loss());
}

TEST(Tower, IsMadeOnceADeviceAndOnceMoreForInference) {
  std::atomic<int> calls = 0;
  TowerTrainer trainer(tower_options(own_tower({}, &calls), 3), tiny_source(96, 8, 3));
  trainer.train({.steps_per_epoch = 4});
  EXPECT_EQ(calls, 3);
  const at::Tensor images = at::ones({2, 3, 5, 5});
  const core::NamedTensors batch({{"images", images}, {"labels", at::full({2}, 1, at::kLong)}});
  const at::Tensor statistics = trainer.parameters().buffer(0).clone();
  const TowerOutput once = trainer.inference_tower()({.batch = batch}),
                    again = trainer.inference_tower()({.batch = batch});
  EXPECT_EQ(calls, 4);
  EXPECT_TRUE(once.outputs["logits"].equal(again.outputs["logits"]));
  EXPECT_FALSE(once.losses["cost"].requires_grad());
  EXPECT_TRUE(trainer.parameters().buffer(0).equal(statistics)) << "inference must not move them";
  EXPECT_TRUE(once.outputs["logits"][0].equal(once.outputs["logits"][1])) << "nor use the batch's";
}

TEST(Tower, KnowsItsPlace) {
  std::vector<std::string> places;
  const TowerFunction tower = [&](TowerContext& context) -> TowerStep {
    places.push_back(std::to_string(context.index()) + "/" + std::to_string(context.count()) +
                     (context.first() ? " first " : " ") + (context.training() ? "trains " : "infers ") +
                     context.name_prefix());
    return own_tower()(context);
  };
  TowerTrainer trainer(tower_options(tower, 2), tiny_source(80, 8, 2));
  trainer.inference_tower();
  EXPECT_EQ(places,
            (std::vector<std::string>{"0/2 first trains ", "1/2 trains tower1/", "0/2 first infers inference/"}));
}

// y = a * u + b * v - w: three inputs, no graph, parameters of the tower's own. Checked against the derivative.
TEST(Tower, TakesAnyInputsAndParametersOfItsOwn) {
  const TowerFunction tower = [](TowerContext& context) -> TowerStep {
    TowerParameter& a = context.parameter({"a", {}, nn::Initializer::constant(2)});
    TowerParameter& b = context.parameter({"b", {2}, nn::Initializer::constant(3)});
    return [&](const TowerInput& in) -> TowerOutput {
      const at::Tensor y = a.value().mul(in.batch["u"]).add(b.value().mul(in.batch["v"])).sub(in.batch["w"]);
      return {.losses = {{"cost", y.sum()}, {"half", y.sum().mul(0.5)}}, .outputs = {{"y", y}}};
    };
  };
  TowerTrainerOptions options = tower_options(tower, 2);
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  options.learning_rate = optim::constant(0.5);
  TowerTrainer trainer(options, made_by(
                                    [](const data::BatchPlace& place) -> core::NamedTensors {
                                      return {{"u", at::full({}, 1.0F + static_cast<float>(place.replica))},
                                              {"v", at::ones({2})},
                                              {"w", at::ones({2})}};
                                    },
                                    2));
  trainer.train({.steps_per_epoch = 1});
  const nn::ParameterSet& set = trainer.parameters();
  // d sum(y) / da = 2 u, on average 3; d sum(y) / db = v.
  EXPECT_FLOAT_EQ(set.value(*set.find("a")).item<float>(), 2 - 0.5F * 3);
  EXPECT_FLOAT_EQ(set.value(*set.find("b"))[1].item<float>(), 3 - 0.5F);
  EXPECT_FLOAT_EQ(static_cast<float>(trainer.last_base_loss()), (2 * (2 + 3 - 1) + 2 * (4 + 3 - 1)) / 2.0F);

  trainer.set_trainable("a", false);
  const float kept = set.value(*set.find("a")).item<float>();
  trainer.train({.steps_per_epoch = 3});
  EXPECT_EQ(set.value(*set.find("a")).item<float>(), kept);
  EXPECT_FLOAT_EQ(set.value(*set.find("b"))[1].item<float>(), 3 - 0.5F * 4);
}

TEST(Tower, NeedsNoBatch) {
  const TowerFunction tower = [](TowerContext& context) -> TowerStep {
    TowerParameter& w = context.parameter({"w", {4}, nn::Initializer::constant(1)});
    return [&](const TowerInput& in) -> TowerOutput {
      EXPECT_TRUE(in.batch.empty());
      return {.losses = {{"cost", w.value().sub(in.normals({4}, "target")).square().mean()}}};
    };
  };
  const auto none = [](const data::BatchPlace&) { return core::NamedTensors(); };
  TowerTrainer straight(tower_options(tower), made_by(none)), first(tower_options(tower), made_by(none)),
      resumed(tower_options(tower), made_by(none));
  const at::Tensor expected = trained(straight, 8);
  first.train({.steps_per_epoch = 8, .max_epoch = 0});
  trained(first, 5);
  core::MemoryState state;
  first.save(state);
  resumed.load(state);
  EXPECT_TRUE(trained(resumed, 3).equal(expected)) << "noise is a function of the step";
}

TEST(Tower, MayRunAGraphMoreThanOnceInAStep) {
  const auto tower = [](bool twice) -> TowerFunction {
    return [twice](TowerContext& context) -> TowerStep {
      nn::Executor& net = context.graph(tiny_graph({.batch_norm = false}));
      return [&net, twice](const TowerInput& in) -> TowerOutput {
        const at::Tensor& images = in.batch["images"];
        const auto loss = [&](int64_t begin, int64_t count) {
          const at::Tensor logits = net.forward(images.narrow(0, begin, count), in.random);
          return nn::softmax_cross_entropy(logits, in.batch["labels"].narrow(0, begin, count));
        };
        return {.losses = {{"cost", twice ? loss(0, 4).add(loss(4, 4)).mul(0.5) : loss(0, 8)}}};
      };
    };
  };
  TowerTrainer whole(tower_options(tower(false)), tiny_source(80, 8)),
      halves(tower_options(tower(true)), tiny_source(80, 8));
  EXPECT_LT(trained(whole, 5).sub(trained(halves, 5)).abs().max().item<float>(), 1e-6F);
}

TEST(Tower, EachOfItsGraphsHasAnExecutorOfItsOwn) {
  std::vector<std::string> names;
  const TowerFunction tower = [&](TowerContext& context) -> TowerStep {
    nn::GraphBuilder b({.image = {3, 5, 5}, .name = "second"});
    const nn::Graph other =
        b.build(b.linear("head", b.global_average_pool("pool", b.input()), {.out_features = kTinyClasses}));
    const nn::Executor& first = context.graph(tiny_graph(), {.prefix = "first/"});
    const nn::Executor& second = context.graph(other, {.prefix = "second/"});
    names = {first.graph().name, second.graph().name};
    return own_tower()(context);
  };
  const TowerTrainer trainer(tower_options(tower), tiny_source(80, 8));
  EXPECT_EQ(names, (std::vector<std::string>{"tiny", "second"}));
}

TEST(Tower, TheMemoryOfAllItsGraphsIsCounted) {
  const auto activations = [](int graphs) {
    const TowerFunction tower = [graphs](TowerContext& context) -> TowerStep {
      std::vector<nn::Executor*> nets;
      for (int g = 0; g < graphs; ++g) {
        nets.push_back(&context.graph(tiny_graph(), {.prefix = std::to_string(g) + "/", .runs_whole_batch = true}));
      }
      return [nets](const TowerInput& in) -> TowerOutput {
        at::Tensor cost;
        for (nn::Executor* const net : nets) {
          const at::Tensor loss =
              nn::softmax_cross_entropy(net->forward(in.batch["images"], in.random), in.batch["labels"]);
          cost = cost.defined() ? cost.add(loss) : loss;
        }
        return {.losses = {{"cost", cost}}};
      };
    };
    TowerTrainer trainer(tower_options(tower), tiny_source(80, 8));
    trainer.train({.steps_per_epoch = 1});
    return trainer.memory()->executor->activations;
  };
  EXPECT_GT(activations(1), 0);
  EXPECT_EQ(activations(2), 2 * activations(1));
}

// The same weights see images of another size on each device.
TEST(Tower, MayHaveAnotherImageShapeThanTheNext) {
  const TowerFunction tower = [](TowerContext& context) -> TowerStep {
    const int64_t size = context.first() ? 8 : 5;
    nn::GraphBuilder b({.image = {3, size, size}, .name = "any_size"});
    auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3});
    nn::Executor& net = context.graph(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2})));
    return [&net](const TowerInput& in) -> TowerOutput {
      return {.losses = {{"cost", net.forward(in.batch["images"], in.random).square().mean()}}};
    };
  };
  const auto make = [](const data::BatchPlace& place) -> core::NamedTensors {
    const int64_t size = place.replica == 0 ? 8 : 5;
    return {{"images", at::ones({2 + place.replica, 3, size, size})}};
  };
  for (const char* mode : {"parameter_server", "replicated"}) {
    TowerTrainerOptions options = tower_options(tower, 2);
    options.exchange.variable_update = mode;
    options.learning_rate = optim::constant(0.002);
    TowerTrainer trainer(options, made_by(make, 2));
    trainer.train({.steps_per_epoch = 1});
    const double before = trainer.last_base_loss();
    trainer.train({.steps_per_epoch = 20});
    EXPECT_LT(trainer.last_base_loss(), 0.5 * before) << mode;
  }
}

TEST(Tower, ALossMayBeAModule) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  // The squared distance to a centre that is learned.
  options.loss = [](TowerContext& context) -> Loss {
    TowerParameter& center = context.parameter({"center", {kTinyClasses}, nn::Initializer::constant(1)});
    return [&center](const LossInput& in) {
      EXPECT_TRUE(in.batch.has("labels"));
      return in.outputs["logits"].detach().mul(0).sub(center.value()).square().sum(1).mean();
    };
  };
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  options.learning_rate = optim::constant(0.25);
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 2});
  const nn::ParameterSet& set = trainer.parameters();
  EXPECT_FLOAT_EQ(set.value(*set.find("center"))[3].item<float>(), 0.25F) << "halved by each step";
  core::MemoryState state;
  trainer.save(state);
  EXPECT_TRUE(state.has("model/center"));
}

TEST(Tower, SaysWhatIsWrong) {
  const auto error = [](const TowerStep& step, int replicas = 1) {
    const TowerFunction tower = [step](TowerContext& context) -> TowerStep {
      context.parameter({"w", {1}, nn::Initializer::constant(1)});
      return step;
    };
    TowerTrainer trainer(tower_options(tower, replicas), tiny_source(80, 8, replicas));
    return std::string(core::thrown_by([&] { trainer.train({.steps_per_epoch = 1}); }).what());
  };
  EXPECT_EQ(error([](const TowerInput& in) -> TowerOutput {
              return {.losses = {{"cost", in.batch["label"]}}};
            }),
            "unknown tensor 'label': epoch 1, step 1: replica 0; did you mean 'labels'? known: images, labels");
  EXPECT_EQ(error([](const TowerInput&) { return TowerOutput(); }),
            "a tower gave no loss: epoch 1, step 1: replica 0: expected at least one: the first is the cost; return it "
            "in TowerOutput::losses");
  EXPECT_EQ(error([](const TowerInput& in) -> TowerOutput {
              return {.losses = {{"far", in.batch["images"].mean()}}};
            }),
            "the loss 'far' cannot be differentiated: epoch 1, step 1: replica 0: expected a scalar that depends on "
            "the model's parameters, got 1 elements without gradient");

  TowerTrainerOptions both = tiny_options();
  both.tower = own_tower();
  EXPECT_EQ(core::problem_of([&] { both.validate(); }), "a graph or a loss beside a tower cannot be used");
}

TEST(Tower, ItsRandomNumbersAreOfSeedStepMicroStepAndSample) {
  const core::NamedTensors batch = core::NamedTensors();
  const TowerInput in{.batch = batch, .random = {.seed = 3, .step = 5, .micro_step = 2, .first_sample = 16}};
  const at::Tensor numbers = in.normals({2, 3}, "noise");
  std::vector<float> expected(6);
  core::RandomStream(3, "noise", {5, 2, 16}).normals(expected.data(), 6);
  EXPECT_EQ(std::vector<float>(numbers.const_data_ptr<float>(), numbers.const_data_ptr<float>() + 6), expected);
}

TEST(Tower, ALossOverSeveralOutputsIsTheirWeightedSum) {
  const core::NamedTensors batch = core::NamedTensors();
  core::NamedTensors outputs;
  outputs.set("main", at::full({}, 2.0));
  outputs.set("a", at::full({}, 3.0));
  outputs.set("b", at::full({}, 5.0));
  const std::vector<double> weights = {1, 0.5, 2};
  const TowerInput step{.batch = batch};
  const at::Tensor sum = weighted_sum({.outputs = outputs, .weights = weights, .batch = batch, .step = step},
                                      [](const at::Tensor& output) { return output.mul(10); });
  EXPECT_EQ(sum.item<double>(), 10 * (2 + 0.5 * 3 + 2 * 5));
}

}  // namespace
}  // namespace trainyard::train::tower_test
