// Sharpness-aware minimization through the trainer: against its definition in double, over variable updates, and what a
// second pass must not touch.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"
#include "trainyard/train/testing/two_scalars.h"

namespace trainyard::train::sharpness_aware_test {
namespace {

constexpr double kRho = 0.2;

TowerTrainerOptions aware_options(const TinyModel& model = {}, int replicas = 1) {
  TowerTrainerOptions options = tiny_options(model, replicas);
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  options.exchange.variable_update = "replicated";
  options.sharpness_aware = optim::SharpnessAwareOptions{.rho = kRho};
  return options;
}

core::MemoryState state_of(const TowerTrainer& trainer) {
  core::MemoryState state;
  trainer.save(state);
  return state;
}

void expect_same(const core::StateReader& expected, const core::StateReader& actual) {
  int compared = 0;
  for (const char* part : {"model/", "optimizer/"}) {
    for (const std::string& name : expected.names(part)) {
      EXPECT_TRUE(expected.tensor(name).equal(actual.tensor(name))) << name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 3);
}

// Softmax regression of 3 features and 4 classes, in plain arrays: its loss's gradient, the decay's, the perturbation,
// and Nesterov's update.
class Regression {
 public:
  static constexpr int kFeatures = 3, kClasses = 4;
  std::array<double, kClasses * kFeatures> weight{}, weight_velocity{};
  std::array<double, kClasses> bias{}, bias_velocity{};

  void step(const at::Tensor& images, const at::Tensor& labels, double rate) {
    const auto [g_weight, g_bias] = gradient(weight, bias, images, labels);
    double squares = 0;
    for (const double g : g_weight) squares += g * g;
    for (const double g : g_bias) squares += g * g;
    auto far_weight = weight;
    auto far_bias = bias;
    for (size_t i = 0; i < weight.size(); ++i) far_weight[i] += kRho * g_weight[i] / std::sqrt(squares);
    for (size_t i = 0; i < bias.size(); ++i) far_bias[i] += kRho * g_bias[i] / std::sqrt(squares);
    const auto [far_g_weight, far_g_bias] = gradient(far_weight, far_bias, images, labels);
    update(weight, weight_velocity, far_g_weight, rate);
    update(bias, bias_velocity, far_g_bias, rate);
  }
  static constexpr double kDecay = 0.01, kMomentum = 0.8;

 private:
  template <typename Array>
  static void update(Array& values, Array& velocity, const Array& gradient, double rate) {
    for (size_t i = 0; i < values.size(); ++i) {
      velocity[i] = kMomentum * velocity[i] + gradient[i];
      values[i] -= rate * (gradient[i] + kMomentum * velocity[i]);
    }
  }
  static std::pair<decltype(weight), decltype(bias)> gradient(const decltype(weight)& w, const decltype(bias)& b,
                                                              const at::Tensor& images, const at::Tensor& labels) {
    decltype(weight) g_weight{};
    decltype(bias) g_bias{};
    const auto count = images.size(0);
    const float* const pixels = images.const_data_ptr<float>();
    for (int64_t n = 0; n < count; ++n) {
      std::array<double, kClasses> logits{};
      double sum = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        logits[c] = b[c];
        for (size_t f = 0; f < kFeatures; ++f) {
          logits[c] += w[c * kFeatures + f] * static_cast<double>(pixels[n * kFeatures + static_cast<int64_t>(f)]);
        }
        sum += std::exp(logits[c]);
      }
      for (size_t c = 0; c < kClasses; ++c) {
        const bool is_label = labels.const_data_ptr<int64_t>()[n] == static_cast<int64_t>(c);
        const double slope = (std::exp(logits[c]) / sum - (is_label ? 1 : 0)) / static_cast<double>(count);
        g_bias[c] += slope;
        for (size_t f = 0; f < kFeatures; ++f) {
          g_weight[c * kFeatures + f] += slope * static_cast<double>(pixels[n * kFeatures + static_cast<int64_t>(f)]);
        }
      }
    }
    for (size_t i = 0; i < w.size(); ++i) g_weight[i] += kDecay * w[i];
    for (size_t i = 0; i < b.size(); ++i) g_bias[i] += kDecay * b[i];
    return {g_weight, g_bias};
  }
};

std::shared_ptr<MemorySource> points(int64_t batch_size, int replicas, at::Tensor* images = nullptr,
                                     at::Tensor* labels = nullptr) {
  constexpr int64_t kSamples = 48;
  const at::Tensor features = at::empty({kSamples, 3, 1, 1}), classes = at::empty({kSamples}, at::kLong);
  for (int64_t i = 0; i < kSamples; ++i) {
    core::RandomStream stream(3, "points", {static_cast<uint64_t>(i)});
    for (int64_t f = 0; f < 3; ++f) features.mutable_data_ptr<float>()[3 * i + f] = stream.normal();
    classes.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(stream.below(4));
  }
  if (images != nullptr) *images = features;
  if (labels != nullptr) *labels = classes;
  return std::make_shared<MemorySource>(features, classes, batch_size, replicas);
}

TEST(SharpnessAwareTraining, FollowsItsDefinitionForAThousandSteps) {
  nn::GraphBuilder b({.image = {3, 1, 1}, .name = "regression"});
  const nn::Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 4}));
  const auto rate = optim::piecewise({399, 699}, {0.3, 0.1, 0.02});
  for (const auto& [mode, replicas] : {std::pair{"parameter_server", 2}, std::pair{"replicated", 1}}) {
    SCOPED_TRACE(mode);
    TowerTrainer trainer({.graph = graph,
                          .devices = {.replicas = replicas, .executor = "reference", .dtype = at::kDouble},
                          .threads = {.intra_op_threads = replicas},
                          .exchange = {.variable_update = mode},
                          .seed = 5,
                          .make_optimizer =
                              [](nn::ParameterSet& set) {
                                // The decay of all parameters, the bias's among them.
                                return optim::optimizers().get("tf_nesterov")(
                                    set, {.numbers = {{"momentum", Regression::kMomentum}},
                                          .groups = {{.pattern = "*", .weight_decay = Regression::kDecay}}});
                              },
                          .learning_rate = rate,
                          .sharpness_aware = optim::SharpnessAwareOptions{.rho = kRho}},
                         points(16 / replicas, replicas));
    at::Tensor images, labels;
    points(16, 1, &images, &labels);
    nn::ParameterSet& set = trainer.parameters();
    const at::Tensor weight = set.value(*set.find("fc.weight")), bias = set.value(*set.find("fc.bias"));
    Regression defined;
    std::copy_n(weight.const_data_ptr<double>(), defined.weight.size(), defined.weight.begin());
    std::copy_n(bias.const_data_ptr<double>(), defined.bias.size(), defined.bias.begin());
    trainer.train({.steps_per_epoch = 1000});
    for (int64_t step = 0; step < 1000; ++step) {
      const int64_t first = step % 3 * 16;
      defined.step(images.narrow(0, first, 16), labels.narrow(0, first, 16), rate(step));
    }
    for (size_t i = 0; i < defined.weight.size(); ++i) {
      EXPECT_NEAR(weight.const_data_ptr<double>()[i], defined.weight[i], 1e-9 * (1 + std::abs(defined.weight[i])));
    }
    for (size_t i = 0; i < defined.bias.size(); ++i) {
      EXPECT_NEAR(bias.const_data_ptr<double>()[i], defined.bias[i], 1e-9 * (1 + std::abs(defined.bias[i])));
    }
  }
}

