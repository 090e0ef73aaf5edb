#include "trainyard/optim/step/segment_parts.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>

namespace trainyard::optim {

std::vector<SegmentPart> cut_segments(const std::vector<nn::Segment>& segments, int64_t part_elements) {
  std::vector<SegmentPart> parts;
  for (size_t s = 0; s < segments.size(); ++s) {
    const nn::Segment& segment = segments[s];
    for (int64_t done = 0; done < segment.count; done += part_elements) {
      parts.push_back({.begin = segment.offset + done,
                       .count = static_cast<int32_t>(std::min(part_elements, segment.count - done)),
                       .decays = segment.spec.decay ? 1 : 0,
                       .segment = static_cast<int32_t>(s)});
    }
  }
  return parts;
}

SegmentPartTable segment_part_table(const std::vector<nn::Segment>& segments, at::Device device) {
  const std::vector<SegmentPart> parts = cut_segments(segments);
  const auto bytes = static_cast<int64_t>(parts.size() * sizeof(SegmentPart));
  const at::Tensor host = at::empty({bytes}, at::kByte);
  if (bytes > 0) std::memcpy(host.mutable_data_ptr(), parts.data(), static_cast<size_t>(bytes));
  return {.bytes = host.to(device), .count = static_cast<int>(parts.size())};
}

}  // namespace trainyard::optim
