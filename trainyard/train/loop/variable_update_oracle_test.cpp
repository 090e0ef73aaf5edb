// The variable updates against tf_cnn_benchmarks' oracle: loss = mean(x) * A * B with A = 1, B = 2 and x = -1, 0, ...,
// 14 in order; batch 2 on 2 devices, 4 steps; weight decay and learning rate 1/16. Momentum, RMSProp and Adam follow
// from their definition. The model is a torch::nn::Module with a loss of its own, which this tests too.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/train/loop/single_cost_trainer.h"
#include "trainyard/train/testing/memory_source.h"
#include "trainyard/train/testing/two_scalars.h"

namespace trainyard::train {
namespace {

constexpr double kSixteenth = 1.0 / 16;

SingleCostOptions options_for(const std::string& mode, const std::string& optimizer) {
  return {.graph = two_scalars(),
          .loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output.mean(); }),
          .replicas = 2,
          .intra_op_threads = 2,
          .variable_update = mode,
          .make_optimizer =
              [optimizer](nn::ParameterSet& set) {
                return optim::optimizers().get(optimizer)(set, {.momentum = 0.8,
                                                                .mean_square_decay = 0.85,
                                                                .beta1 = 0.7,
                                                                .beta2 = 0.95,
                                                                .epsilon = 0.125,
                                                                .weight_decay = kSixteenth});
              },
          .learning_rate = optim::constant(kSixteenth)};
}

std::shared_ptr<data::BatchSource> counting_source(int replicas, int64_t batch_size) {
  return std::make_shared<MemorySource>(at::arange(-1, 15, at::kFloat).view({16, 1, 1, 1}), at::zeros({16}, at::kLong),
                                        batch_size, replicas);
}

class LossRecorder : public Callback {
 public:
  std::vector<double> total, base;
  std::string name() const override { return "loss_recorder"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    auto& single_cost = dynamic_cast<SingleCostTrainer&>(trainer);
    total.push_back(single_cost.last_total_loss());
    base.push_back(single_cost.last_base_loss());
    double mean = 0;
    for (const ReplicaView& replica : view.replicas) mean += replica.loss().item<double>();
    EXPECT_NEAR(mean / static_cast<double>(view.replicas.size()), base.back(), 1e-6);
  }
};

std::shared_ptr<LossRecorder> losses_of(const SingleCostOptions& options) {
  SingleCostTrainer trainer(options, counting_source(options.replicas, 2));
  auto recorder = std::make_shared<LossRecorder>();
  trainer.add(recorder);
  trainer.train({.steps_per_epoch = 4});
  return recorder;
}

void expect_losses(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-5 * std::abs(expected[i])) << "step " << i;
  }
}

// One variable as TensorFlow 1's optimizers update it, with the numbers of options_for(). Their bits may differ from
// those of an optimizer: losses are compared.
struct Variable {
  double value = 0;
  double velocity = 0, mean = 0, square = 0;
  int updates = 0;

  explicit Variable(double start) : value(start) {}

  void update(const std::string& optimizer, double gradient) {
    ++updates;
    if (optimizer == "rmsprop") {
      if (updates == 1) square = 1;
      square = 0.85 * square + 0.15 * gradient * gradient;
      velocity = 0.8 * velocity + kSixteenth * gradient / std::sqrt(square + 0.125);
      value -= velocity;
    } else if (optimizer == "adam") {
      mean = 0.7 * mean + 0.3 * gradient;
      square = 0.95 * square + 0.05 * gradient * gradient;
      const double rate = kSixteenth * std::sqrt(1 - std::pow(0.95, updates)) / (1 - std::pow(0.7, updates));
      value -= rate * mean / (std::sqrt(square) + 0.125);
    } else {
      velocity = (optimizer == "sgd" ? 0 : 0.8) * velocity + gradient;
      value -= kSixteenth * (optimizer == "nesterov" ? gradient + 0.8 * velocity : velocity);
    }
  }
};