TEST(SharpnessAwareTraining, IsTheSameOverVariableUpdates) {
  const auto trained = [](const char* mode, int micro_steps) {
    TowerTrainerOptions options = aware_options({.batch_norm = false}, 2);
    options.exchange.variable_update = mode;
    options.micro_steps = micro_steps;
    options.exchange.reduction = parallel::GradientReduction::kMean;
    TowerTrainer trainer(options, tiny_source(240, 8 / micro_steps, 2));
    trainer.train({.steps_per_epoch = 4});
    return trainer.parameters().values().clone();
  };
  const at::Tensor expected = trained("parameter_server", 1);
  EXPECT_LE(trained("replicated", 1).sub(expected).abs().max().item<double>(), 1e-6);
  // Summed gradients point the same way, and their decay is counted twice, too: only the update is twice as long.
  TowerTrainerOptions summed = aware_options({.batch_norm = false}, 2), mean = summed;
  mean.exchange.reduction = parallel::GradientReduction::kMean;
  summed.learning_rate = optim::constant(0.025);
  TowerTrainer a(summed, tiny_source(240, 8, 2)), b(mean, tiny_source(240, 8, 2));
  a.train({.steps_per_epoch = 4});
  b.train({.steps_per_epoch = 4});
  EXPECT_LE(a.parameters().values().sub(b.parameters().values()).abs().max().item<double>(), 1e-5);
  TowerTrainerOptions without = mean;
  without.sharpness_aware.reset();
  TowerTrainer c(without, tiny_source(240, 8, 2));
  c.train({.steps_per_epoch = 4});
  EXPECT_GT(c.parameters().values().sub(b.parameters().values()).abs().max().item<double>(), 1e-4);
}

