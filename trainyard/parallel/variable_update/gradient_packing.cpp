#include "trainyard/parallel/variable_update/gradient_packing.h"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

// Returns each gradient, without the gap after it.
std::vector<GradientSlice> slices_of_gradients(const nn::ParameterSet& set) {
  std::vector<GradientSlice> slices;
  slices.reserve(set.segments().size());
  for (const nn::Segment& segment : set.segments())
    slices.push_back({segment.offset, set.gradient(segment.id).numel()});
  return slices;
}

// Returns equal parts of all gradients. There are not more parts than elements.
std::vector<GradientSlice> equal_parts(int64_t elements, int64_t parts) {
  parts = std::clamp<int64_t>(parts, 1, std::max<int64_t>(elements, 1));
  std::vector<GradientSlice> slices;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t begin = p * (elements / parts);
    slices.push_back({begin, p + 1 == parts ? elements - begin : elements / parts});
  }
  return slices;
}

std::vector<GradientSlice> join_small(const std::vector<GradientSlice>& slices, int64_t most_elements, size_t most) {
  std::vector<size_t> small;
  for (size_t s = 0; s < slices.size(); ++s) {
    if (slices[s].count <= most_elements) small.push_back(s);
  }
  std::vector<GradientSlice> joined;
  size_t next = 0;
  for (const auto& [first, last] : extract_ranges(small, most).ranges) {
    joined.insert(joined.end(), slices.begin() + static_cast<std::ptrdiff_t>(next),
                  slices.begin() + static_cast<std::ptrdiff_t>(first));
    joined.push_back({slices[first].begin, slices[last].begin + slices[last].count - slices[first].begin});
    next = last + 1;
  }
  joined.insert(joined.end(), slices.begin() + static_cast<std::ptrdiff_t>(next), slices.end());
  return joined;
}

}  // namespace

void GradientPacking::validate() const {
  const auto require = [&](const char* what, int64_t value, int64_t most) {
    if (value >= 0 && value <= most) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "gradients cannot be packed so",
                       .where = what,
                       .expected = most == kMostParts ? fmt::format("0 to {}", most) : "0 or more",
                       .actual = std::to_string(value)});
  };
  require("parts", parts, kMostParts);
  require("small_bytes", small_bytes, std::numeric_limits<int64_t>::max());
  require("small_group", small_group, std::numeric_limits<int64_t>::max());
}

IndexRanges extract_ranges(const std::vector<size_t>& indices, size_t most) {
  IndexRanges result;
  for (size_t begin = 0; begin < indices.size();) {
    size_t end = begin + 1;
    while (end < indices.size() && end - begin < most && indices[end] == indices[end - 1] + 1) ++end;
    if (end - begin > 1) {
      result.ranges.emplace_back(indices[begin], indices[end - 1]);
    } else {
      result.singles.push_back(indices[begin]);
    }
    begin = end;
  }
  return result;
}

std::vector<GradientSlice> pack_gradients(const nn::ParameterSet& set, const GradientPacking& packing) {
  std::vector<GradientSlice> slices =
      packing.parts > 0 ? equal_parts(set.total(), packing.parts) : slices_of_gradients(set);
  if (!packing.joins_small()) return slices;
  const auto width = static_cast<int64_t>(c10::elementSize(set.dtype()));
  return join_small(slices, packing.small_bytes / width, static_cast<size_t>(packing.small_group));
}

}  // namespace trainyard::parallel
