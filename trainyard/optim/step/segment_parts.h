// Divides a parameter set's segments into parts of about the same size, one for each block of a GPU. So one launch
// covers all tensors of a model, whatever their sizes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/step/segment_part.h"

namespace trainyard::optim {

inline constexpr int64_t kPartElements = 16384;  // 64 KiB of floats: some hundred parts for a small model

std::vector<SegmentPart> cut_segments(const std::vector<nn::Segment>& segments, int64_t part_elements = kPartElements);

// The same parts in the memory of a device, as bytes, for kernels.
struct SegmentPartTable {
  at::Tensor bytes;
  int count = 0;
  const SegmentPart* data() const { return static_cast<const SegmentPart*>(bytes.const_data_ptr()); }
};
SegmentPartTable segment_part_table(const std::vector<nn::Segment>& segments, at::Device device);

}  // namespace trainyard::optim
