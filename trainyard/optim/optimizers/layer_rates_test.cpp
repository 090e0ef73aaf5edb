// LARS and LAMB against their definition in double, element by element.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/step/segment_parts.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::layer_rates_test {
namespace {

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// One parameter, as the papers write it.
struct Definition {
  OptimizerOptions options;  // of the optimizer, numbers complete
  double rate_factor = 1, decay = 0;
  bool adapts = true;
  std::vector<double> w, m, v;
  int updates = 0;

  // gradients: unscaled, without weight decay.
  void step(const std::string& name, std::vector<double> gradients, double rate) {
    m.resize(w.size());
    v.resize(w.size());
    for (double& g : gradients) {
      if (options.gradient_clip) g = std::fmax(-*options.gradient_clip, std::fmin(*options.gradient_clip, g));
    }
    rate *= rate_factor;
    ++updates;
    name == "lars" ? lars(gradients, rate) : lamb(gradients, rate);
  }

  void lars(const std::vector<double>& g, double rate) {
    const double weights = norm_of(w), gradients = norm_of(g);
    const bool both = adapts && weights > 0 && gradients > 0;
    const double ratio = both ? number("trust_coefficient") * weights / (gradients + decay * weights) : 1;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = number("momentum") * m[i] + rate * ratio * (g[i] + decay * w[i]);
      w[i] -= m[i];
    }
  }

  double number(const std::string& name) const { return options.numbers.at(name); }

  void lamb(const std::vector<double>& g, double rate) {
    const double beta1 = number("beta1"), beta2 = number("beta2");
    const double mean_bias = number("bias_correction") != 0 ? 1 - std::pow(beta1, updates) : 1;
    const double square_bias = number("bias_correction") != 0 ? 1 - std::pow(beta2, updates) : 1;
    std::vector<double> r(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      r[i] = m[i] / mean_bias / (std::sqrt(v[i] / square_bias) + number("epsilon")) + decay * w[i];
    }
    const bool both = adapts && norm_of(w) > 0 && norm_of(r) > 0;
    const double ratio = both ? norm_of(w) / norm_of(r) : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= rate * ratio * r[i];
  }
};

struct Tested {
  std::string title, optimizer;
  OptimizerOptions options{};
  double factor = 1.0;  // set_weight_decay_factor()
};

void PrintTo(const Tested& tested, std::ostream* out) {
  *out << tested.title;
}

class LayerRates : public testing::TestWithParam<Tested> {
 protected:
  static std::vector<double> value(const nn::ParameterSet& set, const std::string& name) {
    const at::Tensor values = set.value(*set.find(name)).to(at::kDouble).contiguous();
    const auto* data = values.const_data_ptr<double>();
    return {data, data + values.numel()};
  }

  // Several parts, whose sums are added up, and weights of 0, which have no norm.
  static nn::ParameterSet make_set(at::ScalarType dtype) {
    nn::ParameterSet set({.dtype = dtype});
    set.declare({.name = "large", .shape = {kPartElements + 3}, .init = nn::Initializer::normal(1.0)});
    set.declare({.name = "zero", .shape = {9}, .init = nn::Initializer::zeros()});
    set.declare({.name = "grouped", .shape = {3, 7}, .init = nn::Initializer::normal(1.0)});
    set.declare({.name = "bias", .shape = {5}, .init = nn::Initializer::normal(1.0), .decay = false});
    set.allocate();
    set.initialize(3);
    return set;
  }