TEST(SharpnessAwareTraining, MicroStepsPassAgainOverAllOfThem) {
  const auto trained = [](int micro_steps) {
    TowerTrainerOptions options = aware_options({.batch_norm = false});
    options.micro_steps = micro_steps;
    TowerTrainer trainer(options, tiny_source(240, 8 / micro_steps));
    trainer.train({.steps_per_epoch = 4});
    return trainer.parameters().values().clone();
  };
  EXPECT_LE(trained(2).sub(trained(1)).abs().max().item<double>(), 1e-6);
}

// With next to no rho a step is the plain one, if the second pass drops what the first one has dropped.
TEST(SharpnessAwareTraining, BothPassesDrawTheSameNumbers) {
  const auto trained = [](TowerTrainerOptions options, double rho) {
    options.sharpness_aware.reset();
    if (rho > 0) options.sharpness_aware = optim::SharpnessAwareOptions{.rho = rho};
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 1});
    return trainer.parameters().values().clone();
  };
  const TowerTrainerOptions dropout = aware_options({.dropout = 0.5});
  EXPECT_LE(trained(dropout, 1e-5).sub(trained(dropout, 0)).abs().max().item<double>(), 1e-5);
  EXPECT_GT(trained(dropout, 0.5).sub(trained(dropout, 0)).abs().max().item<double>(), 1e-4);

  // And those of a foreign module, from ATen's generator.
  TowerTrainerOptions noise = aware_options();
  noise.graph = two_scalars(true);
  noise.loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output.square().mean(); });
  const auto foreign = [&](double rho) {
    TowerTrainerOptions options = noise;
    options.sharpness_aware.reset();
    if (rho > 0) options.sharpness_aware = optim::SharpnessAwareOptions{.rho = rho};
    TowerTrainer trainer(options,
                         std::make_shared<MemorySource>(at::full({8, 1, 1, 1}, 0.5), at::zeros({8}, at::kLong), 4));
    trainer.train({.steps_per_epoch = 3});
    return trainer.parameters().values().clone();
  };
  EXPECT_LE(foreign(1e-5).sub(foreign(0)).abs().max().item<double>(), 1e-4);
}

struct Losses : Callback {
  std::string name() const override { return "losses"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    auto& own = dynamic_cast<TowerTrainer&>(trainer);
    base.push_back(own.last_base_loss());
    total.push_back(own.last_total_loss());
    outputs.push_back(view.replicas[0].output().clone());
  }
  std::vector<double> base, total;
  std::vector<at::Tensor> outputs;
};

