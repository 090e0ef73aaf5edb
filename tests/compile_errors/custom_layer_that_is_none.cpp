// error: static assertion failed: custom_layer<Layer>\(\) makes a class that derives publicly from nn::CustomLayer
#include <span>
#include <vector>

#include "trainyard/nn/graph/custom_layer.h"

namespace custom_layer_that_is_none {

namespace nn = trainyard::nn;

#ifdef MISTAKE
struct Square {
  at::Tensor forward(std::span<const at::Tensor> inputs) { return inputs[0].square(); }
};
#else
struct Square : nn::CustomLayer {
  nn::Shape output_shape(const std::vector<nn::Shape>& inputs) const override { return inputs[0]; }
  at::Tensor forward(std::span<const at::Tensor> inputs) override { return inputs[0].square(); }
};
#endif

nn::Foreign square() {
  return nn::custom_layer<Square>("Square");
}

}  // namespace custom_layer_that_is_none
