// torchvision's numbers for torchvision's weights: tools/golden/torchvision_models.py wrote the files in testdata, and
// explains them.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/testing/golden_network.h"

namespace trainyard::models::torchvision_test {
namespace {

std::vector<std::string> golden_models() {
  std::vector<std::string> models;
  for (const std::string& file :
       core::local_file_system().list(std::string(TRAINYARD_SOURCE_DIR) + "/trainyard/models/torchvision/testdata")) {
    models.push_back(file.substr(0, file.size() - 4));  // without ".txt"
  }
  return models;
}

class Torchvision : public GoldenNetworkTest {
 protected:
  static nn::Graph graph(int64_t classes, int64_t size) {
    if (GetParam() == "ffcv_resnet50") {
      return build_model("ffcv/resnet50", "imagenet", {.num_classes = classes, .image_size = size});
    }
    constexpr std::string_view kAuxiliary = "_aux";  // with its auxiliary classifiers
    const bool heads = GetParam().ends_with(kAuxiliary);
    const std::string name = GetParam().substr(0, GetParam().size() - (heads ? kAuxiliary.size() : 0));
    return build_model("torchvision/" + name, first_dataset_with("torchvision/" + name),
                       {.num_classes = classes, .image_size = size, .auxiliary_heads = heads});
  }
  static int64_t size() {
    const std::map<std::string, int64_t> sizes{
        {"inception_v3", 107}, {"inception_v3_aux", 299}, {"squeezenet1_1", 66}, {"ssd300_vgg16", 300}};
    const auto found = sizes.find(GetParam());
    return found == sizes.end() ? 64 : found->second;
  }
  const Golden golden_ = read_golden("trainyard/models/torchvision/testdata/" + GetParam() + ".txt");
};

TEST_P(Torchvision, ParametersAreTorchvisions) {
  EXPECT_EQ(graph(GetParam() == "ssd300_vgg16" ? 91 : 1000, 0).parameter_count(), golden_.parameters);
  std::map<std::string, std::string> expected, actual;
  for (const auto& [name, gradient] : golden_.gradients) expected[name] = gradient.shape;
  for (const nn::Node& node : graph(kClasses, size()).nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) actual[spec.name] = nn::to_string(spec.shape);
  }
  EXPECT_EQ(actual, expected);
}

TEST_P(Torchvision, LogitsAndGradientsAreTorchvisions) {
  expect_golden(graph(kClasses, size()), golden_);
}

TEST(TorchvisionZoo, EveryModelHasGoldenValues) {
  const std::vector<std::string> golden = golden_models();
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      const std::string& equals = find_model(name, family_name(family)).equals;
      const std::string network = equals.substr(equals.find(' ') + 1);
      if (!equals.starts_with("torchvision ")) continue;
      EXPECT_NE(std::find(golden.begin(), golden.end(), network), golden.end()) << network;
      EXPECT_EQ(find_model("torchvision/" + network, family_name(family)).equals, equals);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Torchvision, ::testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace trainyard::models::torchvision_test