  static void expect_follows(at::ScalarType dtype) {
    const auto& [title, name, given, factor] = GetParam();
    OptimizerOptions options = given;
    options.groups = {{.pattern = "grouped", .rate_factor = 0.5, .weight_decay = 0.3}};
    nn::ParameterSet set = make_set(dtype);
    const auto optimizer = optimizers().get(name)(set, options);
    optimizer->set_weight_decay_factor(factor);
    std::map<std::string, Definition> defined;
    for (const nn::Segment& segment : set.segments()) {
      const std::string& parameter = segment.spec.name;
      Definition& own = defined[parameter];
      own = {.options = optimizer->options(),
             .adapts = segment.spec.decay || optimizer->adapts_undecayed(),
             .w = value(set, parameter)};
      if (segment.spec.decay) own.decay = options.weight_decay;
      if (parameter == "grouped") {
        own.decay = 0.3;
        own.rate_factor = 0.5;
      }
      if (name == "lars") own.decay *= factor;
    }
    StepState state;
    for (int64_t step = 0; step < 1000; ++step) {
      const double middle = std::sin(0.05 * static_cast<double>(step));
      const double rate = 0.02 / (1 + 0.01 * static_cast<double>(step));
      const bool skipped = step == 300;
      state.write({.learning_rate = rate, .inverse_loss_scale = 0.25, .step = step, .found_inf = skipped});
      set.gradients().copy_(set.values().sub(middle).mul(4));
      if (skipped) set.gradients().fill_(std::numeric_limits<double>::infinity());
      optimizer->apply(state);
      for (auto& [parameter, own] : defined) {
        if (skipped) continue;
        std::vector<double> gradients = own.w;
        for (double& g : gradients) g -= middle;
        own.step(name, gradients, rate);
      }
    }
    for (const auto& [parameter, own] : defined) {
      const std::vector<double> actual = value(set, parameter);
      const double size = norm_of(own.w) / std::sqrt(static_cast<double>(own.w.size()));
      for (size_t i = 0; i < actual.size(); ++i) {
        const double allowed = (dtype == at::kDouble ? 1e-9 : 1e-4) * std::max(std::abs(own.w[i]), 0.01 * size);
        ASSERT_NEAR(actual[i], own.w[i], allowed) << parameter << " " << i;
      }
    }
  }
};

TEST_P(LayerRates, FollowTheirDefinitionFor1000StepsInDouble) {
  expect_follows(at::kDouble);
}

TEST_P(LayerRates, FollowTheirDefinitionFor1000StepsInFloat) {
  expect_follows(at::kFloat);
}

OptimizerOptions lamb_options() {
  return {.numbers = {{"beta1", 0.85}, {"beta2", 0.99}, {"epsilon", 1e-5}}, .weight_decay = 0.02};
}

std::vector<Tested> tested_rates() {
  const OptimizerOptions lars{.numbers = {{"momentum", 0.8}, {"trust_coefficient", 0.1}}, .weight_decay = 0.02};
  std::vector<Tested> all = {{"lars", "lars", lars},
                             {"lars_of_sums", "lars", lars, 2.0},
                             {"lamb", "lamb", lamb_options()},
                             {"lamb_of_sums", "lamb", lamb_options(), 2.0}};
  const auto add = [&](const std::string& title, const std::string& name, const OptimizerOptions& options,
                       auto change) {
    OptimizerOptions changed = options;
    change(changed);
    all.push_back({title, name, changed});
  };
  for (const auto& [name, options] :
       std::map<std::string, OptimizerOptions>{{"lars", lars}, {"lamb", lamb_options()}}) {
    add(name + "_everywhere", name, options, [](OptimizerOptions& o) { o.numbers["adapt_undecayed"] = 1; });
    add(name + "_clipped", name, options, [](OptimizerOptions& o) { o.gradient_clip = 0.75; });
  }
  add("lamb_uncorrected", "lamb", lamb_options(), [](OptimizerOptions& o) { o.numbers["bias_correction"] = 0; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, LayerRates, testing::ValuesIn(tested_rates()),
                         [](const auto& tested) { return tested.param.title; });

// Weight decay of lars is a part of the loss, that of lamb and of decoupled decay is not.
TEST(DecayForms, SayWhatTheLossHolds) {
  for (const std::string& name : optimizers().names()) {
    for (const bool decoupled : {false, true}) {
      nn::ParameterSet set = small_set();
      const auto optimizer = optimizers().get(name)(set, {.weight_decay = 0.5, .decoupled_decay = decoupled});
      const bool always = name == "lamb" || name == "lion" || name.ends_with("_adamw") || name == "muon_sgd";
      const bool in_loss = name == "lars" || (!always && !decoupled);
      EXPECT_EQ(RegularizationLoss(*optimizer)().item<double>() > 0, in_loss) << name << " " << decoupled;
      EXPECT_EQ(optimizer->regularizers().size(), in_loss ? 1u : 0u) << name << " " << decoupled;
    }
  }
}

}  // namespace
}  // namespace trainyard::optim::layer_rates_test
