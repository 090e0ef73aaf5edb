#include "trainyard/core/threads/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/threads/thread.h"

namespace trainyard::core {

void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  const size_t workers = std::min(count, static_cast<size_t>(std::max(1, threads)));
  if (workers <= 1) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  size_t error_at = count;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (i < error_at) error = std::current_exception();
        error_at = std::min(error_at, i);
        next = count;  // pieces before this one have all been begun
      }
    }
  };
  {
    std::vector<Thread> started;
    started.reserve(workers);
    for (size_t w = 0; w < workers; ++w) started.emplace_back(ThreadOptions{.name = fmt::format("piece-{}", w)}, run);
    for (Thread& thread : started) thread.join();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trainyard::core