TEST(SharpnessAwareTraining, LossOutputsAndStatisticsAreThoseOfTheFirstPass) {
  TowerTrainerOptions aware = aware_options({}, 2), plain = aware;
  plain.sharpness_aware.reset();
  TowerTrainer a(aware, tiny_source(240, 8, 2)), b(plain, tiny_source(240, 8, 2));
  const auto of_a = std::make_shared<Losses>(), of_b = std::make_shared<Losses>();
  a.add(of_a);
  b.add(of_b);
  a.train({.steps_per_epoch = 1});
  b.train({.steps_per_epoch = 1});
  EXPECT_EQ(of_a->base[0], of_b->base[0]);
  EXPECT_EQ(of_a->total[0], of_b->total[0]);
  EXPECT_TRUE(of_a->outputs[0].equal(of_b->outputs[0]));
  const core::MemoryState state_a = state_of(a), state_b = state_of(b);
  for (const char* name : {"model/bn.running_mean", "model/bn.running_var"}) {
    EXPECT_TRUE(state_a.tensor(name).equal(state_b.tensor(name))) << name << " moved once";
  }
  EXPECT_FALSE(a.parameters().values().equal(b.parameters().values()));
}

TEST(SharpnessAwareTraining, GoesOnAfterAResume) {
  const TowerTrainerOptions options = aware_options({.dropout = 0.3}, 2);
  TowerTrainer straight(options, tiny_source(240, 8, 2)), first(options, tiny_source(240, 8, 2)),
      second(options, tiny_source(240, 8, 2));
  straight.train({.steps_per_epoch = 6});
  first.train({.steps_per_epoch = 3});
  second.load(state_of(first));
  second.train({.steps_per_epoch = 6, .starting_step = 3});
  expect_same(state_of(straight), state_of(second));
}

TEST(SharpnessAwareTraining, KeepsMasks) {
  TowerTrainer trainer(aware_options(), tiny_source(240, 8));
  nn::ParameterSet& set = trainer.parameters();
  const nn::ParameterId id = *set.find("fc.weight");
  at::Tensor mask = at::ones({kTinyClasses, 8}, at::kBool);
  mask[2].fill_(false);
  set.set_mask(id, mask);
  trainer.train({.steps_per_epoch = 5});
  EXPECT_TRUE(set.value(id)[2].eq(0).all().item<bool>());
  EXPECT_FALSE(set.value(id)[1].eq(0).any().item<bool>());
}

// Gradients that overflow in the first pass, in the second, or in both, with a loss scale that skips such steps.
TEST(SharpnessAwareTraining, ASkippedStepPutsTheValuesBack) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    for (const int bad_passes : {1, 2, 3}) {
      TowerTrainerOptions options = aware_options({.batch_norm = false}, 2);
      options.exchange.variable_update = mode;
      options.devices.loss_scale = optim::LossScalerOptions{.scale = 16, .automatic = true};
      const auto calls = std::make_shared<int>(0);
      options.hooks.reduce_pre = [=](int replica, nn::ParameterSet& set) {
        if (replica != 1) return;
        const int step = *calls / 2, pass = (*calls)++ % 2;
        const bool bad = step == 2 && (bad_passes & (pass + 1)) != 0;
        if (bad) set.gradient(*set.find("fc.bias"))[1] = std::numeric_limits<float>::infinity();
      };
      TowerTrainer trainer(options, tiny_source(240, 8, 2));
      trainer.train({.steps_per_epoch = 2});
      const core::MemoryState before = state_of(trainer);
      trainer.train({.steps_per_epoch = 3, .starting_step = 2});
      // A first pass that overflows perturbs nothing; the update is then that of the second pass, which is finite.
      if (bad_passes != 1) {
        expect_same(before, state_of(trainer));
        EXPECT_EQ(trainer.loss_scale()->scale, 8);
      } else {
        EXPECT_EQ(trainer.loss_scale()->scale, 16);
      }
      trainer.train({.steps_per_epoch = 5, .starting_step = 3});
      EXPECT_FALSE(before.tensor("model/fc.bias").equal(state_of(trainer).tensor("model/fc.bias")));
      EXPECT_TRUE(trainer.parameters().values().isfinite().all().item<bool>());
    }
  }
}

TEST(SharpnessAwareTraining, ALossScaleChangesNothingButRounding) {
  const auto trained = [](std::optional<optim::LossScalerOptions> scale) {
    TowerTrainerOptions options = aware_options();
    options.devices.loss_scale = scale;
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 4});
    return trainer.parameters().values().clone();
  };
  EXPECT_LE(trained(optim::LossScalerOptions{.scale = 1024}).sub(trained(std::nullopt)).abs().max().item<double>(),
            1e-5);
}

