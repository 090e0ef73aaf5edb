#include "trainyard/core/memory/numa_memory.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"

namespace trainyard::core {
namespace {

constexpr size_t kBits = 8 * sizeof(unsigned long);

// A set of nodes as the kernel takes it.
std::vector<unsigned long> mask_of(int node) {
  const auto bit = static_cast<size_t>(node);
  std::vector<unsigned long> mask(bit / kBits + 1, 0);
  mask.back() = 1UL << (bit % kBits);
  return mask;
}

// The kernel looks at one bit less than it is told of.
size_t bits_of(const std::vector<unsigned long>& mask) {
  return mask.size() * kBits + 1;
}

void warn_once(int node) {
  static std::atomic<bool> warned = false;
  const int error = errno;
  if (warned.exchange(true)) return;
  log::warning("the memory of NUMA node {} cannot be asked for ({}): it stays where the kernel puts it", node,
               std::strerror(error));
}

}  // namespace

void prefer_memory_of_node(int node) {
  const std::vector<unsigned long> mask = mask_of(node);
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), bits_of(mask)) != 0) warn_once(node);
}

void move_memory_to_node(void* block, size_t bytes, int node) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  if (begin >= end) return;
  const std::vector<unsigned long> mask = mask_of(node);
  if (syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, mask.data(), bits_of(mask), MPOL_MF_MOVE) != 0) {
    warn_once(node);
  }
}

}  // namespace trainyard::core
