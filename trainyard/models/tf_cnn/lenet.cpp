// LeNet-5 as tf_cnn_benchmarks has it: ReLU, max pooling, and 512 hidden units.
// LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::lenet {
namespace {

nn::Graph build_lenet(const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "lenet"});
  const auto stage = [&b](const std::string& number, nn::GraphBuilder::Value x, int64_t channels) {
    nn::Convolution convolution = benchmark_convolution(channels, 5);
    convolution.bias = true;
    x = b.activation("relu" + number, b.convolution("conv" + number, x, convolution));
    return b.max_pool("pool" + number, x, {.kernel = 2, .stride = 2});
  };
  auto x = b.flatten("flatten", stage("2", stage("1", b.input(), 32), 64));
  x = append_linear(b, "fc1", x, 512, true);
  return b.build(append_linear(b, "fc2", x, options.num_classes, false));
}

const ModelRegistration kLenet(benchmark_model("lenet", DatasetFamily::kImagenet, 28, build_lenet));

}  // namespace
}  // namespace trainyard::models::tf_cnn::lenet
