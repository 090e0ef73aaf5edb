// The kernels' copies of a parameter set's weights, in their dtype and layout, refreshed by one launch whenever the
// values have changed.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/kernels/weight_copies.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn::cuda {

class Weights {
 public:
  Weights(const ParameterSet& set, at::ScalarType dtype) : set_(set), dtype_(dtype) {}

  // Adds a weight, before the first refresh(). Returns the index for at(). A bias is a weight [1, out, 1].
  int add(ParameterId id);
  // Updates the copies. The set must be allocated. With `captured` the update is only recorded, so that each replay
  // makes it, and the next call makes it again.
  void refresh(bool captured);
  // Returns a weight [out, in, height, width] in channels_last, [out, in] or [out]; always the same tensor.
  const at::Tensor& at(int index) const { return views_[static_cast<size_t>(index)]; }
  int64_t bytes() const { return copies_.defined() ? static_cast<int64_t>(copies_.nbytes()) : 0; }

 private:
  void allocate();

  const ParameterSet& set_;
  at::ScalarType dtype_;
  std::vector<ParameterId> ids_;
  at::Tensor copies_, table_;  // [total] of dtype_; the WeightCopy of each block, as bytes
  int count_ = 0;              // blocks
  std::vector<at::Tensor> views_;
  uint64_t version_ = 0;
  bool fresh_ = false;
};

}  // namespace trainyard::nn::cuda
