// Builds networks as tf_cnn_benchmarks' ConvNetBuilder does: layer after layer, numbered by kind ("conv0", "mpool0",
// "affine0"), and modules whose columns are concatenated. The defaults are its own: variance scaling, biases of 0,
// ReLU; batch norm with decay 0.999 and epsilon 0.001, without a scale.
//
//   Chain chain(options, "tiny", {.batch_norm = true});
//   chain.add(Conv{.channels = 32, .kernel = 3});
//   chain.add(MaxPool{3});
//   chain.module({{Conv{64, 1}}, {Conv{48, 1}, Conv{64, 5}}});
//   return chain.classify();
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn {

using Value = nn::GraphBuilder::Value;

inline constexpr nn::Padding kValid = nn::Padding::valid(), kSame = nn::Padding::same();

struct Conv {
  int64_t channels = 0;
  nn::Size2d kernel;
  nn::Size2d stride = 1;
  nn::Padding padding = kSame;
  std::optional<double> deviation;  // deviation of a truncated normal initializer; unset: variance scaling
  double bias = 0;                  // initial bias, when no batch norm follows
};
struct MaxPool {
  int64_t kernel = 2, stride = 2;
  nn::Padding padding = kValid;
};
struct AveragePool {
  int64_t kernel = 2, stride = 2;
  nn::Padding padding = kValid;
};
// In a module, refers to the layer at this position of the previous column.
struct Share {};

using Layer = std::variant<Conv, MaxPool, AveragePool, Share>;

class Chain {
 public:
  struct Options {
    bool batch_norm = false;  // after each convolution, instead of its bias
  };
  Chain(const ModelOptions& options, const std::string& name, Options chain);
  Chain(const ModelOptions& options, const std::string& name) : Chain(options, name, Options()) {}

  void add(const Layer& layer);
  // Adds columns that all begin with the last layer's output, and concatenates them.
  void module(const std::vector<std::vector<Layer>>& columns);
  void local_response_norm(const nn::LocalResponseNorm& op);
  void spatial_mean();
  void flatten();
  // Adds a linear layer with a ReLU. An unset `deviation` is sqrt(2 / inputs).
  void affine(int64_t units, std::optional<double> deviation = std::nullopt, double bias = 0);
  void dropout(double keep = 0.5);
  // Adds the last linear layer, with the classes of the options, and returns the graph.
  nn::Graph classify();

 private:
  std::string numbered(const std::string& kind) { return kind + std::to_string(counts_[kind]++); }
  Value append(const Layer& layer, Value x);

  nn::GraphBuilder builder_;
  Options chain_;
  int64_t classes_;
  std::map<std::string, int> counts_;
  Value top_;
};

}  // namespace trainyard::models::tf_cnn
