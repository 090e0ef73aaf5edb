#include "trainyard/models/torchvision/layers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trainyard/models/registry/reference_recipe.h"

namespace trainyard::models::torchvision {

std::string name_of(const std::string& name) {
  constexpr std::array<std::string_view, 8> kTaken{"alexnet",   "googlenet", "resnet50", "resnet101",
                                                   "resnet152", "vgg11",     "vgg16",    "vgg19"};
  return std::find(kTaken.begin(), kTaken.end(), name) != kTaken.end() ? "torchvision/" + name : name;
}

ModelInfo model(const std::string& name, std::function<nn::Graph(const ModelOptions&, const std::string&)> build,
                double learning_rate, int64_t image_size) {
  return reference_model(name_of(name), "torchvision " + name, std::move(build), learning_rate, image_size);
}

}  // namespace trainyard::models::torchvision
