// Keras' Inception v3: norms without a scale, and pooling that averages over real pixels only. Szegedy, Vanhoucke,
// Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for computer vision", 2015.
//
// Layers are numbered as Keras numbers those without a name: "conv2d", "conv2d_1", "batch_normalization", ...

#include <map>
#include <vector>

#include "trainyard/models/keras/layers.h"

namespace trainyard::models::keras::inception_v3 {
namespace {

constexpr nn::Size2d kRow7{1, 7}, kColumn7{7, 1}, kRow3{1, 3}, kColumn3{3, 1};

class Network {
 public:
  Network(const ModelOptions& options, const std::string& name)
      : b_({.image = options.image_shape(), .name = name, .batch_norm = batch_norm(1e-3, 0.99, /*scale=*/false)}) {}

  Value same(Value x, int64_t channels, nn::Size2d kernel) {
    return append(x, convolution(b_.shape(x)[0], channels, kernel));
  }
  Value valid(Value x, int64_t channels, int64_t kernel, int64_t stride = 1) {
    nn::Convolution op = convolution(b_.shape(x)[0], channels, kernel, stride);
    op.padding = nn::Padding::valid();
    return append(x, op);
  }
  Value halved(Value x) { return b_.max_pool(numbered("max_pooling2d"), x, {.kernel = 3, .stride = 2}); }
  Value pooled(Value x, int64_t channels) {
    const nn::Pool pool{.kernel = 3, .padding = nn::Padding::same()};
    return same(b_.average_pool(numbered("average_pooling2d"), x, pool), channels, 1);
  }
  Value concat(const std::vector<Value>& parts, const std::string& name) { return b_.concat(name, parts); }
  Value concat(const std::vector<Value>& parts) { return b_.concat(numbered("concatenate"), parts); }

  nn::GraphBuilder& builder() { return b_; }

 private:
  Value append(Value x, const nn::Convolution& op) {
    x = b_.convolution(numbered("conv2d"), x, op);
    return b_.activation(numbered("activation"), b_.batch_norm(numbered("batch_normalization"), x));
  }
  std::string numbered(const std::string& kind) {
    const int number = counts_[kind]++;
    return number == 0 ? kind : fmt::format("{}_{}", kind, number);
  }

  nn::GraphBuilder b_;
  std::map<std::string, int> counts_;
};

Value mixed_a(Network& n, const std::string& name, Value x, int64_t pool_channels) {
  const Value one = n.same(x, 64, 1);
  const Value five = n.same(n.same(x, 48, 1), 64, 5);
  const Value twice = n.same(n.same(n.same(x, 64, 1), 96, 3), 96, 3);
  return n.concat({one, five, twice, n.pooled(x, pool_channels)}, name);
}

Value mixed_b(Network& n, const std::string& name, Value x) {
  const Value three = n.valid(x, 384, 3, 2);
  const Value twice = n.valid(n.same(n.same(x, 64, 1), 96, 3), 96, 3, 2);
  return n.concat({three, twice, n.halved(x)}, name);
}

Value mixed_c(Network& n, const std::string& name, Value x, int64_t width) {
  const Value one = n.same(x, 192, 1);
  const Value once = n.same(n.same(n.same(x, width, 1), width, kRow7), 192, kColumn7);
  Value twice = n.same(n.same(x, width, 1), width, kColumn7);
  twice = n.same(n.same(n.same(twice, width, kRow7), width, kColumn7), 192, kRow7);
  return n.concat({one, once, twice, n.pooled(x, 192)}, name);
}

Value mixed_d(Network& n, const std::string& name, Value x) {
  const Value three = n.valid(n.same(x, 192, 1), 320, 3, 2);
  const Value seven = n.valid(n.same(n.same(n.same(x, 192, 1), 192, kRow7), 192, kColumn7), 192, 3, 2);
  return n.concat({three, seven, n.halved(x)}, name);
}

Value mixed_e(Network& n, int number, Value x) {
  const Value one = n.same(x, 320, 1);
  const Value once = n.same(x, 384, 1);
  const Value once_row = n.same(once, 384, kRow3), once_column = n.same(once, 384, kColumn3);
  const Value three = n.concat({once_row, once_column}, fmt::format("mixed9_{}", number));
  const Value twice = n.same(n.same(x, 448, 1), 384, 3);
  const Value twice_row = n.same(twice, 384, kRow3), twice_column = n.same(twice, 384, kColumn3);
  const Value doubled = n.concat({twice_row, twice_column});
  return n.concat({one, three, doubled, n.pooled(x, 192)}, fmt::format("mixed{}", 9 + number));
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  Network n(options, name);
  nn::GraphBuilder& b = n.builder();
  Value x = n.halved(n.same(n.valid(n.valid(b.input(), 32, 3, 2), 32, 3), 64, 3));
  x = n.halved(n.valid(n.valid(x, 80, 1), 192, 3));
  x = mixed_a(n, "mixed0", x, 32);
  x = mixed_a(n, "mixed1", x, 64);
  x = mixed_a(n, "mixed2", x, 64);
  x = mixed_b(n, "mixed3", x);
  x = mixed_c(n, "mixed4", x, 128);
  x = mixed_c(n, "mixed5", x, 160);
  x = mixed_c(n, "mixed6", x, 160);
  x = mixed_c(n, "mixed7", x, 192);
  x = mixed_d(n, "mixed8", x);
  x = mixed_e(n, 0, x);
  x = mixed_e(n, 1, x);
  return b.build(append_dense(b, "predictions", b.global_average_pool("avg_pool", x), options.num_classes));
}

const ModelRegistration kInceptionV3(model("inception_v3", "InceptionV3", build, 299));

}  // namespace
}  // namespace trainyard::models::keras::inception_v3
