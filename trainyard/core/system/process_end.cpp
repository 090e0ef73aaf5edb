#include "trainyard/core/system/process_end.h"

#include <atomic>

namespace trainyard::core {
namespace {

std::atomic<void (*)(int)> installed_end = nullptr;

}  // namespace

void install_process_end(void (*end)(int exit_code)) {
  installed_end = end;
}

void end_process(int exit_code) {
  if (const auto end = installed_end.load()) end(exit_code);
}

}  // namespace trainyard::core
