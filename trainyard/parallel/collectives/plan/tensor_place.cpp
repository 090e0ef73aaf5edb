#include "trainyard/parallel/collectives/plan/tensor_place.h"

#include <algorithm>
#include <array>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

namespace trainyard::parallel {
namespace {

constexpr size_t kMostDimensions = 4;
enum Field : size_t { kAddress, kType, kDimensions, kShape };

}  // namespace

std::vector<TensorPlace> gather_places(core::Communicator& communicator, const at::Tensor& tensor, int64_t address) {
  std::array<int64_t, kShape + kMostDimensions> own{};
  const at::IntArrayRef shape = tensor.sizes();
  own[kAddress] = shape.size() > kMostDimensions ? -1 : address;
  own[kType] = static_cast<int64_t>(tensor.scalar_type());
  own[kDimensions] = static_cast<int64_t>(shape.size());
  std::copy_n(shape.begin(), std::min(shape.size(), kMostDimensions), own.begin() + kShape);
  std::vector<TensorPlace> places;
  for (const at::Tensor& each : communicator.all_gather(at::tensor(at::ArrayRef<int64_t>(own)))) {
    const auto* const fields = each.const_data_ptr<int64_t>();
    const bool fits = fields[kAddress] >= 0 && fields[kType] == own[kType] && fields[kDimensions] == own[kDimensions];
    // All ranks have the same fields before them, so all find that some differ.
    if (!fits) return {};
    places.push_back({.address = fields[kAddress], .shape = {fields + kShape, fields + kShape + fields[kDimensions]}});
  }
  return places;
}

std::vector<at::Tensor> views_within_process(core::Communicator& communicator, const at::Tensor& tensor) {
  const bool usable = tensor.is_cpu() && tensor.is_contiguous();
  std::vector<at::Tensor> views;
  for (const TensorPlace& place :
       gather_places(communicator, tensor, usable ? reinterpret_cast<int64_t>(tensor.mutable_data_ptr()) : -1)) {
    views.push_back(
        at::from_blob(reinterpret_cast<void*>(place.address), place.shape, at::TensorOptions(tensor.scalar_type())));
  }
  return views;
}

}  // namespace trainyard::parallel
