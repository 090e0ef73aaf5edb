// error: static assertion failed: custom_layer<Layer>\(description, arguments...\) takes the arguments of a public
// constructor of Layer
#include <span>
#include <vector>

#include "trainyard/nn/graph/custom_layer.h"

namespace custom_layer_with_another_constructor {

namespace nn = trainyard::nn;

class Scale : public nn::CustomLayer {
 public:
  explicit Scale(int64_t channels) : weight_(parameter({"weight", {channels, 1, 1}})) {}
  nn::Shape output_shape(const std::vector<nn::Shape>& inputs) const override { return inputs[0]; }
  at::Tensor forward(std::span<const at::Tensor> inputs) override { return inputs[0].mul(weight_); }

 private:
  at::Tensor weight_;
};

nn::Foreign scale() {
#ifdef MISTAKE
  return nn::custom_layer<Scale>("Scale");
#else
  return nn::custom_layer<Scale>("Scale", 3);
#endif
}

}  // namespace custom_layer_with_another_constructor
