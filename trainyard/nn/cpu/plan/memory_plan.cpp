#include "trainyard/nn/cpu/plan/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace trainyard::nn::cpu {
namespace {

constexpr int64_t kAlignment = 64;
// Maps have many powers of two in their sizes. A gap behind each large one keeps those that a kernel reads and writes
// at the same time from lying at the same places of pages, which share the sets of the nearest cache.
constexpr int64_t kLarge = int64_t{1} << 20, kGap = 4096 + 4 * kAlignment;

int64_t with_gap(int64_t bytes) {
  return bytes + (bytes >= kLarge ? kGap : 0);
}

int64_t in_whole_lines(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

BufferId MemoryPlan::add(int64_t bytes) {
  buffers_.push_back({.bytes = in_whole_lines(bytes)});
  return {static_cast<int>(buffers_.size()) - 1};
}

void MemoryPlan::enlarge(BufferId id, int64_t bytes) {
  Buffer& buffer = buffers_[static_cast<size_t>(id.index)];
  buffer.bytes = std::max(buffer.bytes, in_whole_lines(bytes));
}

void MemoryPlan::use(BufferId id, int moment) {
  Buffer& buffer = buffers_[static_cast<size_t>(id.index)];
  buffer.first = buffer.first < 0 ? moment : std::min(buffer.first, moment);
  buffer.last = std::max(buffer.last, moment);
}

// Returns the offset of the tightest gap between the buffers that live at the same time, or the end of the last of
// them. `placed` is sorted by offset.
int64_t MemoryPlan::gap_for(const Buffer& buffer, const std::vector<const Buffer*>& placed) const {
  int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Buffer* other : placed) {
    if (other->last < buffer.first || other->first > buffer.last) continue;
    const int64_t gap = other->offset - end;
    if (gap >= with_gap(buffer.bytes) && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, other->offset + with_gap(other->bytes));
  }
  return best >= 0 ? best : end;
}

void MemoryPlan::place() {
  std::vector<size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers_[a].bytes > buffers_[b].bytes; });
  std::vector<const Buffer*> placed;
  for (size_t index : order) {
    Buffer& buffer = buffers_[index];
    if (buffer.bytes == 0 || buffer.first < 0) continue;
    buffer.offset = gap_for(buffer, placed);
    total_ = std::max(total_, buffer.offset + buffer.bytes);
    const auto place = std::upper_bound(placed.begin(), placed.end(), buffer.offset,
                                        [](int64_t offset, const Buffer* other) { return offset < other->offset; });
    placed.insert(place, &buffer);
  }
}

}  // namespace trainyard::nn::cpu
