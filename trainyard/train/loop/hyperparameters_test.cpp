// Numbers that are set while a training runs: they count from the next step on, are saved, and a resumed run has them.
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::hyperparameters_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct AfterStep : Callback {
  explicit AfterStep(std::function<void(Trainer&, const StepView&)> call) : work(std::move(call)) {}
  std::string name() const override { return "after_step"; }
  void after_step(Trainer& trainer, const StepView& view) override { work(trainer, view); }
  std::function<void(Trainer&, const StepView&)> work;
};

at::Tensor train_six(const TowerTrainerOptions& options, std::function<void(Trainer&, const StepView&)> work) {
  TowerTrainer trainer(options, tiny_source(80, 8, options.devices.replicas));
  trainer.add(std::make_shared<AfterStep>(std::move(work)));
  trainer.train({.steps_per_epoch = 6});
  return trainer.parameters().values().clone();
}

TEST(TrainerHyperparameters, ARateThatACallbackSetsIsThatOfTheNextStep) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    TowerTrainerOptions options = tiny_options({}, 2);
    options.exchange.variable_update = mode;
    std::vector<double> rates;
    const at::Tensor by_hand = train_six(options, [&](Trainer& trainer, const StepView& view) {
      rates.push_back(trainer.hyperparameters().get("learning_rate"));
      if (view.global_step == 2) trainer.hyperparameters().set("learning_rate", 0.01);
    });
    EXPECT_THAT(rates, ElementsAre(0.05, 0.05, 0.05, 0.01, 0.01, 0.01));
    options.learning_rate = optim::piecewise({2}, {0.05, 0.01});
    EXPECT_TRUE(by_hand.equal(train_six(options, [](Trainer&, const StepView&) {}))) << mode;
  }
}

TEST(TrainerHyperparameters, MomentumAndDecayReachEveryOptimizer) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.exchange.variable_update = "replicated";
  const auto set_both = [](Trainer& trainer, const StepView& view) {
    if (view.global_step > 0) return;
    trainer.hyperparameters().set("momentum", 0.5);
    trainer.hyperparameters().set("weight_decay", 0.1);
  };
  const at::Tensor changed = train_six(options, set_both);
  EXPECT_FALSE(changed.equal(train_six(options, [](Trainer&, const StepView&) {})));
  // The first step's velocity does not depend on the momentum, and its decay is what was replaced.
  TowerTrainer trainer(options, tiny_source(80, 8, 2));
  EXPECT_THAT(trainer.hyperparameters().names(), ElementsAre("learning_rate", "momentum", "weight_decay"));
  EXPECT_EQ(trainer.hyperparameters().get("weight_decay"), 1e-3);
  trainer.train({.steps_per_epoch = 1});
  trainer.hyperparameters().set("momentum", 0.5);
  trainer.hyperparameters().set("weight_decay", 0.1);
  const double base = trainer.last_base_loss(), small = trainer.last_total_loss() - base;
  trainer.train({.steps_per_epoch = 6, .starting_step = 1});
  EXPECT_TRUE(trainer.parameters().values().equal(changed));
  EXPECT_GT(trainer.last_total_loss() - trainer.last_base_loss(), 50 * small) << "the reported loss follows the decay";
}

TEST(TrainerHyperparameters, GoOnAfterAResumeAsTheyWereSet) {
  const auto set_at_two = [](Trainer& trainer, const StepView& view) {
    if (view.global_step != 1) return;
    trainer.hyperparameters().set("learning_rate", 0.2);
    trainer.hyperparameters().set("momentum", 0.3);
    trainer.hyperparameters().set("temperature", 7);
  };
  const auto make = [&] {
    auto trainer = std::make_unique<TowerTrainer>(tiny_options(), tiny_source(80, 8));
    trainer->hyperparameters().add("temperature", 1.0);
    trainer->add(std::make_shared<AfterStep>(set_at_two));
    return trainer;
  };
  const auto whole = make();
  whole->train({.steps_per_epoch = 6});
  const auto first = make();
  first->train({.steps_per_epoch = 3});
  core::MemoryState saved;
  first->save(saved);
  const auto second = make();
  second->load(saved);
  EXPECT_EQ(second->current_learning_rate(), 0.2);
  EXPECT_EQ(second->hyperparameters().get("temperature"), 7);
  second->train({.steps_per_epoch = 6, .starting_step = 3});
  EXPECT_TRUE(second->parameters().values().equal(whole->parameters().values()));
}

