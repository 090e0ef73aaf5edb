// torchvision's Inception v3. Its auxiliary classifier is there where it is asked for (aux_logits=True). Szegedy,
// Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for computer vision", 2015.

#include <vector>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::inception {
namespace {

Value append(nn::GraphBuilder& b, const std::string& name, Value x, nn::Convolution op) {
  op.weight_init = nn::Initializer::normal(0.1);  // cut at 20 deviations there
  return append_basic_convolution(b, name, x, op);
}

nn::Convolution same(int64_t out_channels, nn::Size2d kernel) {
  return centred_convolution(out_channels, kernel);
}
nn::Convolution valid(int64_t out_channels, nn::Size2d kernel, int64_t stride = 1) {
  return {.out_channels = out_channels, .kernel = kernel, .stride = stride};
}

// One mixed block: its branches' layers by torchvision's names below `prefix`.
class Mixed {
 public:
  Mixed(nn::GraphBuilder& b, std::string name, Value x) : b_(b), name_(std::move(name)), x_(x) {}

  // A layer of branch `layer`; without `from` on the block's input.
  Value layer(const std::string& layer, const nn::Convolution& op) { return this->layer(layer, op, x_); }
  Value layer(const std::string& layer, const nn::Convolution& op, Value from) {
    return append(b_, name_ + ".branch" + layer, from, op);
  }
  Value pooled(int64_t channels) {
    const nn::Pool pool{.kernel = 3, .padding = nn::Padding::all(1), .count_padding = true};
    return layer("_pool", same(channels, 1), b_.average_pool(name_ + ".pool", x_, pool));
  }
  Value max_pooled() { return b_.max_pool(name_ + ".pool", x_, {.kernel = 3, .stride = 2}); }
  Value concat(const std::string& name, const std::vector<Value>& parts) {
    return b_.concat(name_ + "." + name, parts);
  }

