// Several costs in one trainer: two networks that take turns, each with its loss and its optimizer.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/softplus.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::costs_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

nn::Graph painter() {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "painter"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(b.convolution("image", x, {.out_channels = 3, .kernel = 1, .bias = true}));
}

nn::Graph critic() {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "critic"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3});
  x = b.global_average_pool("pool", b.activation("relu", x));
  return b.build(b.linear("fc", x, {.out_features = 1}));
}

TowerStep adversaries(TowerContext& context) {
  nn::Executor& paint = context.graph(painter(), {.prefix = "painter/"});
  nn::Executor& judge = context.graph(critic(), {.prefix = "critic/"});
  return [&](const TowerInput& in) -> TowerOutput {
    const at::Tensor& real = in.batch["images"];
    const at::Tensor painted = paint.forward(in.normals(real.sizes(), "noise"), in.random);
    if (in.cost == "painter")
      return {.losses = {{"painter", at::softplus(judge.forward(painted, in.random).neg()).mean()}}};
    const at::Tensor of_real = judge.forward(real, in.random), of_painted = judge.forward(painted.detach(), in.random);
    return {.losses = {{"critic", at::softplus(of_real.neg()).add(at::softplus(of_painted)).mean()}}};
  };
}

CostOptions cost(const std::string& name, double rate, int64_t every = 1) {
  return {.loss = name,
          .make_optimizer =
              [name](nn::ParameterSet& set) {
                return optim::optimizers().get("tf_momentum")(set, {.weight_decay = 1e-3, .parameters = {name + "/*"}});
              },
          .learning_rate = optim::constant(rate),
          .every = every};
}

TowerTrainerOptions two_costs(int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = {};
  options.tower = adversaries;
  options.make_optimizer = nullptr;
  options.learning_rate = nullptr;
  options.costs = {cost("critic", 0.02), cost("painter", 0.01)};
  return options;
}

// All values of one network, one behind the other.
at::Tensor values_of(const nn::ParameterSet& set, const std::string& network) {
  std::vector<at::Tensor> all;
  for (const nn::ParameterId id : set.matching(network + "/*")) all.push_back(set.value(id).flatten());
  return at::cat(all);
}

TEST(Costs, EachHalfStepMovesItsOwnNetworkAlone) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    TowerTrainerOptions options = two_costs(2);
    options.exchange.variable_update = mode;
    struct Values {
      at::Tensor critic, painter;
    };
    std::vector<Values> halves;  // before each half step
    options.hooks.update_pre = [&](int r, nn::ParameterSet& set) {
      if (r == 0) halves.push_back({values_of(set, "critic"), values_of(set, "painter")});
    };
    TowerTrainer trainer(options, tiny_source(80, 8, 2));
    trainer.train({.steps_per_epoch = 100});
    halves.push_back({values_of(trainer.parameters(), "critic"), values_of(trainer.parameters(), "painter")});
    ASSERT_EQ(halves.size(), 201U);
    for (size_t i = 0; i + 1 < halves.size(); ++i) {
      const bool critic_moves = i % 2 == 0;
      ASSERT_EQ(halves[i].critic.equal(halves[i + 1].critic), !critic_moves) << mode << " half step " << i;
      ASSERT_EQ(halves[i].painter.equal(halves[i + 1].painter), critic_moves) << mode << " half step " << i;
    }
  }
}

TEST(Costs, HavePeriodsNumbersAndLossesOfTheirOwn) {
  TowerTrainerOptions options = two_costs();
  options.costs[1].every = 3;
  TowerTrainer trainer(options, tiny_source(80, 8));
  struct Look : Callback {
    std::string name() const override { return "look"; }
    void after_step(Trainer& trainer, const StepView& view) override {
      const at::Tensor now = values_of(*view.replicas[0].parameters, "painter");
      moved.push_back(before.defined() && !now.equal(before));
      before = now;
      losses = view.replicas[0].losses.names();
      if (view.global_step == 0) trainer.hyperparameters().set("painter/learning_rate", 0.0);
    }
    at::Tensor before;
    std::vector<bool> moved;
    std::vector<std::string> losses;
  };
  const auto look = std::make_shared<Look>();
  trainer.add(look);
  trainer.train({.steps_per_epoch = 2});
  EXPECT_THAT(look->losses, ElementsAre("critic", "painter"));
  EXPECT_EQ(trainer.current_learning_rate(), 0.02);
  EXPECT_THAT(trainer.hyperparameters().names(),
              ElementsAre("critic/learning_rate", "critic/momentum", "critic/weight_decay", "painter/learning_rate",
                          "painter/momentum", "painter/weight_decay"));
  trainer.train({.steps_per_epoch = 4});  // step 3 has a painter's turn, at a rate of 0
  EXPECT_THAT(look->moved, ElementsAre(false, false, false, false, false, false));
  trainer.hyperparameters().release("painter/learning_rate");
  trainer.train({.steps_per_epoch = 2});  // step 6
  EXPECT_TRUE(look->moved[6]);
  EXPECT_FALSE(look->moved[7]);
}

