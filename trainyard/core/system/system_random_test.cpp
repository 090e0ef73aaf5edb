#include "trainyard/core/system/system_random.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace trainyard::core::system_random_test {
namespace {

// By chance, one run in 40,000 would see two equal ones.
TEST(SystemRandom, NoNumberIsThatBeforeIt) {
  uint32_t before = system_random();
  for (int i = 0; i < 100'000; ++i) {
    const uint32_t number = system_random();
    ASSERT_NE(number, before) << i;
    before = number;
  }
}

}  // namespace
}  // namespace trainyard::core::system_random_test
