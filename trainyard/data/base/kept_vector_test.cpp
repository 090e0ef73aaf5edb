#include "trainyard/data/base/kept_vector.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace trainyard::data {
namespace {

TEST(KeptVector, GivesTheSameMemoryAgain) {
  const void* first = nullptr;
  {
    KeptVector<uint8_t> pixels(100'000);
    first = pixels.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(KeptVector<uint8_t>(99'999).data(), first);
}

TEST(KeptVector, IsAVector) {
  KeptVector<int> numbers = {1, 2, 3};
  numbers.push_back(4);
  KeptVector<int> others(2, 7);
  numbers.insert(numbers.end(), others.begin(), others.end());
  EXPECT_EQ(numbers, (KeptVector<int>{1, 2, 3, 4, 7, 7}));
}

// Beyond what is kept.
TEST(KeptVector, LargeOnes) {
  KeptVector<uint8_t> pixels(20'000'000);
  pixels.back() = 1;
  pixels.resize(30'000'000);
  EXPECT_EQ(pixels[19'999'999], 1);
}

}  // namespace
}  // namespace trainyard::data
