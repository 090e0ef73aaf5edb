#include "trainyard/core/system/system_random.h"

#include <cerrno>
#include <cstring>

#include <fmt/core.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {

uint32_t system_random() {
  uint32_t bits = 0;
  if (::getentropy(&bits, sizeof(bits)) != 0) {
    throw Error(ErrorCode::kInternal, fmt::format("the system gives no random numbers: {}", std::strerror(errno)));
  }
  return bits;
}

}  // namespace trainyard::core
