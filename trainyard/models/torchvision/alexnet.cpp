// torchvision's AlexNet: one column, no local response norm. Krizhevsky, "One weird trick for parallelizing
// convolutional neural networks", 2014.

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::alexnet {
namespace {

nn::Graph build(const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  const auto convolution = [&b](int place, Value x, nn::Convolution op) {
    x = b.convolution(fmt::format("features.{}", place), x, with_default_start(op, b.shape(x)[0]));
    return b.activation(fmt::format("features.{}", place + 1), x);
  };
  const nn::Pool pool{.kernel = 3, .stride = 2};
  Value x = convolution(0, b.input(), {.out_channels = 64, .kernel = 11, .stride = 4, .padding = nn::Padding::all(2)});
  x = convolution(3, b.max_pool("features.2", x, pool), centred_convolution(192, 5));
  x = convolution(6, b.max_pool("features.5", x, pool), centred_convolution(384, 3));
  x = convolution(8, x, centred_convolution(256, 3));
  x = convolution(10, x, centred_convolution(256, 3));
  x = b.dropout("classifier.0", append_pool_to(b, b.max_pool("features.12", x, pool), 6));
  x = b.activation("classifier.2", append_linear(b, "classifier.1", x, 4096));
  x = b.dropout("classifier.3", x);
  x = b.activation("classifier.5", append_linear(b, "classifier.4", x, 4096));
  return b.build(append_linear(b, "classifier.6", x, options.num_classes));
}

const ModelRegistration kAlexnet(model("alexnet", build, kRateWithoutNorm));

}  // namespace
}  // namespace trainyard::models::torchvision::alexnet
