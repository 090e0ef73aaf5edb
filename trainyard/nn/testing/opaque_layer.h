// A custom layer of which nothing is known but the shape of its result: for tests of what refuses custom layers.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/nn/graph/custom_layer.h"

namespace trainyard::nn {

class OpaqueLayer : public CustomLayer {
 public:
  explicit OpaqueLayer(Shape shape) : shape_(std::move(shape)) {}
  Shape output_shape(const std::vector<Shape>&) const override { return shape_; }
  at::Tensor forward(std::span<const at::Tensor>) override { return {}; }

 private:
  Shape shape_;
};

inline Foreign opaque_layer(const std::string& description, Shape shape) {
  return custom_layer<OpaqueLayer>(description, std::move(shape));
}

}  // namespace trainyard::nn
