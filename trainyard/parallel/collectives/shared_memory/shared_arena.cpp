#include "trainyard/parallel/collectives/shared_memory/shared_arena.h"

#include <iterator>

namespace trainyard::parallel {
namespace {

size_t up_to_multiple(size_t value, size_t of) {
  return (value + of - 1) / of * of;
}

size_t alignment_of(size_t bytes) {
  return bytes >= SharedArena::kLarge ? SharedArena::kLarge : SharedArena::kPage;
}

}  // namespace

SharedArena::SharedArena(size_t begin, size_t end) {
  if (end > begin) free_[begin] = end - begin;
}

size_t SharedArena::rounded(size_t bytes) {
  return up_to_multiple(bytes, alignment_of(bytes));
}

std::optional<size_t> SharedArena::take(size_t bytes) {
  const size_t wanted = rounded(bytes);
  const std::lock_guard lock(mutex_);
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    const auto [begin, size] = *place;
    const size_t offset = up_to_multiple(begin, alignment_of(bytes)), end = begin + size;
    if (offset >= end || end - offset < wanted) continue;
    free_.erase(place);
    if (offset > begin) free_[begin] = offset - begin;
    if (offset + wanted < end) free_[offset + wanted] = end - offset - wanted;
    return offset;
  }
  return std::nullopt;
}

void SharedArena::give_back(size_t offset, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto place = free_.emplace(offset, rounded(bytes)).first;
  if (const auto next = std::next(place); next != free_.end() && place->first + place->second == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place == free_.begin()) return;
  if (const auto before = std::prev(place); before->first + before->second == place->first) {
    before->second += place->second;
    free_.erase(place);
  }
}

}  // namespace trainyard::parallel
