// The kernels' copies of a parameter set's weights, in their dtype and layout, made anew by one launch whenever the
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

  // Before the first refresh(). Returns the index for at(). A bias is a weight [1, out, 1].
  int add(ParameterId id);
  // The copies as of now. The set is allocated. `captured`: they are not made but recorded, for each replay to make
  // them, and whoever runs next makes them, too.
  void refresh(bool captured);
  // A weight [out, in, height, width] in channels_last, [out, in] or [out]; the same tensor every time.
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
