// The defaults of tf_cnn_benchmarks' layer builder, for the models that come from there.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::models {

// Returns the description of a network of tf_cnn_benchmarks that has the same name there. image_size: pixels.
inline ModelInfo benchmark_model(const std::string& name, DatasetFamily family, int64_t image_size,
                                 std::function<nn::Graph(const ModelOptions&)> build) {
  return {.name = name,
          .family = family,
          .equals = "tf_cnn_benchmarks " + name,
          .image_size = image_size,
          .build = std::move(build)};
}

// Returns a convolution that is initialized with TensorFlow's default variance scaling.
inline nn::Convolution benchmark_convolution(int64_t out_channels, nn::Size2d kernel, nn::Size2d stride = 1) {
  return {.out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = nn::Padding::same(),
          .weight_init = nn::Initializer::variance_scaling()};
}

// Returns a convolution with its SAME_RESNET padding: as many pixels before as after, whatever the stride. For odd
// kernels.
inline nn::Convolution resnet_convolution(int64_t out_channels, int64_t kernel, int64_t stride = 1) {
  nn::Convolution convolution = benchmark_convolution(out_channels, kernel, stride);
  convolution.padding = nn::Padding::all((kernel - 1) / 2);
  return convolution;
}

// Returns the batch norm of a network that sets nothing: slow averages and no scale.
inline nn::BatchNorm benchmark_norm() {
  return {.epsilon = 1e-3, .decay = 0.999, .scale = false};
}

// Returns a linear layer that is initialized with a truncated normal of deviation sqrt(2 / F) before a ReLU, and sqrt(1
// / F) otherwise.
inline nn::Linear benchmark_linear(int64_t out_features, int64_t in_features, bool relu) {
  return {.out_features = out_features,
          .weight_init = nn::Initializer::truncated_normal(std::sqrt((relu ? 2.0 : 1.0) / double(in_features)))};
}

// Adds a linear layer on the vector x with those defaults, and its ReLU, named "<name>.relu", if it has one.
inline nn::GraphBuilder::Value append_linear(nn::GraphBuilder& b, const std::string& name, nn::GraphBuilder::Value x,
                                             int64_t out_features, bool relu) {
  x = b.linear(name, x, benchmark_linear(out_features, b.shape(x)[0], relu));
  return relu ? b.activation(name + ".relu", x) : x;
}

}  // namespace trainyard::models
