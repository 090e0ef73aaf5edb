// Places in a process's part of the shared memory: which ranges are free. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace trainyard::parallel {

class SharedArena {
 public:
  // Places are in [begin, end), which are multiples of kLarge.
  SharedArena(size_t begin, size_t end);

  static constexpr size_t kPage = 4096, kLarge = size_t{2} << 20;
  // Returns how much a place of this size takes: whole pages, and whole huge pages from kLarge on.
  static size_t rounded(size_t bytes);

  // Returns the offset of a free place of rounded(bytes), at a multiple of kPage, or of kLarge from that size on;
  // nothing when there is none.
  std::optional<size_t> take(size_t bytes);
  // Returns a place to the free ones.
  void give_back(size_t offset, size_t bytes);

 private:
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // sizes by offset; neighbours are joined
};

}  // namespace trainyard::parallel
