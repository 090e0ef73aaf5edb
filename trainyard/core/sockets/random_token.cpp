#include "trainyard/core/sockets/random_token.h"

#include <random>

#include <fmt/format.h>

namespace trainyard::core {

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random());
  return token;
}

}  // namespace trainyard::core
