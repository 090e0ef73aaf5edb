// tf_cnn_benchmarks' networks, one of each family, against the same in TensorFlow: tools/golden/tf_models.py.

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

namespace trainyard::models::networks_test {
namespace {

const char* const kFolder = "trainyard/models/tf_cnn/testdata/";

// "alexnet.cifar10" of the file "alexnet.cifar10.txt".
std::vector<std::string> networks() {
  std::vector<std::string> names;
  for (const std::string& file : core::local_file_system().list(core::join_path(TRAINYARD_SOURCE_DIR, kFolder))) {
    names.push_back(file.substr(0, file.size() - 4));
  }
  return names;
}

class BenchmarkNetwork : public GoldenNetworkTest {};

TEST_P(BenchmarkNetwork, LogitsAndGradientsAreTensorFlows) {
  const Golden golden = read_golden(kFolder + GetParam() + ".txt");
  const size_t dot = GetParam().rfind('.');
  const nn::Graph graph = build_model(GetParam().substr(0, dot), GetParam().substr(dot + 1),
                                      {.num_classes = kClasses, .image_size = golden.size});
  std::map<std::string, std::string> expected, actual;
  for (const auto& [name, gradient] : golden.gradients) expected[name] = gradient.shape;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) actual[spec.name] = nn::to_string(spec.shape);
  }
  ASSERT_EQ(actual, expected);
  expect_golden(graph, golden);
}

INSTANTIATE_TEST_SUITE_P(Models, BenchmarkNetwork, ::testing::ValuesIn(networks()), [](const auto& network) {
  std::string name = network.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace trainyard::models::networks_test
