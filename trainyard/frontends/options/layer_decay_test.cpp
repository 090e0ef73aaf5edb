// Layer-wise decay of the learning rate in the models that people fine-tune, against timm's numbers:
// tools/golden/layer_decay.py.
#include "trainyard/optim/optimizers/layer_decay.h"

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends::layer_decay_test {
namespace {

constexpr double kDecay = 0.65;

struct Golden {
  std::vector<std::string> names;         // in timm's order
  std::map<std::string, double> factors;  // by name
};

std::map<std::string, Golden> golden_models() {
  std::map<std::string, Golden> models;
  for (const std::string& line : core::golden_lines("trainyard/frontends/testdata/layer_decay.txt")) {
    std::istringstream words(line);
    std::string model, name;
    double factor = 0;
    words >> model >> name >> factor;
    models[model].names.push_back(name);
    models[model].factors[name] = factor;
  }
  return models;
}

std::vector<std::string> parameters_of(const std::string& model) {
  std::vector<std::string> names;
  for (const nn::Node& node : models::build_model(model, "imagenet", {}).nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) names.push_back(parameter.name);
  }
  return names;
}

TEST(LayerDecay, HasTimmsFactors) {
  for (const auto& [model, golden] : golden_models()) {
    const std::vector<std::string> names = model == "grouped" ? golden.names : parameters_of(model);
    const std::vector<double> factors = optim::layer_rate_factors(names, kDecay);
    ASSERT_EQ(factors.size(), golden.factors.size()) << model;
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_TRUE(golden.factors.contains(names[i])) << model << " " << names[i];
      EXPECT_DOUBLE_EQ(factors[i], golden.factors.at(names[i])) << model << " " << names[i];
    }
  }
}

// The groups of a network's layers never decrease from the input to the output, and the head keeps its rate.
TEST(LayerDecay, OfOtherModelsRisesToTheHead) {
  for (const char* model : {"resnet18", "resnet50_v2", "convnext_base", "swin_t", "mobilenet_v2", "vgg16",
                            "efficientnet_b0", "lenet", "trivial", "keras/resnet50"}) {
    const std::vector<std::string> names = parameters_of(model);
    const std::vector<double> factors = optim::layer_rate_factors(names, kDecay);
    EXPECT_DOUBLE_EQ(factors.back(), 1) << model;
    EXPECT_LT(factors.front(), 1) << model;
    for (size_t i = 1; i < factors.size(); ++i) EXPECT_GE(factors[i], factors[i - 1]) << model << " " << names[i];
  }
}

TEST(LayerDecay, OfOneIsNone) {
  for (const double factor : optim::layer_rate_factors(parameters_of("resnet18"), 1)) EXPECT_EQ(factor, 1);
  EXPECT_TRUE(optim::layer_rate_factors({}, 0.5).empty());
  EXPECT_EQ(optim::layer_rate_factors({"only"}, 0.5), std::vector<double>{1});
}

}  // namespace
}  // namespace trainyard::frontends::layer_decay_test