TEST(Costs, GoOnWithTheSameBits) {
  for (const int micro_steps : {1, 2}) {
    TowerTrainerOptions options = two_costs();
    options.micro_steps = micro_steps;
    TowerTrainer straight(options, tiny_source(80, 8)), first(options, tiny_source(80, 8)),
        resumed(options, tiny_source(80, 8));
    straight.train({.steps_per_epoch = 7});
    first.train({.steps_per_epoch = 4});
    core::MemoryState state;
    first.save(state);
    EXPECT_TRUE(state.has("optimizer/painter/conv.weight.momentum"));
    EXPECT_TRUE(state.has("optimizer/critic/conv.weight.momentum"));
    resumed.load(state);
    resumed.train({.steps_per_epoch = 3});
    EXPECT_TRUE(resumed.parameters().values().equal(straight.parameters().values())) << micro_steps;
  }
}

TEST(Costs, ALossThatIsNotFiniteIsNamedByWhatItIs) {
  TowerTrainerOptions options = two_costs();
  options.tower = [](TowerContext& context) -> TowerStep {
    return [step = adversaries(context)](const TowerInput& in) -> TowerOutput {
      TowerOutput result = step(in);
      if (in.cost == "painter" && in.random.step == 2)
        result.losses.set("painter", result.losses["painter"].log().log());
      return result;
    };
  };
  TowerTrainer trainer(options, tiny_source(80, 8));
  EXPECT_THAT(core::thrown_by([&] { trainer.train({.steps_per_epoch = 5}); }).what(), HasSubstr("global step 3"));
}

TEST(Costs, RefusesWhatCannotBe) {
  const auto problem = [](auto change) {
    TowerTrainerOptions options = two_costs();
    change(options);
    return core::problem_of([&] { TowerTrainer(options, tiny_source(80, 8)); });
  };
  EXPECT_EQ(problem([](auto& o) { o.learning_rate = optim::constant(1); }),
            "an optimizer or a learning rate beside several costs cannot be used");
  EXPECT_EQ(problem([](auto& o) { o.costs[1] = o.costs[0]; }), "the loss of a cost cannot be used");
  EXPECT_EQ(problem([](auto& o) { o.costs[0].every = o.costs[1].every = 2; }),
            "the periods of the costs cannot be used");
  EXPECT_EQ(problem([](auto& o) { o.costs[0].every = 0; }), "the period of a cost cannot be used");
  EXPECT_EQ(problem([](auto& o) { o.costs[1].make_optimizer = o.costs[0].make_optimizer; }),
            "two optimizers update one parameter");
  const auto unknown = [] {
    TowerTrainerOptions options = two_costs();
    options.costs[1].loss = "panter";
    TowerTrainer trainer(options, tiny_source(80, 8));
    trainer.train({.steps_per_epoch = 1});
  };
  EXPECT_THAT(core::message_of(unknown, core::ErrorCode::kNotFound), HasSubstr("unknown tensor 'panter'"));
}

// As PyTorch's GradScaler, which is updated once for all optimizers: a step counts once, also where not all costs have
// their turn in it.
TEST(Costs, CountAsOneStepOfTheLossScale) {
  TowerTrainerOptions options = two_costs();
  options.costs[1].every = 3;
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 8, .automatic = true, .raise_after = 100};
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 7});
  EXPECT_EQ(trainer.loss_scale()->scale, 8);
  EXPECT_EQ(trainer.loss_scale()->normal_steps, 7);
}

// The trainer is used again: what the failed step has found is of no later one.
TEST(Costs, AnOverflowOfAStepThatFailedBetweenThemIsOfThatStepAlone) {
  bool fails = false;
  TowerTrainerOptions options = two_costs();
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 8, .automatic = true, .raise_after = 100};
  options.tower = [&fails](TowerContext& context) -> TowerStep {
    return [&fails, step = adversaries(context)](const TowerInput& in) -> TowerOutput {
      if (fails && in.cost == "painter") throw core::Error(core::ErrorCode::kIo, "there is no paint");
      return step(in);
    };
  };
  options.hooks.reduce_pre = [&fails](int, nn::ParameterSet& set) {
    if (fails) set.gradients().fill_(std::numeric_limits<float>::infinity());
  };
  TowerTrainer trainer(options, tiny_source(80, 8));
  trainer.train({.steps_per_epoch = 1});
  fails = true;
  EXPECT_THAT(core::thrown_by([&] { trainer.train({.steps_per_epoch = 1}); }).what(), HasSubstr("there is no paint"));
  fails = false;
  trainer.parameters().gradients().zero_();  // the hook filled those of the painter, too
  trainer.train({.steps_per_epoch = 2});
  EXPECT_EQ(trainer.loss_scale()->scale, 8);
  EXPECT_EQ(trainer.loss_scale()->normal_steps, 3);
}

// A step in which all costs have their turn needs a batch as any other.
TEST(Costs, StopWhereTheInputEnds) {
  TowerTrainerOptions options = two_costs();
  options.costs[1].every = 3;
  options.end_of_input = EndOfInput::kStop;
  TowerTrainer trainer(options, tiny_source(24, 8, 1, /*repeat=*/false));
  trainer.train({.steps_per_epoch = 100});
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.stop_reason(), "the input has ended, after 3 steps");
}

}  // namespace
}  // namespace trainyard::train::costs_test