TEST(SharpnessAwareTraining, ANanIsSkippedWithoutATrace) {
  TowerTrainerOptions options = aware_options({}, 2);
  options.on_nan = OnNan::kSkip;
  const auto calls = std::make_shared<int>(0);
  options.loss = [calls](TowerContext& context) -> Loss {
    return [calls, bad = context.index() == 1](const LossInput& in) {
      const at::Tensor loss = nn::softmax_cross_entropy(in.outputs["logits"], in.batch["labels"]);
      const int call = bad ? (*calls)++ : 0;
      return call >= 4 && call <= 6 ? loss.mul(std::nan("")) : loss;  // both passes of the third step, and the search
    };
  };
  TowerTrainer trainer(options, tiny_source(240, 8, 2));
  trainer.train({.steps_per_epoch = 2});
  const core::MemoryState before = state_of(trainer);
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 3, .starting_step = 2});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("global step 3 is skipped"), std::string::npos);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  expect_same(before, state_of(trainer));
}

TEST(SharpnessAwareTraining, ALossThatIsNotFiniteInTheSecondPassAloneIsNamed) {
  for (const double factor : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    TowerTrainerOptions options = aware_options();
    const auto calls = std::make_shared<int>(0);
    options.loss = [calls, factor](TowerContext&) -> Loss {
      return [calls, factor](const LossInput& in) {
        const at::Tensor loss = nn::softmax_cross_entropy(in.outputs["logits"], in.batch["labels"]);
        return (*calls)++ == 1 ? loss.mul(factor) : loss;
      };
    };
    TowerTrainer trainer(options, tiny_source(240, 8));
    const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 1}); });
    EXPECT_TRUE(core::says(error, std::isnan(factor) ? "the loss is NaN" : "the loss is inf")) << error.what();
  }
}

TEST(SharpnessAwareTraining, AnErrorOfTheSecondPassPutsTheValuesBack) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    TowerTrainerOptions options = aware_options({.batch_norm = false}, 2);
    options.exchange.variable_update = mode;
    const auto calls = std::make_shared<int>(0);
    options.loss = [calls](TowerContext& context) -> Loss {
      return [calls, bad = context.index() == 1](const LossInput& in) {
        if (bad && ++*calls == 2) throw core::Error(core::ErrorCode::kInternal, "the second pass fails");
        return nn::softmax_cross_entropy(in.outputs["logits"], in.batch["labels"]);
      };
    };
    TowerTrainer trainer(options, tiny_source(240, 8, 2));
    const at::Tensor start = trainer.parameters().values().clone();
    EXPECT_TRUE(core::says(core::thrown_by([&] { trainer.train({.steps_per_epoch = 1}); }), "the second pass fails"));
    EXPECT_TRUE(trainer.parameters().values().equal(start)) << mode;
  }
}

TEST(SharpnessAwareTraining, IsRefusedByNameWhereItIsNotBuilt) {
  const auto error = [](const TowerTrainerOptions& options) {
    return core::thrown_by([&] { TowerTrainer(options, tiny_source(240, 8)); });
  };
  TowerTrainerOptions on_device = aware_options(), asynchronous = aware_options(), costs = aware_options();
  on_device.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  asynchronous.exchange.variable_update = "asynchronous";
  costs.costs = {{.loss = "loss", .make_optimizer = costs.make_optimizer, .learning_rate = costs.learning_rate}};
  costs.make_optimizer = nullptr;
  costs.learning_rate = nullptr;
  for (const TowerTrainerOptions* options : {&on_device, &asynchronous, &costs}) {
    EXPECT_EQ(error(*options).code(), core::ErrorCode::kUnsupported);
    EXPECT_TRUE(core::says(error(*options), "sharpness-aware minimization is not built"));
    EXPECT_TRUE(core::says(error(*options), "--sam_rho"));
  }
}

}  // namespace
}  // namespace trainyard::train::sharpness_aware_test
