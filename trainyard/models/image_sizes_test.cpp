// Networks on images that are not of their own size, and not square: torchvision's and Keras' numbers, by
// tools/golden/image_sizes.py.

#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/testing/golden_network.h"

namespace trainyard::models::image_sizes_test {
namespace {

struct SizeGolden {
  std::string model;
  nn::Size2d size;
  std::vector<double> logits;
};

std::ostream& operator<<(std::ostream& out, const SizeGolden& golden) {
  return out << golden.model << " " << image_size_text(golden.size);
}

std::vector<SizeGolden> size_goldens() {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/trainyard/models/testdata/image_sizes.txt");
  std::vector<SizeGolden> goldens;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    SizeGolden& golden = goldens.emplace_back();
    std::string size;
    words >> golden.model >> size;
    golden.size = parse_image_size(size);
    for (double logit = 0; words >> logit;) golden.logits.push_back(logit);
  }
  return goldens;
}

class OtherImageSizes : public ::testing::TestWithParam<SizeGolden> {
 protected:
  static void SetUpTestSuite() {
    core::install_cpu_allocator();
    at::set_num_threads(1);
  }
};

double largest_error(nn::Executor& executor, const at::Tensor& images, const at::Tensor& expected) {
  const at::Tensor logits = executor.forward(images, {}).flatten().to(at::kDouble);
  EXPECT_EQ(logits.sizes(), expected.sizes());
  return ((logits - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST_P(OtherImageSizes, LogitsAreThoseOfTheOriginal) {
  const SizeGolden& golden = GetParam();
  const nn::Graph graph = build_model(golden.model, "imagenet", {.num_classes = kClasses, .image_size = golden.size});
  nn::ParameterSet exact({.dtype = at::kDouble}), plain;
  const auto reference =
      nn::make_executor("reference", graph, {.dtype = at::kDouble, .mode = nn::Mode::kInference, .parameters = &exact});
  const auto cpu =
      nn::make_executor("cpu", graph, {.mode = nn::Mode::kInference, .frozen = true, .parameters = &plain});
  exact.allocate();
  plain.allocate();
  for (const nn::Segment& segment : exact.segments()) {
    set_start(exact.value(*exact.find(segment.spec.name)), segment.spec.name);
  }
  for (int i = 0; i < static_cast<int>(exact.buffer_count()); ++i) {
    set_start(exact.buffer(i), exact.buffer_spec(i).name);
    plain.buffer(i).copy_(exact.buffer(i));
  }
  plain.values().copy_(exact.values());
  plain.values_changed();
  const at::Tensor images = drawn("images", {kBatch, 3, golden.size.height, golden.size.width});
  const at::Tensor expected = at::tensor(golden.logits, at::kDouble);
  EXPECT_LE(largest_error(*reference, images, expected), 1e-6);
  EXPECT_LE(largest_error(*cpu, images.to(at::kFloat), expected), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, OtherImageSizes, ::testing::ValuesIn(size_goldens()), [](const auto& tested) {
  std::string name = tested.param.model + image_size_text(tested.param.size);
  std::erase_if(name, [](char c) { return c == '/' || c == '.'; });
  return name;
});

}  // namespace
}  // namespace trainyard::models::image_sizes_test
