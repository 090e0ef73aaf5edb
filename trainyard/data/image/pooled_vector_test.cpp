#include <cstdint>

#include <gtest/gtest.h>

#include "trainyard/data/image/image.h"

namespace trainyard::data::pooled_vector_test {
namespace {

TEST(PooledVector, GivesTheSameMemoryAgain) {
  const void* first = nullptr;
  {
    PooledVector<uint8_t> pixels(100'000);
    first = pixels.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(PooledVector<uint8_t>(99'999).data(), first);
}

TEST(PooledVector, IsAVector) {
  PooledVector<int> numbers = {1, 2, 3};
  numbers.push_back(4);
  PooledVector<int> others(2, 7);
  numbers.insert(numbers.end(), others.begin(), others.end());
  EXPECT_EQ(numbers, (PooledVector<int>{1, 2, 3, 4, 7, 7}));
}

// Beyond what is kept.
TEST(PooledVector, LargeOnes) {
  PooledVector<uint8_t> pixels(20'000'000);
  pixels.back() = 1;
  pixels.resize(30'000'000);
  EXPECT_EQ(pixels[19'999'999], 1);
}

}  // namespace
}  // namespace trainyard::data::pooled_vector_test
