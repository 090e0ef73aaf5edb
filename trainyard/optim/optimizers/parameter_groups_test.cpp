// Groups of parameters, and numbers that change between steps, against the optimizer without them.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/layer_decay.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::parameter_groups_test {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 0.05;

struct Trained {
  nn::ParameterSet set = small_set();
  std::unique_ptr<Optimizer> optimizer;
  at::Tensor value(const std::string& name) const { return set.value(*set.find(name)); }
};

// Ten steps down a bowl. `change` may change the optimizer before each.
std::unique_ptr<Trained> train(const std::string& name, const OptimizerOptions& options, double rate = kRate,
                               const std::function<void(Optimizer&, int64_t step)>& change = {}) {
  auto trained = std::make_unique<Trained>();
  trained->optimizer = optimizers().get(name)(trained->set, options);
  StepState state;
  for (int64_t step = 0; step < 10; ++step) {
    if (change) change(*trained->optimizer, step);
    state.write({.learning_rate = rate, .step = step});
    trained->set.gradients().copy_(trained->set.values().sub(0.25));
    trained->optimizer->apply(state);
  }
  return trained;
}

class ParameterGroups : public ::testing::TestWithParam<std::string> {};

// Each parameter moves as if its group's numbers were those of the whole optimizer.
TEST_P(ParameterGroups, HaveARateAndADecayOfTheirOwn) {
  OptimizerOptions options{.numbers = numbers_of(GetParam(), {{"momentum", 0.8}, {"trust_coefficient", 0.5}}),
                           .weight_decay = 0.02};
  const auto plain = train(GetParam(), options), slow = train(GetParam(), options, kRate / 4);
  options.weight_decay = 0.5;
  const auto decayed = train(GetParam(), options);
  options.weight_decay = 0.02;
  options.groups = {{.pattern = "body.*", .rate_factor = 0.25}, {.pattern = "body.2.*", .weight_decay = 0.5}};
  const auto grouped = train(GetParam(), options);
  const auto expect_near = [&](const std::string& name, const Trained& other) {
    EXPECT_LT(grouped->value(name).sub(other.value(name)).abs().max().item<double>(), 1e-14) << name;
  };
  expect_near("body.1.weight", *slow);
  expect_near("body.2.weight", *decayed);  // the last group that names it counts, for its rate, too
  expect_near("head.weight", *plain);
  expect_near("head.bias", *plain);
  EXPECT_GT(plain->value("body.1.weight").sub(slow->value("body.1.weight")).abs().max().item<double>(), 1e-3);

  double expected = 0;
  const bool in_loss =
      grouped->optimizer->decay_form() != Optimizer::DecayForm::kDecoupled && !GetParam().starts_with("muon_");
  for (const auto& [name, decay] :
       std::map<std::string, double>{{"body.1.weight", 0.02}, {"body.2.weight", 0.5}, {"head.weight", 0.02}}) {
    if (in_loss) expected += decay * grouped->value(name).square().sum().item<double>() / 2;
  }
  EXPECT_NEAR(RegularizationLoss(*grouped->optimizer)().item<double>(), expected, 1e-12);
}

// The set is of no family that has groups of its own: its first two parameters are one, the head's two another.
TEST_P(ParameterGroups, HaveRatesByLayersToo) {
  OptimizerOptions options{.numbers = numbers_of(GetParam(), {{"momentum", 0.8}, {"trust_coefficient", 0.5}}),
                           .weight_decay = 0.02};
  const auto plain = train(GetParam(), options), half = train(GetParam(), options, kRate / 2),
             eighth = train(GetParam(), options, kRate / 8);
  options.layer_decay = 0.5;
  options.groups = {{.pattern = "body.2.*", .rate_factor = 0.25}};
  const auto layered = train(GetParam(), options);
  const auto expect_near = [&](const std::string& name, const Trained& other) {
    EXPECT_LT(layered->value(name).sub(other.value(name)).abs().max().item<double>(), 1e-14) << name;
  };
  expect_near("body.1.weight", *half);
  expect_near("body.2.weight", *eighth);
  expect_near("head.weight", *plain);
  expect_near("head.bias", *plain);
}

TEST_P(ParameterGroups, ANumberThatIsSetCountsFromTheNextUpdate) {
  const OptimizerOptions options{.numbers = numbers_of(GetParam(), {{"momentum", 0.8}}), .weight_decay = 0.02};
  const auto changed = train(GetParam(), options, kRate, [](Optimizer& optimizer, int64_t step) {
    if (step == 4) optimizer.set_hyperparameter("weight_decay", 0.3);
  });
  // The same in two halves, of which the second begins with the state of the first.
  const auto expected = std::make_unique<Trained>();
  expected->optimizer = optimizers().get(GetParam())(expected->set, options);
  OptimizerOptions later = options;
  later.weight_decay = 0.3;
  StepState state;
  for (int64_t step = 0; step < 10; ++step) {
    if (step == 4) {
      auto second = optimizers().get(GetParam())(expected->set, later);
      core::MemoryState saved;
      expected->optimizer->save(saved);
      second->load(saved);
      expected->optimizer = std::move(second);
    }
    state.write({.learning_rate = kRate, .step = step});
    expected->set.gradients().copy_(expected->set.values().sub(0.25));
    expected->optimizer->apply(state);
  }
  EXPECT_TRUE(changed->set.values().equal(expected->set.values()));
  EXPECT_FALSE(changed->set.values().equal(train(GetParam(), options)->set.values()));
}

