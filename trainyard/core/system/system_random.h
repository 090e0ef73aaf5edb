#pragma once

#include <cstdint>

namespace trainyard::core {

// Returns 32 random bits of the operating system, which other users cannot guess: for tokens, names and seeds that no
// other run shall have. Any thread. std::random_device is RDSEED in libstdc++, which gives a Zen 5 the same number
// twice in a row up to once in three thousand calls. Throws kInternal where the system has no random numbers.
uint32_t system_random();

}  // namespace trainyard::core
