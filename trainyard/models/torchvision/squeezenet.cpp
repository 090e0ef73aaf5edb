// torchvision's SqueezeNet 1.1. Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016.

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::squeezenet {
namespace {

nn::Convolution convolution(int64_t out_channels, int64_t kernel) {
  nn::Convolution op = centred_convolution(out_channels, kernel);
  op.bias = true;
  op.weight_init = {nn::Initializer::Kind::kHeUniform, 6.0};  // kaiming_uniform_ with a = 0
  return op;
}

Value append(nn::GraphBuilder& b, const std::string& name, Value x, const nn::Convolution& op) {
  return b.activation(name + "_activation", b.convolution(name, x, op));
}

Value fire(nn::GraphBuilder& b, int place, Value x, int64_t squeezed, int64_t expanded) {
  const std::string prefix = fmt::format("features.{}.", place);
  x = append(b, prefix + "squeeze", x, convolution(squeezed, 1));
  const Value one = append(b, prefix + "expand1x1", x, convolution(expanded, 1));
  return b.concat(prefix + "concat", {one, append(b, prefix + "expand3x3", x, convolution(expanded, 3))});
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  const nn::Pool halving{.kernel = 3, .stride = 2, .ceil_mode = true};
  nn::Convolution first = convolution(64, 3);
  first.stride = 2;
  first.padding = nn::Padding::valid();
  Value x = b.activation("features.1", b.convolution("features.0", b.input(), first));
  x = fire(b, 3, b.max_pool("features.2", x, halving), 16, 64);
  x = fire(b, 4, x, 16, 64);
  x = fire(b, 6, b.max_pool("features.5", x, halving), 32, 128);
  x = fire(b, 7, x, 32, 128);
  x = fire(b, 9, b.max_pool("features.8", x, halving), 48, 192);
  x = fire(b, 10, x, 48, 192);
  x = fire(b, 11, x, 64, 256);
  x = b.dropout("classifier.0", fire(b, 12, x, 64, 256));
  nn::Convolution last = convolution(options.num_classes, 1);
  last.weight_init = nn::Initializer::normal(0.01);
  x = b.activation("classifier.2", b.convolution("classifier.1", x, last));
  return b.build(b.global_average_pool("classifier.3", x));
}

const ModelRegistration kSqueezenet(model("squeezenet1_1", build, kRateWithoutNorm));

}  // namespace
}  // namespace trainyard::models::torchvision::squeezenet
