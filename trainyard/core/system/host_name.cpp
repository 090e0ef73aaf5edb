#include "trainyard/core/system/host_name.h"

#include <array>

#include <unistd.h>

namespace trainyard::core {

std::string host_name() {
  std::array<char, 256> name{};  // Linux allows 64 bytes, POSIX 255; the last zero stays where a name is cut
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace trainyard::core
