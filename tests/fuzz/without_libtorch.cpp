// What needs LibTorch, and is called in sources that fuzz targets are made of, but by no target: a file of detections
// is read by threads, and inline functions of LibTorch's headers throw.
#include <cstdlib>
#include <functional>
#include <string>

#include <c10/util/Exception.h>

#include "trainyard/core/threads/thread.h"

namespace c10::detail {

void torchCheckFail(const char*, const char*, uint32_t, const char*) {
  std::abort();
}

void torchCheckFail(const char*, const char*, uint32_t, const std::string&) {
  std::abort();
}

}  // namespace c10::detail

namespace trainyard::core {

Thread::Thread(ThreadOptions, std::function<void()>) {
  std::abort();
}

Thread::~Thread() = default;

void Thread::join() {
  std::abort();
}

int available_cores() {
  std::abort();
}

}  // namespace trainyard::core
