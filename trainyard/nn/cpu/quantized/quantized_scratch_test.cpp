// The scratch memory of convolutions of bytes, which each thread has for itself.

#include <cstdint>

#include <gtest/gtest.h>

#include "trainyard/nn/cpu/quantized/quantized_convolution.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::quantized_scratch_test {
namespace {

// 19 channels to 35, in 9 x 7 pixels, with a square window and the padding that keeps the size.
QuantizedConvolution convolution(int64_t kernel, int threads, bool vnni) {
  return {.input_shape = {2, 19, 9, 7, channel_block()},
          .output_shape = {2, 35, 9, 7, channel_block()},
          .window = {.kernel_height = kernel, .kernel_width = kernel, .top = kernel / 2, .left = kernel / 2},
          .vnni = vnni,
          .threads = threads};
}

TEST(QuantizedScratch, IsOfWholeLinesForEachThread) {
  for (const bool vnni : {false, true}) {
    for (const int64_t kernel : {1, 3, 5}) {
      const int64_t part = quantized_convolution_scratch_bytes(convolution(kernel, 1, vnni));
      EXPECT_GT(part, 0) << kernel << ' ' << vnni;
      EXPECT_EQ(part % 64, 0) << kernel << ' ' << vnni;
      for (const int threads : {2, 3}) {
        const int64_t all = quantized_convolution_scratch_bytes(convolution(kernel, threads, vnni));
        // Other threads may have a part of another size, because they share out the work otherwise.
        EXPECT_EQ(all % 64, 0) << kernel << ' ' << threads << ' ' << vnni;
        EXPECT_GT(all, (threads - 1) * thread_stride(64)) << kernel << ' ' << threads << ' ' << vnni;
      }
    }
  }
}

TEST(QuantizedScratch, PartsOfThreadsLieAtTheSamePlacesForAllKernels) {
  EXPECT_EQ(thread_stride(1), 1 << 20);
  EXPECT_EQ(thread_stride(1 << 20), 1 << 20);
  EXPECT_EQ(thread_stride((1 << 20) + 1), 2 << 20);
  EXPECT_EQ(thread_scratch_bytes(640, 1), 640);
  EXPECT_EQ(thread_scratch_bytes(640, 3), (2 << 20) + 640);
}

// Bytes of a 1x1 window are read where they lie: all that a thread has is a line for the place of the window.
TEST(QuantizedScratch, HoldsNoCopyOfBytesThatAreReadWhereTheyLie) {
  const int64_t lines = thread_scratch_bytes(64, 3);
  EXPECT_EQ(quantized_convolution_scratch_bytes(convolution(1, 3, true)), lines);
  EXPECT_GT(quantized_convolution_scratch_bytes(convolution(1, 3, false)), lines) << "pairs of 16 bits are copied";
  EXPECT_GT(quantized_convolution_scratch_bytes(convolution(3, 3, true)), lines) << "windows of several pixels";
}

}  // namespace
}  // namespace trainyard::nn::cpu::quantized_scratch_test
