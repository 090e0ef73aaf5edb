#include "tests/cuda_emulation/emulated_grid.h"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace cuda_emulation {
namespace {

// How many threads a block has, added up in a tree.
float count_threads(unsigned threads, bool barriers) {
  float result = 0;
  launch({1, threads, threads * sizeof(float)}, [&] {
    auto* const sums = static_cast<float*>(dynamic_shared());
    sums[threadIdx.x] = 1;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (barriers) __syncthreads();
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) result = sums[0];
  });
  return result;
}

TEST(EmulatedGrid, BarriersHoldAndTheirAbsenceShows) {
  for (const bool barriers : {true, false}) {
    // One of them goes backwards.
    const float first = count_threads(256, barriers), second = count_threads(256, barriers);
    EXPECT_EQ(first == 256 && second == 256, barriers) << first << " " << second;
  }
}

TEST(EmulatedGrid, EachThreadOfEachBlockRunsOnce) {
  std::vector<int> visits(3 * 2 * 4 * 8);
  launch({{3, 2}, {4, 8}}, [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x, own = threadIdx.y * blockDim.x + threadIdx.x;
    ++visits[block * blockDim.x * blockDim.y + own];
  });
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST(EmulatedGrid, RefusesWhatCudaRefuses) {
  for (const LaunchShape& shape : {LaunchShape{0, 32}, LaunchShape{1, 0}, LaunchShape{1, 1025},
                                   LaunchShape{{1, 65536}, 1}, LaunchShape{1, 32, size_t{49} << 10}}) {
    EXPECT_THROW(launch(shape, [] {}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace cuda_emulation
