// Drawn values for tests: images, and parameters and statistics that all differ.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

// Fills a tensor with values uniform within `spread` of `mean`, drawn by `name`.
inline void fill_uniform(const at::Tensor& tensor, const std::string& name, double mean, double spread) {
  core::RandomStream stream(7, name);
  at::Tensor noise = at::empty(tensor.sizes(), at::kFloat);
  for (int64_t i = 0; i < noise.numel(); ++i) noise.mutable_data_ptr<float>()[i] = stream.uniform() * 2 - 1;
  tensor.copy_(noise * spread + mean);
}

// Fills parameters so that activations keep their size, scales of norms and variances around 1; other values with
// another salt.
inline void fill_parameters(ParameterSet& set, const std::string& salt = "") {
  for (const Segment& segment : set.segments()) {
    const bool factor = segment.spec.init.kind == Initializer::Kind::kConstant && segment.spec.init.value != 0;
    const double fan_in = static_cast<double>(segment.count) / static_cast<double>(segment.spec.shape[0]);
    fill_uniform(set.value(segment.id), salt + segment.spec.name, factor ? 1 : 0,
                 segment.spec.shape.size() > 1 ? std::sqrt(3 / fan_in) : 0.5);
  }
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    const std::string& buffer = set.buffer_spec(i).name;
    fill_uniform(set.buffer(i), salt + buffer, buffer.ends_with("running_var") ? 1 : 0, 0.5);
  }
  set.values_changed();
}

// Returns a float tensor of normal values, the same at each call.
inline at::Tensor normal_images(const std::vector<int64_t>& shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  core::RandomStream stream(8, "images");
  auto* const data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = stream.normal();
  return tensor;
}

}  // namespace trainyard::nn
