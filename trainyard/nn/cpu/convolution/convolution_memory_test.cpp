// Kernels of convolutions write nothing outside of the memory that they ask for, which is in whole lines as the plan's,
// nor outside of their results.

#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::convolution_memory_test {
namespace {

using Direction = ConvolutionDirection;
using Algorithm = ConvolutionAlgorithm;

int64_t whole_lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Returns shapes that each kernel takes one of, in each direction that it has and in trainings where it has them: odd
// channels, a bias, groups, strides, more tiles than a part has, wide products, and an image.
std::vector<ConvolutionShape> shapes() {
  ConvolutionShape with_bias = square(2, 20, 19, 7, 9, 3, 1, 1), groups = square(2, 20, 20, 9, 10, 3, 1, 1),
                   depthwise = square(2, 37, 37, 9, 17, 5, 1, 2), image = square(2, 3, 20, 17, 15, 7, 2, 3);
  with_bias.bias = groups.bias = depthwise.bias = image.bias = true;
  groups.groups = 5;
  depthwise.groups = 37;
  image.plain_input = true;
  return {with_bias,
          groups,
          depthwise,
          image,
          square(2, 19, 33, 8, 5, 3, 2, 1),
          square(2, 40, 48, 9, 7, 1, 1, 0),
          square(8, 128, 64, 4, 5, 1, 1, 0),
          square(3, 512, 544, 7, 7, 1, 1, 0),
          square(9, 20, 19, 24, 23, 3, 1, 1)};
}

TestMap random_input(const ConvolutionShape& s) {
  if (s.plain_input) return TestMap::random({s.batch, 1, s.in_channels * s.in_height, s.in_width, 1}, s.dtype, 1);
  return TestMap::random({s.batch, s.in_channels, s.in_height, s.in_width, channel_block()}, s.dtype, 1);
}

void expect_own_memory(const ConvolutionShape& s, Direction direction, const ConvolutionKernel& kernel) {
  TestBytes packed(whole_lines(kernel.weights_bytes())), scratch(whole_lines(kernel.scratch_bytes()));
  const int64_t weight_count = s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width;
  const std::vector<float> weights = random_floats(weight_count, 3), bias = random_floats(s.out_channels, 4);
  const MapShape output_shape{s.batch, s.out_channels, s.out_height, s.out_width, channel_block()};
  const TestMap source = random_input(s), gradient = TestMap::random(output_shape, s.dtype, 2);
  if (direction == Direction::kForward) {
    TestMap output(output_shape, s.dtype);
    kernel.pack(weights.data(), packed.data());
    kernel.forward(source.data(), packed.data(), s.bias ? bias.data() : nullptr, output.data(), scratch.data());
    output.expect_clean();
  } else if (direction == Direction::kBackwardData) {
    TestMap source_gradient(source.shape(), s.dtype);
    kernel.pack(weights.data(), packed.data());
    kernel.backward_data(gradient.data(), packed.data(), source_gradient.data(), scratch.data());
    source_gradient.expect_clean();
  } else {
    TestBytes bias_gradient(s.out_channels * 4), plain(weight_count * 4);
    kernel.backward_weights(source.data(), gradient.data(), packed.data(),
                            s.bias ? reinterpret_cast<float*>(bias_gradient.data()) : nullptr, scratch.data());
    kernel.unpack(packed.data(), reinterpret_cast<float*>(plain.data()));
    EXPECT_TRUE(bias_gradient.fences_hold()) << "written outside of the bias's gradient";
    EXPECT_TRUE(plain.fences_hold()) << "written outside of the weights' gradient";
  }
  EXPECT_TRUE(packed.fences_hold()) << "written outside of the packed weights";
  EXPECT_TRUE(scratch.fences_hold()) << "written outside of the scratch memory";
}

class MemoryOfAConvolution : public ::testing::TestWithParam<Algorithm> {};

TEST_P(MemoryOfAConvolution, HasRoomForWhatIsWritten) {
  for (const DataType dtype : kDataTypes) {
    for (ConvolutionShape shape : shapes()) {
      shape.dtype = dtype;
      for (const Direction direction : {Direction::kForward, Direction::kBackwardData, Direction::kBackwardWeights}) {
        if (shape.plain_input && direction == Direction::kBackwardData) continue;
        SCOPED_TRACE(::testing::Message() << shape << ", direction " << static_cast<int>(direction));
        for (const bool inference : {false, true}) {
          if (inference && direction != Direction::kForward) continue;
          const auto kernel =
              ConvolutionKernel::make(shape, {.direction = direction, .algorithm = GetParam(), .inference = inference});
          if (kernel != nullptr) expect_own_memory(shape, direction, *kernel);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, MemoryOfAConvolution,
                         ::testing::Values(Algorithm::kDirect, Algorithm::kWinograd, Algorithm::kWinograd4,
                                           Algorithm::kWinograd2, Algorithm::kWinograd3, Algorithm::kPointwise,
                                           Algorithm::kStrassen, Algorithm::kPixelPairs, Algorithm::kAmx,
                                           Algorithm::kLibtorch));

// Sets the threads of teams as long as it lives.
class TeamOf {
 public:
  explicit TeamOf(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  TeamOf(const TeamOf&) = delete;
  TeamOf& operator=(const TeamOf&) = delete;
  ~TeamOf() { omp_set_num_threads(before_); }

 private:
  int before_;
};

int64_t scratch_of(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, int threads) {
  const TeamOf team(threads);
  const auto kernel = ConvolutionKernel::make(shape, options);
  EXPECT_NE(kernel, nullptr) << shape;
  return kernel == nullptr ? 0 : kernel->scratch_bytes();
}

// Images are two slices of 128 pixels, whose sums are 7 * 64 * 256 floats. Few slices are made by all threads together,
// others by each thread for itself; each thread has 256 KiB for parts of the result.
TEST(MemoryOfStrassen, IsOfTheSumsOfSlicesAndOfThePartsOfThreads) {
  constexpr int64_t kSums = 458752, kParts = 262144;
  const auto bytes_of = [](int64_t batch, int threads) {
    return scratch_of(square(batch, 512, 256, 16, 16, 1, 1, 0), {.algorithm = Algorithm::kStrassen, .inference = true},
                      threads);
  };
  EXPECT_EQ(bytes_of(1, 1), 2 * kSums + kParts);
  EXPECT_EQ(bytes_of(2, 1), kSums + kParts) << "four slices are enough for a thread";
  EXPECT_EQ(bytes_of(1, 2), 2 * kSums + 2 * kParts);
  EXPECT_EQ(bytes_of(3, 2), 6 * kSums + 2 * kParts);
  EXPECT_EQ(bytes_of(4, 2), 2 * kSums + 2 * kParts) << "eight slices are enough for two";
}

// A thread sums over the tiles of a part alone: of 32 tiles at least, and where the sums of eight parts or more fit
// 5 MiB. Each map is one tile of 6 x 6 points.
TEST(MemoryOfWinograd, HasSumsForAsManyPartsAsTilesAndBytesAllow) {
  const auto bytes_of = [](int64_t in, int64_t out, int64_t tiles) {
    return scratch_of(square(tiles, in, out, 4, 4, 3, 1, 1),
                      {.direction = Direction::kBackwardWeights, .algorithm = Algorithm::kWinograd4}, 1);
  };
  const auto sums_of = [](int64_t in, int64_t out) { return 36 * (in * out + 16) * 4; };
  const int64_t together = bytes_of(16, 16, 255), sums = sums_of(16, 16);
  EXPECT_EQ(bytes_of(16, 16, 256) - together, 8 * sums);
  EXPECT_EQ(bytes_of(16, 16, 511) - together, 8 * sums);
  EXPECT_EQ(bytes_of(16, 16, 512) - together, 16 * sums);
  EXPECT_EQ(bytes_of(16, 16, 1023) - together, 16 * sums);
  EXPECT_EQ(bytes_of(16, 16, 1024) - together, 32 * sums);
  EXPECT_EQ(bytes_of(16, 16, 4096) - together, 32 * sums) << "no more parts than 32";
  EXPECT_EQ(bytes_of(32, 64, 1024) - bytes_of(32, 64, 255), 16 * sums_of(32, 64)) << "32 parts have 9 MiB of sums";
  EXPECT_EQ(bytes_of(64, 128, 1024), bytes_of(64, 128, 255)) << "8 parts have 9 MiB of sums";
}

}  // namespace
}  // namespace trainyard::nn::cpu::convolution_memory_test
