// The scratch memory of convolutions of bytes, which each thread has for itself.

#include <cstdint>

#include <gtest/gtest.h>

#include "trainyard/nn/cpu/quantized/quantized_convolution.h"

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
      for (const int threads : {1, 2, 3}) {
        const int64_t bytes = quantized_convolution_scratch_bytes(convolution(kernel, threads, vnni));
        EXPECT_GT(bytes, 0) << kernel << ' ' << threads << ' ' << vnni;
        EXPECT_EQ(bytes % (64 * threads), 0) << kernel << ' ' << threads << ' ' << vnni;
      }
    }
  }
}

// Bytes of a 1x1 window are read where they lie: all that a thread has is a line for the place of the window.
TEST(QuantizedScratch, HoldsNoCopyOfBytesThatAreReadWhereTheyLie) {
  EXPECT_EQ(quantized_convolution_scratch_bytes(convolution(1, 3, true)), 3 * 64);
  EXPECT_GT(quantized_convolution_scratch_bytes(convolution(1, 3, false)), 3 * 64) << "pairs of 16 bits are copied";
  EXPECT_GT(quantized_convolution_scratch_bytes(convolution(3, 3, true)), 3 * 64) << "windows of several pixels";
}

}  // namespace
}  // namespace trainyard::nn::cpu::quantized_scratch_test
