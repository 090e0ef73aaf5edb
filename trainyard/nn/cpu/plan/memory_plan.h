// Plans the offset of each buffer of a plan in its block of memory (the arena). A buffer is live from the first to the
// last moment at which a step uses it; buffers that are never live at the same time may share memory. Offsets are found
// greedily, the largest buffers first, each in the tightest free range, with a small gap after large ones: Pisarchyk
// and Lee, "Efficient memory management for deep neural net inference", 2020, section 4.3 (greedy by size).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard::nn::cpu {

struct BufferId {
  int index = -1;
  bool valid() const { return index >= 0; }
  bool operator==(const BufferId&) const = default;
};

class MemoryPlan {
 public:
  // Adds a buffer, whose offset will be aligned to 64 bytes. With `bytes` 0 it is outside of the arena.
  BufferId add(int64_t bytes);
  // Gives a buffer at least so many bytes.
  void enlarge(BufferId buffer, int64_t bytes);
  // Says that the buffer is read or written at `moment`. Moments may come in any order.
  void use(BufferId buffer, int moment);

  // Places all buffers; afterwards nothing may be added.
  void place();

  int size() const { return static_cast<int>(buffers_.size()); }
  int64_t bytes(BufferId buffer) const { return buffers_[static_cast<size_t>(buffer.index)].bytes; }
  int64_t offset(BufferId buffer) const { return buffers_[static_cast<size_t>(buffer.index)].offset; }
  int64_t total_bytes() const { return total_; }

 private:
  struct Buffer {
    int64_t bytes = 0, offset = 0;
    int first = -1, last = -1;
  };
  int64_t gap_for(const Buffer& buffer, const std::vector<const Buffer*>& placed) const;

  std::vector<Buffer> buffers_;
  int64_t total_ = 0;
};

}  // namespace trainyard::nn::cpu
