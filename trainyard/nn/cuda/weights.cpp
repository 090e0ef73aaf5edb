#include "trainyard/nn/cuda/weights.h"

#include <cstring>

#include <ATen/ops/empty.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"

namespace trainyard::nn::cuda {

int Weights::add(ParameterId id) {
  ids_.push_back(id);
  return static_cast<int>(ids_.size()) - 1;
}

void Weights::allocate() {
  std::vector<WeightSource> sources;
  for (const ParameterId id : ids_) {
    const Segment& segment = set_.segment(id);
    const Shape& shape = segment.spec.shape;
    const bool bias = shape.size() == 1;
    const int64_t outer = bias ? 1 : shape[0], inner = bias ? shape[0] : shape[1];
    sources.push_back({.source = segment.offset,
                       .outer = outer,
                       .inner = inner,
                       .pixels = outer * inner == 0 ? 0 : segment.count / (outer * inner)});
  }
  const WeightPlan plan = plan_weights(sources);
  copies_ = at::empty({plan.total}, set_.values().options().dtype(dtype_));
  count_ = static_cast<int>(plan.copies.size());
  const auto bytes = static_cast<int64_t>(plan.copies.size() * sizeof(WeightCopy));
  const at::Tensor host = at::empty({bytes}, at::kByte);
  std::memcpy(host.data_ptr(), plan.copies.data(), static_cast<size_t>(bytes));
  table_ = host.to(set_.values().device());
  for (size_t i = 0; i < ids_.size(); ++i) {
    const Shape& shape = set_.segment(ids_[i]).spec.shape;
    const int64_t count = set_.segment(ids_[i]).count;
    const at::Tensor flat = copies_.narrow(0, plan.destinations[i], count);
    views_.push_back(shape.size() == 4 ? flat.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2})
                                       : flat.view(shape));
  }
}

void Weights::refresh(bool captured) {
  if (views_.empty() && !ids_.empty()) allocate();
  const uint64_t version = set_.version();
  if (ids_.empty() || (!captured && fresh_ && version == version_)) return;
  copy_weights(set_.values().const_data_ptr<float>(), static_cast<const WeightCopy*>(table_.const_data_ptr()), count_,
               element_of(dtype_), copies_.data_ptr(), core::cuda::current_stream());
  version_ = version;
  fresh_ = !captured;
}

}  // namespace trainyard::nn::cuda
