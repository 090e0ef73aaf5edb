// torchvision's SSD300 on VGG-16: Liu et al., "SSD: single shot multibox detector", 2016. The output is [D, 4 +
// classes], a row for each of 8,732 default boxes at 300 x 300 pixels, pixel by pixel: what its regression head and its
// classification head predict. Class 0 is the background; its published weights have 91 classes, COCO's ids.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::ssd300_vgg16 {
namespace {

// A convolution whose weights start within torch's xavier_uniform_, and its bias at zero.
nn::Convolution xavier(nn::Convolution op, int64_t in_channels) {
  const auto area = static_cast<double>(op.kernel.height * op.kernel.width);
  op.bias = true;
  op.weight_init = nn::Initializer::uniform(std::sqrt(6 / (area * static_cast<double>(in_channels + op.out_channels))));
  return op;
}

Value append(nn::GraphBuilder& b, const std::string& name, Value x, const nn::Convolution& op) {
  return b.activation(name + ".relu", b.convolution(name, x, op));
}

// Adds VGG's convolutions of one stage as the modules place, place + 2, ... of a Sequential.
Value append_stage(nn::GraphBuilder& b, const std::string& prefix, int place, int count, Value x, int64_t channels) {
  for (int i = 0; i < count; ++i, place += 2) {
    nn::Convolution op = centred_convolution(channels, 3);
    op.bias = true;
    x = append(b, fmt::format("{}{}", prefix, place), x, op);
  }
  return x;
}

// Adds the layers before the first map of features, 38 x 38 pixels: the third pooling keeps the odd row.
Value append_features(nn::GraphBuilder& b, Value x) {
  const std::string prefix = "backbone.features.";
  constexpr std::array<int, 4> kConvolutions{2, 2, 3, 3};
  int place = 0;
  for (size_t stage = 0; stage < kConvolutions.size(); ++stage) {
    x = append_stage(b, prefix, place, kConvolutions[stage], x, std::min<int64_t>(int64_t{64} << stage, 512));
    place += 2 * kConvolutions[stage];
    if (stage + 1 == kConvolutions.size()) break;
    x = b.max_pool(fmt::format("{}{}", prefix, place++), x, {.kernel = 2, .stride = 2, .ceil_mode = stage == 2});
  }
  return x;
}

// Adds the fifth stage, and VGG's first linear layers as convolutions, the first with holes.
Value append_linear_stage(nn::GraphBuilder& b, Value x) {
  x = append_stage(b, "backbone.extra.0.", 1, 3, b.max_pool("backbone.extra.0.0", x, {.kernel = 2, .stride = 2}), 512);
  x = b.max_pool("backbone.extra.0.7.0", x, {.kernel = 3, .stride = 1, .padding = nn::Padding::all(1)});
  const nn::Convolution holes{.out_channels = 1024, .kernel = 3, .padding = nn::Padding::all(6), .dilation = 6};
  x = append(b, "backbone.extra.0.7.1", x, xavier(holes, 512));
  return append(b, "backbone.extra.0.7.3", x, xavier({.out_channels = 1024, .kernel = 1}, 1024));
}

nn::Graph build(const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "ssd300_vgg16"});
  Value x = append_features(b, b.input());
  std::vector<Value> maps{b.l2_norm("backbone.scale_weight", x, {})};
  x = append_linear_stage(b, x);
  maps.push_back(x);
  for (int i = 1; i <= 4; ++i) {
    const std::string prefix = fmt::format("backbone.extra.{}.", i);
    const int64_t narrow = i == 1 ? 256 : 128;
    x = append(b, prefix + "0", x, xavier({.out_channels = narrow, .kernel = 1}, b.shape(x)[0]));
    const bool halves = i <= 2;
    x = append(b, prefix + "2", x,
               xavier({.out_channels = 2 * narrow,
                       .kernel = 3,
                       .stride = halves ? 2 : 1,
                       .padding = nn::Padding::all(halves ? 1 : 0)},
                      narrow));
    maps.push_back(x);
  }
  constexpr std::array<int64_t, 6> kBoxes{4, 6, 6, 6, 4, 4};  // at each pixel of a map
  std::vector<Value> predictions;
  for (size_t i = 0; i < maps.size(); ++i) {
    const auto head = [&](const char* name, int64_t columns) {
      const nn::Convolution op = xavier(centred_convolution(kBoxes[i] * columns, 3), b.shape(maps[i])[0]);
      predictions.push_back(b.convolution(fmt::format("head.{}_head.module_list.{}", name, i), maps[i], op));
    };
    head("regression", 4);
    head("classification", options.num_classes);
  }
  return b.build(b.box_rows("boxes", predictions,
                            {.coordinates = 4, .classes = options.num_classes, .order = nn::BoxRows::Order::kByPixel}));
}

// The recipe of torchvision's references for it: 0.002 for 8 times 4 images, 120 epochs.
const ModelRegistration kSsd300(
    {.name = "ssd300_vgg16",
     .family = DatasetFamily::kCoco,
     .task = Task::kDetection,
     .equals = "torchvision ssd300_vgg16",
     .image_size = 300,
     .default_batch_size = 4,
     .schedule = {.learning_rate = 0.002, .batch_size = 32, .boundary_epochs = {80, 110}, .factors = {1, 0.1, 0.01}},
     .build = build});

}  // namespace
}  // namespace trainyard::models::torchvision::ssd300_vgg16
