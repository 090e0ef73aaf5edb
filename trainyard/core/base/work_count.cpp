#include "trainyard/core/base/work_count.h"

#include <atomic>

namespace trainyard::core {
namespace {

std::atomic<uint64_t> turns = 0;

}  // namespace

void count_work() {
  turns.fetch_add(1, std::memory_order_relaxed);
}

uint64_t work_count() {
  return turns.load(std::memory_order_relaxed);
}

}  // namespace trainyard::core
