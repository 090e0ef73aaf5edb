#include "trainyard/models/tf_cnn/chain.h"

namespace trainyard::models::tf_cnn {

Chain::Chain(const ModelOptions& options, const std::string& name, Options chain)
    : builder_({.image = options.image_shape(), .name = name, .batch_norm = benchmark_norm()}),
      chain_(chain),
      classes_(options.num_classes),
      top_(builder_.input()) {}

Value Chain::append(const Layer& layer, Value x) {
  if (const auto* pool = std::get_if<MaxPool>(&layer)) {
    return builder_.max_pool(numbered("mpool"), x,
                             {.kernel = pool->kernel, .stride = pool->stride, .padding = pool->padding});
  }
  if (const auto* pool = std::get_if<AveragePool>(&layer)) {
    return builder_.average_pool(numbered("apool"), x,
                                 {.kernel = pool->kernel, .stride = pool->stride, .padding = pool->padding});
  }
  const Conv& conv = std::get<Conv>(layer);
  nn::Convolution op = benchmark_convolution(conv.channels, conv.kernel, conv.stride);
  op.padding = conv.padding;
  op.bias = !chain_.batch_norm;
  op.bias_init = nn::Initializer::constant(conv.bias);
  if (conv.deviation) op.weight_init = nn::Initializer::truncated_normal(*conv.deviation);
  const std::string name = numbered("conv");
  x = builder_.convolution(name, x, op);
  if (chain_.batch_norm) x = builder_.batch_norm(name + ".bn", x);
  return builder_.activation(name + ".relu", x);
}

void Chain::add(const Layer& layer) {
  top_ = append(layer, top_);
}

void Chain::module(const std::vector<std::vector<Layer>>& columns) {
  std::vector<Value> ends, before, column;
  for (const std::vector<Layer>& layers : columns) {
    column.clear();
    for (const Layer& layer : layers) {
      const Value x = column.empty() ? top_ : column.back();
      column.push_back(std::holds_alternative<Share>(layer) ? before.at(column.size()) : append(layer, x));
    }
    ends.push_back(column.back());
    before = column;
  }
  top_ = builder_.concat(numbered("module"), ends);
}

void Chain::local_response_norm(const nn::LocalResponseNorm& op) {
  top_ = builder_.local_response_norm(numbered("lrn"), top_, op);
}
void Chain::spatial_mean() {
  top_ = builder_.global_average_pool("spatial_mean", top_);
}
void Chain::flatten() {
  top_ = builder_.flatten("flatten", top_);
}
void Chain::dropout(double keep) {
  top_ = builder_.dropout(numbered("dropout"), top_, 1 - keep);
}

void Chain::affine(int64_t units, std::optional<double> deviation, double bias) {
  nn::Linear op = benchmark_linear(units, builder_.shape(top_)[0], true);
  op.bias_init = nn::Initializer::constant(bias);
  if (deviation) op.weight_init = nn::Initializer::truncated_normal(*deviation);
  const std::string name = numbered("affine");
  top_ = builder_.activation(name + ".relu", builder_.linear(name, top_, op));
}

nn::Graph Chain::classify() {
  return builder_.build(append_linear(builder_, numbered("affine"), top_, classes_, false));
}

}  // namespace trainyard::models::tf_cnn
