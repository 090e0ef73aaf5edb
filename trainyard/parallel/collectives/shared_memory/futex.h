// Words of shared memory that count upwards, and on which threads of several processes wait.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trainyard::parallel {

// One thread increments the count; any thread of any process waits for it. Counts wrap around.
class SharedCount {
 public:
  uint32_t value() const { return count_.load(std::memory_order_acquire); }
  // Returns whether the count has come to `target`, from at most 2^31 - 1 below.
  bool reached(uint32_t target) const { return static_cast<int32_t>(value() - target) >= 0; }

  // What this thread has written before is seen by those who see the new count.
  void increment() {
    // Both this and the two operations of sleep() are sequentially consistent: either this thread sees the sleeper, or
    // the sleeper sees the new count.
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(FUTEX_WAKE, INT_MAX, nullptr);
  }

  // Sleeps until the count changes or the time is over, unless it has come to `target`. May return earlier.
  void sleep(uint32_t target, std::chrono::nanoseconds time) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = count_.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) < 0) {
      const timespec longest{.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000),
                             .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
      futex(FUTEX_WAIT, seen, &longest);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  void futex(int operation, uint32_t value, const timespec* time) {
    static_assert(sizeof(count_) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
    ::syscall(SYS_futex, &count_, operation, value, time, nullptr, 0);
  }

  std::atomic<uint32_t> count_ = 0;
  std::atomic<uint32_t> sleepers_ = 0;  // a rank that is killed in its sleep stays counted, which costs a system call
};

}  // namespace trainyard::parallel