INSTANTIATE_TEST_SUITE_P(All, ParameterGroups, ::testing::ValuesIn(optimizers().names()));

// By names as torchvision's: the stem first, the norm behind the last block with that block, the head last.
TEST(LayerRateFactors, FallByHalvesFromTheHeadToTheStem) {
  using Factors = std::vector<double>;
  const std::string block = "encoder.layers.encoder_layer_";
  EXPECT_EQ(layer_rate_factors({"conv_proj.weight", "class_token", "encoder.pos_embedding", block + "0.ln_1.weight",
                                block + "1.mlp.0.weight", "encoder.ln.weight", "heads.head.weight"},
                               0.5),
            (Factors{0.125, 0.125, 0.125, 0.25, 0.5, 0.5, 1}));
  EXPECT_EQ(layer_rate_factors({"features.0.0.weight", "features.1.0.layer_scale", "features.1.1.layer_scale",
                                "features.2.0.weight", "features.3.0.layer_scale", "classifier.2.weight"},
                               0.5),
            (Factors{1 / 16.0, 0.125, 0.25, 0.5, 0.5, 1}))
      << "the layer between two stages is of the next one";
  EXPECT_EQ(layer_rate_factors(
                {"features.0.0.weight", "features.1.0.layer_scale", "features.2.0.weight", "features.2.1.weight",
                 "features.3.0.layer_scale", "features.3.1.layer_scale", "features.10.0.weight", "classifier.2.weight"},
                0.5),
            (Factors{1 / 32.0, 1 / 16.0, 0.125, 0.125, 0.125, 0.25, 0.5, 1}))
      << "with its convolution as with its norm; stages are in the order of their numbers";
  EXPECT_EQ(layer_rate_factors({"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.1.conv1.weight",
                                "layer2.0.conv1.weight", "bn_last.weight", "fc.weight"},
                               0.5),
            (Factors{1 / 16.0, 1 / 16.0, 0.125, 0.25, 0.5, 0.5, 1}));
  // Other names: twelve parameters at a time, and the layer of the last one.
  std::vector<std::string> names;
  for (int i = 0; i < 13; ++i) names.push_back("layer" + std::to_string(i) + ".weight");
  names.emplace_back("head.weight");
  names.emplace_back("head.bias");
  Factors expected(12, 0.25);
  for (const double factor : {0.5, 1.0, 1.0}) expected.push_back(factor);
  EXPECT_EQ(layer_rate_factors(names, 0.5), expected);
}

// A layer is all of a name up to its last dot.
TEST(LayerRateFactors, TellLayersApartByTheirWholeNames) {
  EXPECT_EQ(layer_rate_factors({"a.weight", "b.weight"}, 0.5), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(layer_rate_factors({"a.b.weight", "a.c.weight", "a.c.bias"}, 0.5), (std::vector<double>{0.5, 1, 1}));
}

// The first segment is that of the parameter which is declared last.
TEST(LayerRateFactors, AreThoseOfEachSegment) {
  nn::ParameterSet set;
  for (const char* name : {"fc.weight", "layer1.0.conv1.weight", "conv1.weight"}) {
    set.declare({.name = name, .shape = {3}});
  }
  set.allocate();
  const auto optimizer =
      optimizers().get("sgd")(set, {.groups = {{.pattern = "layer1.*", .rate_factor = 3}}, .layer_decay = 0.5});
  std::map<std::string, double> factors;
  for (size_t i = 0; i < set.segments().size(); ++i) factors[set.segments()[i].spec.name] = optimizer->rate_factor(i);
  EXPECT_EQ(factors,
            (std::map<std::string, double>{{"fc.weight", 1}, {"layer1.0.conv1.weight", 1.5}, {"conv1.weight", 0.25}}));
  EXPECT_EQ(set.segments()[0].spec.name, "conv1.weight");
}

TEST(ParameterGroupsOf, BadOnesAreRefused) {
  nn::ParameterSet set = small_set();
  const auto problem = [&](const ParameterGroup& group, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of([&] { optimizers().get("sgd")(set, {.groups = {group}}); }, code);
  };
  EXPECT_THAT(problem({.pattern = "boddy.*"}, core::ErrorCode::kNotFound), HasSubstr("no parameter is named as"));
  EXPECT_THAT(problem({.pattern = "*", .rate_factor = -1}), HasSubstr("rate factor of the group '*'"));
  EXPECT_THAT(problem({.pattern = "*", .weight_decay = std::nan("")}), HasSubstr("weight decay of the group '*'"));
  for (const double bad : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THAT(core::message_of([&] { optimizers().get("sgd")(set, {.layer_decay = bad}); }),
                HasSubstr("layer decay"));
  }
  const auto sgd = optimizers().get("sgd")(set, {});
  EXPECT_THAT(core::message_of([&] { sgd->set_hyperparameter("momentum", 0.5); }, core::ErrorCode::kNotFound),
              HasSubstr("known: weight_decay"));
  EXPECT_THAT(core::message_of([&] { sgd->set_hyperparameter("weight_decay", -1); }), HasSubstr("weight decay"));
  EXPECT_EQ(sgd->hyperparameter("weight_decay"), 0);
}

}  // namespace
}  // namespace trainyard::optim::parameter_groups_test