 private:
  nn::GraphBuilder& b_;
  std::string name_;
  Value x_;
};

Value mixed_a(nn::GraphBuilder& b, const std::string& name, Value x, int64_t pool_channels) {
  Mixed m(b, name, x);
  const Value one = m.layer("1x1", same(64, 1));
  const Value five = m.layer("5x5_2", same(64, 5), m.layer("5x5_1", same(48, 1)));
  Value twice = m.layer("3x3dbl_2", same(96, 3), m.layer("3x3dbl_1", same(64, 1)));
  twice = m.layer("3x3dbl_3", same(96, 3), twice);
  return m.concat("concat", {one, five, twice, m.pooled(pool_channels)});
}

Value mixed_b(nn::GraphBuilder& b, const std::string& name, Value x) {
  Mixed m(b, name, x);
  const Value three = m.layer("3x3", valid(384, 3, 2));
  Value twice = m.layer("3x3dbl_2", same(96, 3), m.layer("3x3dbl_1", same(64, 1)));
  twice = m.layer("3x3dbl_3", valid(96, 3, 2), twice);
  return m.concat("concat", {three, twice, m.max_pooled()});
}

Value mixed_c(nn::GraphBuilder& b, const std::string& name, Value x, int64_t width) {
  Mixed m(b, name, x);
  const nn::Size2d row(1, 7), column(7, 1);
  const Value one = m.layer("1x1", same(192, 1));
  Value once = m.layer("7x7_2", same(width, row), m.layer("7x7_1", same(width, 1)));
  once = m.layer("7x7_3", same(192, column), once);
  Value twice = m.layer("7x7dbl_2", same(width, column), m.layer("7x7dbl_1", same(width, 1)));
  twice = m.layer("7x7dbl_4", same(width, column), m.layer("7x7dbl_3", same(width, row), twice));
  twice = m.layer("7x7dbl_5", same(192, row), twice);
  return m.concat("concat", {one, once, twice, m.pooled(192)});
}

Value mixed_d(nn::GraphBuilder& b, const std::string& name, Value x) {
  Mixed m(b, name, x);
  const Value three = m.layer("3x3_2", valid(320, 3, 2), m.layer("3x3_1", same(192, 1)));
  Value seven = m.layer("7x7x3_2", same(192, {1, 7}), m.layer("7x7x3_1", same(192, 1)));
  seven = m.layer("7x7x3_4", valid(192, 3, 2), m.layer("7x7x3_3", same(192, {7, 1}), seven));
  return m.concat("concat", {three, seven, m.max_pooled()});
}

Value mixed_e(nn::GraphBuilder& b, const std::string& name, Value x) {
  Mixed m(b, name, x);
  const nn::Size2d row(1, 3), column(3, 1);
  const Value one = m.layer("1x1", same(320, 1));
  Value once = m.layer("3x3_1", same(384, 1));
  const Value once_row = m.layer("3x3_2a", same(384, row), once),
              once_column = m.layer("3x3_2b", same(384, column), once);
  once = m.concat("concat1", {once_row, once_column});
  Value twice = m.layer("3x3dbl_2", same(384, 3), m.layer("3x3dbl_1", same(448, 1)));
  const Value twice_row = m.layer("3x3dbl_3a", same(384, row), twice);
  const Value twice_column = m.layer("3x3dbl_3b", same(384, column), twice);
  twice = m.concat("concat2", {twice_row, twice_column});
  return m.concat("concat", {one, once, twice, m.pooled(192)});
}

// The auxiliary classifier, for images of 299 pixels or more. Its loss counts 0.4, as where the network comes from.
nn::GraphOutput auxiliary(nn::GraphBuilder& b, Value x, int64_t classes) {
  x = b.average_pool("AuxLogits.avgpool1", x, {.kernel = 5, .stride = 3, .count_padding = true});
  x = append(b, "AuxLogits.conv0", x, valid(128, 1));
  x = append(b, "AuxLogits.conv1", x, valid(768, 5));
  x = b.global_average_pool("AuxLogits.avgpool2", x);
  x = b.linear("AuxLogits.fc", x,
               {.out_features = classes,
                .weight_init = nn::Initializer::normal(0.001),
                .bias_init = default_bias(b.shape(x)[0])});
  return {.name = "AuxLogits", .node = x.id, .loss_weight = 0.4};
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = {.epsilon = 1e-3}});
  const nn::Pool pool{.kernel = 3, .stride = 2};
  Value x = append(b, "Conv2d_1a_3x3", b.input(), valid(32, 3, 2));
  x = append(b, "Conv2d_2a_3x3", x, valid(32, 3));
  x = b.max_pool("maxpool1", append(b, "Conv2d_2b_3x3", x, same(64, 3)), pool);
  x = append(b, "Conv2d_3b_1x1", x, valid(80, 1));
  x = b.max_pool("maxpool2", append(b, "Conv2d_4a_3x3", x, valid(192, 3)), pool);
  x = mixed_a(b, "Mixed_5b", x, 32);
  x = mixed_a(b, "Mixed_5c", x, 64);
  x = mixed_a(b, "Mixed_5d", x, 64);
  x = mixed_b(b, "Mixed_6a", x);
  x = mixed_c(b, "Mixed_6b", x, 128);
  x = mixed_c(b, "Mixed_6c", x, 160);
  x = mixed_c(b, "Mixed_6d", x, 160);
  x = mixed_c(b, "Mixed_6e", x, 192);
  std::vector<nn::GraphOutput> others;
  if (options.auxiliary_heads) others.push_back(auxiliary(b, x, options.num_classes));
  x = mixed_d(b, "Mixed_7a", x);
  x = mixed_e(b, "Mixed_7b", x);
  x = mixed_e(b, "Mixed_7c", x);
  x = b.dropout("dropout", b.global_average_pool("avgpool", x));
  x = b.linear("fc", x,
               {.out_features = options.num_classes,
                .weight_init = nn::Initializer::normal(0.1),
                .bias_init = default_bias(b.shape(x)[0])});
  return b.build(x, std::move(others));
}

ModelInfo inception_v3() {
  ModelInfo info = model("inception_v3", build, kRate, 299);
  info.auxiliary = {"AuxLogits."};
  return info;
}

const ModelRegistration kInception(inception_v3());

}  // namespace
}  // namespace trainyard::models::torchvision::inception
