// The common layers of keras.applications' networks. Nodes with parameters have the names of Keras' layers, and the
// same initialization.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "trainyard/models/registry/reference_recipe.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::models::keras {

using Value = nn::GraphBuilder::Value;

// Returns Keras' default initializer, Glorot's uniform distribution (Glorot, Bengio, "Understanding the difficulty of
// training deep feedforward neural networks", 2010).
inline nn::Initializer glorot(double fan_in, double fan_out) {
  return nn::Initializer::uniform(std::sqrt(6 / (fan_in + fan_out)));
}

// Returns a Conv2D with as many pixels of padding before as after, which at a stride of 1 is "same". For odd kernels.
inline nn::Convolution convolution(int64_t in_channels, int64_t out_channels, nn::Size2d kernel,
                                   nn::Size2d stride = 1) {
  const auto window = static_cast<double>(kernel.height * kernel.width);
  return {.out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = nn::Padding::symmetric((kernel.height - 1) / 2, (kernel.width - 1) / 2),
          .weight_init = glorot(window * static_cast<double>(in_channels), window * static_cast<double>(out_channels))};
}

// Adds a Dense layer.
inline Value append_dense(nn::GraphBuilder& b, const std::string& name, Value x, int64_t units) {
  const auto in = static_cast<double>(b.shape(x)[0]);
  return b.linear(name, x, {.out_features = units, .weight_init = glorot(in, static_cast<double>(units))});
}

// Returns a BatchNormalization. Keras 3 keeps the biased variance of the batches.
inline nn::BatchNorm batch_norm(double epsilon, double momentum, bool scale = true) {
  return {.epsilon = epsilon, .decay = momentum, .scale = scale, .biased_running_variance = true};
}

// Returns a builder with the BatchNormalization of the ResNets and DenseNets.
inline nn::GraphBuilder builder(const ModelOptions& options, const std::string& name) {
  return nn::GraphBuilder({.image = options.image_shape(), .name = name, .batch_norm = batch_norm(1.001e-5, 0.99)});
}

// Returns keras.applications' `application` as the model "keras/<name>". Keras has no training recipe, so the model
// gets that of torchvision's references.
inline ModelInfo model(const std::string& name, const std::string& application,
                       std::function<nn::Graph(const ModelOptions&, const std::string&)> build,
                       int64_t image_size = 224, double learning_rate = 0.1) {
  return reference_model("keras/" + name, "Keras " + application, std::move(build), learning_rate, image_size);
}

}  // namespace trainyard::models::keras