// By definition, in double: {total, base} losses of 4 steps.
std::pair<std::vector<double>, std::vector<double>> defined_losses(bool sum, const std::string& optimizer) {
  Variable a(1), b(2);
  std::pair<std::vector<double>, std::vector<double>> losses;
  for (int step = 0; step < 4; ++step) {
    double base = 0, gradient_a = 0, gradient_b = 0;
    for (int device = 0; device < 2; ++device) {
      const double first = -1 + 4 * step + 2 * device, mean = (first + first + 1) / 2;
      base += mean * a.value * b.value / 2;
      gradient_a += mean * b.value;
      gradient_b += mean * a.value;
    }
    // The last device's loss holds the L2 term, times the number of devices.
    gradient_a += 2 * kSixteenth * a.value;
    gradient_b += 2 * kSixteenth * b.value;
    if (!sum) {
      gradient_a /= 2;
      gradient_b /= 2;
    }
    losses.first.push_back(base + kSixteenth * (a.value * a.value + b.value * b.value) / 2);
    losses.second.push_back(base);
    a.update(optimizer, gradient_a);
    b.update(optimizer, gradient_b);
  }
  return losses;
}

TEST(VariableUpdateOracle, ParameterServerSgd) {
  const auto losses = losses_of(options_for("parameter_server", "sgd"));
  expect_losses(losses->total, {1.15625, 8.385638, 5.532262, -9.585484});
  expect_losses(losses->base, {1.0, 8.238235, 5.438459, -9.662707});
}

TEST(VariableUpdateOracle, ReplicatedSgd) {
  const auto losses = losses_of(options_for("replicated", "sgd"));
  expect_losses(losses->total, {1.15625, 7.638742, -2.596950, -35.271504});
  expect_losses(losses->base, {1.0, 7.499817, -2.661401, -35.448971});
}

TEST(VariableUpdateOracle, AllOptimizersFollowTheirDefinition) {
  for (const std::string optimizer : {"sgd", "momentum", "nesterov", "rmsprop", "adam"}) {
    for (const std::string mode : {"parameter_server", "replicated"}) {
      SCOPED_TRACE(optimizer + " " + mode);
      const auto losses = losses_of(options_for(mode, optimizer));
      const auto [total, base] = defined_losses(mode == "replicated", optimizer);
      expect_losses(losses->total, total);
      expect_losses(losses->base, base);
    }
  }
}

TEST(VariableUpdateOracle, TheReductionCanBeChosen) {
  SingleCostOptions options = options_for("replicated", "sgd");
  options.reduction = parallel::GradientReduction::kMean;
  expect_losses(losses_of(options)->total, defined_losses(false, "sgd").first);
  options = options_for("parameter_server", "sgd");
  options.reduction = parallel::GradientReduction::kSum;
  expect_losses(losses_of(options)->total, defined_losses(true, "sgd").first);
}

// Two micro-steps of batch 2 on one replica are the mean over two devices.
TEST(VariableUpdateOracle, MicroStepsAverage) {
  SingleCostOptions options = options_for("parameter_server", "nesterov");
  options.replicas = 1;
  options.micro_steps = 2;
  const auto losses = losses_of(options);
  const auto [total, base] = defined_losses(false, "nesterov");
  expect_losses(losses->total, total);
  expect_losses(losses->base, base);
}

// Foreign modules draw from ATen's generator: its state is part of the run.
TEST(SingleCostTrainer, ContinuesTheRandomNumbersOfForeignModules) {
  SingleCostOptions options = options_for("parameter_server", "sgd");
  options.graph = two_scalars(true);
  options.replicas = 1;
  options.seed = 5;
  const auto run = [&](SingleCostTrainer& trainer, int64_t from, int64_t to) {
    auto recorder = std::make_shared<LossRecorder>();
    trainer.add(recorder);
    trainer.train({.steps_per_epoch = to, .starting_step = from});
    return recorder->base;
  };
  SingleCostTrainer straight(options, counting_source(1, 2));
  const std::vector<double> expected = run(straight, 0, 6);

  core::MemoryState saved;
  {
    SingleCostTrainer first(options, counting_source(1, 2));
    const std::vector<double> losses = run(first, 0, 3);
    EXPECT_EQ(losses, std::vector<double>(expected.begin(), expected.begin() + 3));
    first.save(saved);
  }
  SingleCostTrainer second(options, counting_source(1, 2));
  at::rand({100});
  second.load(saved);
  EXPECT_EQ(run(second, 3, 6), std::vector<double>(expected.begin() + 3, expected.end()));
}

}  // namespace
}  // namespace trainyard::train
