// torchvision's GoogLeNet: batch norm, and 3x3 convolutions where the paper has 5x5. Its two auxiliary classifiers are
// there where they are asked for (aux_logits=True). Szegedy et al., "Going deeper with convolutions", 2014.

#include <string>
#include <utility>
#include <vector>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::googlenet {
namespace {

Value append(nn::GraphBuilder& b, const std::string& name, Value x, nn::Convolution op) {
  op.weight_init = nn::Initializer::normal(0.01);  // cut at 200 deviations there
  return append_basic_convolution(b, name, x, op);
}

// Channels of an inception module's convolutions: 1x1; before 3x3, and it; before the second 3x3, and it; after
// pooling.
struct Module {
  int64_t one, before_three, three, before_five, five, pooled;
};

Value inception(nn::GraphBuilder& b, const std::string& name, Value x, const Module& m) {
  const Value one = append(b, name + ".branch1", x, centred_convolution(m.one, 1));
  Value three = append(b, name + ".branch2.0", x, centred_convolution(m.before_three, 1));
  three = append(b, name + ".branch2.1", three, centred_convolution(m.three, 3));
  Value five = append(b, name + ".branch3.0", x, centred_convolution(m.before_five, 1));
  five = append(b, name + ".branch3.1", five, centred_convolution(m.five, 3));
  Value pooled = b.max_pool(name + ".branch4.0", x, {.kernel = 3, .padding = nn::Padding::all(1)});
  pooled = append(b, name + ".branch4.1", pooled, centred_convolution(m.pooled, 1));
  return b.concat(name + ".concat", {one, three, five, pooled});
}

// An auxiliary classifier. Its loss counts 0.3, as in the paper.
nn::GraphOutput auxiliary(nn::GraphBuilder& b, const std::string& name, Value x, int64_t classes) {
  const auto linear = [&](const char* layer, Value from, int64_t features) {
    return b.linear(name + layer, from,
                    {.out_features = features,
                     .weight_init = nn::Initializer::normal(0.01),
                     .bias_init = default_bias(b.shape(from)[0])});
  };
  x = append(b, name + ".conv", b.adaptive_average_pool(name + ".avgpool", x, 4), centred_convolution(128, 1));
  x = b.activation(name + ".relu", linear(".fc1", b.flatten(name + ".flatten", x), 1024));
  x = linear(".fc2", b.dropout(name + ".dropout", x, 0.7), classes);
  return {.name = name, .node = x.id, .loss_weight = 0.3};
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = {.epsilon = 1e-3}});
  const nn::Pool halving{.kernel = 3, .stride = 2, .ceil_mode = true};
  Value x = append(b, "conv1", b.input(), centred_convolution(64, 7, 2));
  x = append(b, "conv2", b.max_pool("maxpool1", x, halving), centred_convolution(64, 1));
  x = b.max_pool("maxpool2", append(b, "conv3", x, centred_convolution(192, 3)), halving);
  x = inception(b, "inception3a", x, {64, 96, 128, 16, 32, 32});
  x = inception(b, "inception3b", x, {128, 128, 192, 32, 96, 64});
  x = b.max_pool("maxpool3", x, halving);
  x = inception(b, "inception4a", x, {192, 96, 208, 16, 48, 64});
  std::vector<nn::GraphOutput> others;
  if (options.auxiliary_heads) others.push_back(auxiliary(b, "aux1", x, options.num_classes));
  x = inception(b, "inception4b", x, {160, 112, 224, 24, 64, 64});
  x = inception(b, "inception4c", x, {128, 128, 256, 24, 64, 64});
  x = inception(b, "inception4d", x, {112, 144, 288, 32, 64, 64});
  if (options.auxiliary_heads) others.push_back(auxiliary(b, "aux2", x, options.num_classes));
  x = inception(b, "inception4e", x, {256, 160, 320, 32, 128, 128});
  x = b.max_pool("maxpool4", x, {.kernel = 2, .stride = 2, .ceil_mode = true});
  x = inception(b, "inception5a", x, {256, 160, 320, 32, 128, 128});
  x = inception(b, "inception5b", x, {384, 192, 384, 48, 128, 128});
  x = b.dropout("dropout", b.global_average_pool("avgpool", x), 0.2);
  x = b.linear("fc", x,
               {.out_features = options.num_classes,
                .weight_init = nn::Initializer::normal(0.01),
                .bias_init = default_bias(b.shape(x)[0])});
  return b.build(x, std::move(others));
}

ModelInfo googlenet() {
  ModelInfo info = model("googlenet", build);
  info.auxiliary = {"aux1.", "aux2."};
  return info;
}

const ModelRegistration kGooglenet(googlenet());

}  // namespace
}  // namespace trainyard::models::torchvision::googlenet
