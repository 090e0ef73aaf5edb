#include "trainyard/models/torchvision/layers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace trainyard::models::torchvision {

std::string name_of(const std::string& name) {
  constexpr std::array<std::string_view, 8> kTaken{"alexnet",   "googlenet", "resnet50", "resnet101",
                                                   "resnet152", "vgg11",     "vgg16",    "vgg19"};
  return std::find(kTaken.begin(), kTaken.end(), name) != kTaken.end() ? "torchvision/" + name : name;
}

ModelInfo model(const std::string& name, std::function<nn::Graph(const ModelOptions&, const std::string&)> build,
                double learning_rate, int64_t image_size) {
  const std::string here = name_of(name);
  return {.name = here,
          .family = DatasetFamily::kImagenet,
          .equals = "torchvision " + name,
          .image_size = image_size,
          .schedule = {.learning_rate = learning_rate,
                       .batch_size = 256,
                       .boundary_epochs = {30, 60},
                       .factors = {1, 0.1, 0.01}},
          .build = [here, build = std::move(build)](const ModelOptions& options) { return build(options, here); }};
}

}  // namespace trainyard::models::torchvision
