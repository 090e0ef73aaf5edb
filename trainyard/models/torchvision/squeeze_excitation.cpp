#include "trainyard/models/torchvision/squeeze_excitation.h"

namespace trainyard::models::torchvision {

Value append(nn::GraphBuilder& b, const std::string& prefix, Value x, const SqueezeExcitation& op) {
  const int64_t channels = b.shape(x)[0];
  const auto convolution = [&](const std::string& name, Value in, int64_t out) {
    nn::Convolution conv = centred_convolution(out, 1);
    conv.bias = true;
    if (op.default_bias) conv.bias_init = default_bias(b.shape(in)[0]);
    return b.convolution(prefix + name, in, conv);
  };
  Value scale = convolution(".fc1", b.adaptive_average_pool(prefix + ".avgpool", x, 1), op.squeezed);
  scale = convolution(".fc2", b.activation(prefix + ".activation", scale, op.inner), channels);
  scale = b.flatten(prefix + ".flatten", b.activation(prefix + ".scale_activation", scale, op.gate));
  return b.multiply(prefix + ".multiply", x, scale);
}

}  // namespace trainyard::models::torchvision
