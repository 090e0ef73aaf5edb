// One number of a filter that is NaN, in whole models: logits are not finite where the reference's are not.

#include <cctype>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/random/random.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::models::non_finite_test {
namespace {

constexpr int64_t kBatch = 2;

struct Case {
  std::string model;
  int64_t image_size;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& tested) {
  std::string name = tested.param.model;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

at::Tensor noise(int64_t size) {
  at::Tensor tensor = at::empty({kBatch, 3, size, size}, at::kFloat);
  core::RandomStream stream(8, "images");
  auto* const data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = stream.normal();
  return tensor;
}

// Where logits are not finite, as text: a row a sample.
std::string places(const at::Tensor& logits) {
  std::string text;
  const at::Tensor finite = at::isfinite(logits).contiguous();
  for (int64_t i = 0; i < finite.numel(); ++i) {
    text += finite.const_data_ptr<bool>()[i] ? '.' : 'x';
    if ((i + 1) % finite.size(1) == 0) text += ' ';
  }
  return text;
}

// The first, the middle and the last of a model's filters and matrices.
std::vector<std::string> filters_of(const nn::ParameterSet& set) {
  std::vector<std::string> all;
  for (const nn::Segment& segment : set.segments()) {
    if (segment.spec.shape.size() >= 2 && segment.spec.name.ends_with("weight")) all.push_back(segment.spec.name);
  }
  return {all.front(), all[all.size() / 2], all.back()};
}

class NonFiniteZoo : public ::testing::TestWithParam<Case> {};

// As evaluation, as training's forward, and frozen.
TEST_P(NonFiniteZoo, LogitsOfASpoiledFilterAreTheReferences) {
  core::install_cpu_allocator();
  const auto& [model, size] = GetParam();
  const nn::Graph graph = build_model(model, "imagenet", {.num_classes = 10, .image_size = size});
  nn::ParameterSet set;
  nn::GradientSink sink(set);
  const auto make = [&](const std::string& name, at::ScalarType dtype, nn::Mode mode, bool frozen) {
    std::unique_ptr<nn::Executor> made =
        nn::make_executor(name, graph,
                          {.dtype = dtype,
                           .mode = mode,
                           .frozen = frozen,
                           .kernels = {.convolutions = nn::ConvolutionPolicy::kDirect},
                           .parameters = &set,
                           .gradients = mode == nn::Mode::kTraining ? &sink : nullptr});
    if (!set.allocated()) set.allocate();  // the first one declares the parameters, the others bind to them
    return made;
  };
  struct Tested {
    std::string name;
    std::unique_ptr<nn::Executor> executor, reference;
  };
  std::vector<Tested> tested;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto add = [&](const std::string& name, nn::Mode mode, bool frozen) {
      tested.push_back({fmt::format("{} in {}", name, toString(dtype)), make("cpu", dtype, mode, frozen),
                        make("reference", at::kFloat, mode, false)});
    };
    add("training", nn::Mode::kTraining, false);
    add("evaluation", nn::Mode::kInference, false);
    add("frozen", nn::Mode::kInference, true);
  }
  set.initialize(4);
  std::vector<at::Tensor> buffers;
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) buffers.push_back(set.buffer(i).clone());
  const at::Tensor images = noise(size);
  const auto logits = [&](nn::Executor& executor) {
    const at::Tensor result = executor.forward(images, {.seed = 5, .step = 0}).detach();
    for (size_t i = 0; i < buffers.size(); ++i) set.buffer(static_cast<int>(i)).copy_(buffers[i]);
    return places(result);
  };
  for (const std::string& filter : filters_of(set)) {
    const at::Tensor value = set.value(*set.find(filter));
    // In the middle of a window, which lies inside the smallest map.
    const int64_t taps = value[0][0].numel(), place = value.numel() / 2 / taps * taps + taps / 2;
    float& spoiled = value.data_ptr<float>()[place];
    const float kept = std::exchange(spoiled, std::numeric_limits<float>::quiet_NaN());
    set.values_changed();
    for (const Tested& one : tested) {
      const std::string expected = logits(*one.reference);
      EXPECT_NE(expected.find('x'), std::string::npos) << "the spoiled number is not read: " << filter;
      EXPECT_EQ(logits(*one.executor), expected) << one.name << ", " << filter;
    }
    spoiled = kept;
  }
  set.values_changed();
  for (const Tested& one : tested) EXPECT_EQ(logits(*one.executor).find('x'), std::string::npos) << one.name;
}

INSTANTIATE_TEST_SUITE_P(Models, NonFiniteZoo,
                         ::testing::Values(Case{"resnet50_v1.5", 64}, Case{"mobilenet_v2", 64}, Case{"densenet121", 64},
                                           Case{"torchvision/vgg11", 32}, Case{"torchvision/squeezenet1_1", 66},
                                           Case{"torchvision/mobilenet_v3_small", 64}, Case{"vit_b_16", 32}),
                         name_of_case);

}  // namespace
}  // namespace trainyard::models::non_finite_test
