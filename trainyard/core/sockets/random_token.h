#pragma once

#include <string>

namespace trainyard::core {

// Returns 128 bits of the system's random numbers as 32 hexadecimal digits, which other users cannot guess: for a
// connection that shows it, or a name.
std::string random_token();

}  // namespace trainyard::core
