// Small wide networks that reach 94 % and 96 % on CIFAR-10 in few epochs: airbench94_muon and airbench96 (Jordan, "94%
// on CIFAR-10 in 3.29 seconds on a single GPU", 2024). A 2x2 convolution, whose weight --whiten_images makes a
// whitening of patches and freezes, then three groups of 3x3 convolutions that each halve the image, a 3x3 maximum, and
// a linear layer without bias whose logits are divided by a constant. Batch norms have no scale. Convolutions begin as
// the identity in their first filters. Names are those of the original state dicts.

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/core.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models::airbench {
namespace {

using Value = nn::GraphBuilder::Value;
constexpr auto kGelu = nn::Activation::Function::kGelu;

struct Form {
  std::string name{};
  std::array<int64_t, 3> channels{};  // of the groups
  bool residual = false;              // a third convolution in each group, and a sum around the last two
  double norm_decay = 0.9;
  // "whiten" of "whiten.weight"; the groups' names follow a prefix, from `first_group` on.
  std::string whiten{}, group_prefix{}, head{};
  int first_group = 1;
  double divisor = 0;  // of the logits; 0: the number of features
  nn::Initializer whiten_bias{}, head_weight{};
};

nn::Convolution convolution(int64_t channels) {
  return {.out_channels = channels,
          .kernel = 3,
          .padding = nn::Padding::all(1),
          .weight_init = nn::Initializer::he_uniform_identity()};
}

Value group(nn::GraphBuilder& b, const std::string& name, Value x, int64_t channels, bool residual) {
  x = b.convolution(name + ".conv1", x, convolution(channels));
  x = b.max_pool(name + ".pool", x, {.kernel = 2, .stride = 2});
  x = b.activation(name + ".activ1", b.batch_norm(name + ".norm1", x), kGelu);
  const Value past = x;
  x = b.batch_norm(name + ".norm2", b.convolution(name + ".conv2", x, convolution(channels)));
  if (residual) {
    x = b.activation(name + ".activ2", x, kGelu);
    x = b.batch_norm(name + ".norm3", b.convolution(name + ".conv3", x, convolution(channels)));
    return b.activation(name + ".activ3", b.add(name + ".add", {x, past}), kGelu);
  }
  return b.activation(name + ".activ2", x, kGelu);
}

// Returns x / divisor. A local response norm of one channel without its squares is a division that all executors and
// ONNX have.
Value divide(nn::GraphBuilder& b, Value x, double divisor) {
  return b.local_response_norm("scale", x, {.radius = 0, .bias = divisor, .alpha = 0, .beta = 1});
}

nn::Graph build_network(const Form& form, const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(),
                      .name = form.name,
                      .batch_norm = {.epsilon = 1e-12, .decay = form.norm_decay, .scale = false}});
  constexpr int64_t kPatch = 3 * 2 * 2;  // numbers; two filters, of opposite signs, for each principal component
  Value x = b.convolution(form.whiten, b.input(),
                          {.out_channels = 2 * kPatch,
                           .kernel = 2,
                           .bias = true,
                           .weight_init = nn::Initializer::he_uniform(),
                           .bias_init = form.whiten_bias});
  x = b.activation("gelu", x, kGelu);
  for (size_t i = 0; i < form.channels.size(); ++i) {
    const std::string name = fmt::format("{}{}", form.group_prefix, form.first_group + static_cast<int>(i));
    x = group(b, name, x, form.channels[i], form.residual);
  }
  x = b.max_pool("pool", x, {.kernel = 3, .stride = 3});
  const nn::Shape& pooled = b.shape(x);
  const auto features = static_cast<double>(pooled[0] * pooled[1] * pooled[2]);
  // Dividing the features of the last layer, which is linear, divides the logits.
  x = b.flatten("flatten", divide(b, x, form.divisor == 0 ? features : form.divisor));
  return b.build(
      b.linear(form.head, x, {.out_features = options.num_classes, .bias = false, .weight_init = form.head_weight}));
}

// airbench94_muon.py. Its head begins with numbers of deviation 1.
Form airbench94() {
  return {.name = "airbench94",
          .channels = {64, 256, 256},
          .norm_decay = 0.6,
          .whiten = "whiten",
          .group_prefix = "layers.",
          .head = "head",
          .whiten_bias = nn::Initializer::uniform(1 / std::sqrt(12.0)),
          .head_weight = nn::Initializer::uniform(std::sqrt(3.0))};
}

// airbench96.py, a torch.nn.Sequential: its names are numbers.
Form airbench96() {
  return {.name = "airbench96",
          .channels = {128, 384, 512},
          .residual = true,
          .whiten = "0",
          .group_prefix = "",
          .head = "7",
          .first_group = 2,
          .divisor = 9,
          .head_weight = nn::Initializer::he_uniform()};
}

ModelInfo model(const Form& form, const std::string& script, int64_t batch_size) {
  ModelInfo info{.name = form.name,
                 .family = DatasetFamily::kCifar10,
                 .equals = "airbench " + script,
                 .image_size = 32,
                 .default_batch_size = batch_size,
                 .schedule = {.learning_rate = 0.1},
                 .build = [form](const ModelOptions& options) { return build_network(form, options); }};
  // The scales of batch norms in the original's files are ones, which it never trains.
  for (int i = 0; i < 3; ++i) {
    for (int norm = 1; norm <= (form.residual ? 3 : 2); ++norm) {
      info.auxiliary.push_back(fmt::format("{}{}.norm{}.weight", form.group_prefix, form.first_group + i, norm));
    }
  }
  return info;
}

const ModelRegistration kAirbench94(model(airbench94(), "airbench94_muon", 2000));
const ModelRegistration kAirbench96(model(airbench96(), "airbench96", 1024));

}  // namespace
}  // namespace trainyard::models::airbench
