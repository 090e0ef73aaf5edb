#include "trainyard/core/sockets/random_token.h"

#include <fmt/format.h>

#include "trainyard/core/system/system_random.h"

namespace trainyard::core {

std::string random_token() {
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", system_random());
  return token;
}

}  // namespace trainyard::core
