// The name of this machine.
#pragma once

#include <string>

namespace trainyard::core {

// Returns the name as `hostname` prints it, with a domain or without one; "" when the system gives none.
[[nodiscard]] std::string host_name();

}  // namespace trainyard::core