// Stopped and gone on with in the middle of each.
TEST(TrainerHyperparameters, SchedulesGoOnAfterAResume) {
  constexpr int64_t kSteps = 8;
  const optim::OneCycle cycle{.rate = 0.1, .steps = kSteps};
  const std::vector<optim::LearningRate> rates = {
      optim::with_warmup(optim::cosine(0.1, kSteps, 5, 0.01), 0.1, 5, 0.02),
      optim::times_warmup(optim::piecewise({3, 5}, {0.1, 0.05, 0.01}), 6, 0.1),
      optim::cosine_restarts({.rate = 0.1, .period = 3, .period_factor = 1.5, .rate_factor = 0.9}),
      optim::polynomial({.rate = 0.1, .steps = 3, .end = 0.01, .power = 2, .cycle = true}),
      optim::exponential(0.1, 3, 0.5),
      optim::exponential_staircase(0.1, 3, 0.5, 0.03),
      optim::one_cycle(cycle),
      optim::delayed(optim::polynomial({.rate = 0.1, .steps = 4}), 2),
      optim::by_epochs({.rate = 0.1, .boundary_epochs = {1, 2}, .factors = {1, 0.5, 0.1}, .warmup_epochs = 1}, 2.5)};
  for (size_t i = 0; i < rates.size(); ++i) {
    TowerTrainerOptions options = tiny_options({}, 2);
    options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
    options.learning_rate = rates[i];
    options.schedules = {{{"momentum"}, optim::one_cycle_momentum(cycle)}};
    TowerTrainer straight(options, tiny_source(80, 8, 2));
    straight.train({.steps_per_epoch = kSteps});
    for (const int64_t stop : {2, 4}) {
      TowerTrainer first(options, tiny_source(80, 8, 2)), second(options, tiny_source(80, 8, 2));
      first.train({.steps_per_epoch = stop});
      core::MemoryState saved;
      first.save(saved);
      second.load(saved);
      second.train({.steps_per_epoch = kSteps, .starting_step = stop});
      EXPECT_TRUE(second.parameters().values().equal(straight.parameters().values())) << i << " at " << stop;
      EXPECT_EQ(second.current_learning_rate(), rates[i](kSteps - 1));
    }
  }
}

TEST(TrainerHyperparameters, AScheduleMayBeOfTheMomentum) {
  TowerTrainerOptions options = tiny_options();
  options.schedules = {{{"momentum", "beta1"}, optim::piecewise({2}, {0.9, 0.3})}};
  std::vector<double> momenta;
  const at::Tensor by_schedule = train_six(options, [&](Trainer& trainer, const StepView&) {
    momenta.push_back(trainer.hyperparameters().get("momentum"));
  });
  EXPECT_THAT(momenta, ElementsAre(0.9, 0.9, 0.9, 0.3, 0.3, 0.3));
  const at::Tensor by_hand = train_six(tiny_options(), [](Trainer& trainer, const StepView& view) {
    if (view.global_step == 2) trainer.hyperparameters().set("momentum", 0.3);
  });
  EXPECT_TRUE(by_schedule.equal(by_hand));

  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("torch_nadam")(set, {}); };
  TowerTrainer nadam(options, tiny_source(80, 8));
  nadam.train({.steps_per_epoch = 4});
  EXPECT_EQ(nadam.hyperparameters().get("beta1"), 0.3);
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  EXPECT_THAT(
      core::message_of([&] { TowerTrainer(options, tiny_source(80, 8)); }),
      ::testing::AllOf(HasSubstr("a number that the optimizer does not have"), HasSubstr("momentum, or beta1")));
}

TEST(TrainerHyperparameters, AValueThatCannotBeIsAnErrorOfTheStepThatSetsIt) {
  EXPECT_THAT(core::message_of([] {
                train_six(tiny_options(), [](Trainer& trainer, const StepView& view) {
                  if (view.global_step == 1) trainer.hyperparameters().set("momentum", 1.5);
                });
              }),
              ::testing::AllOf(HasSubstr("'momentum' cannot have this value"), HasSubstr("step 2")));
}

}  // namespace
}  // namespace trainyard::train::hyperparameters_test
