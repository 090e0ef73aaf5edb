// Our kernels for AMX, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/amx/amx_convolution.h"

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/amx/amx.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::amx_convolution_test {
namespace {

using Direction = ConvolutionDirection;

// Only the output is rounded, to 8 bits: 1.6e-3 to 1.8e-3 by norm, as measured, and 2.2e-3 for outputs of one pixel.
constexpr double kMapBound = 3e-3;
// Gradients of weights are floats: at most 4e-7 for the 12,544 pixels below.
constexpr double kWeightsBound = 2e-6;

std::unique_ptr<ConvolutionKernel> make_amx(const ConvolutionShape& shape, ConvolutionKernel::Options options) {
  options.algorithm = ConvolutionAlgorithm::kAmx;
  return make_amx_convolution(shape, options);
}

void expect_right(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.shape << ", padding " << p.shape.top << ' ' << p.shape.left);
  const auto forward = make_amx(p.shape, {}), data = make_amx(p.shape, {.direction = Direction::kBackwardData}),
             weights = make_amx(p.shape, {.direction = Direction::kBackwardWeights});
  ASSERT_TRUE(forward != nullptr && data != nullptr && weights != nullptr);
  const TestMap output = Runner(*forward).forward(p);
  output.expect_clean();
  EXPECT_LE(relative_error(output, p.output), kMapBound);
  const TestMap source_gradient = Runner(*data).backward_data(p);
  source_gradient.expect_clean();
  EXPECT_LE(relative_error(source_gradient, p.source_gradient), kMapBound);
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), kWeightsBound);
  if (p.shape.bias) {
    EXPECT_LE(relative_error(gradients.bias, p.bias_gradient), kWeightsBound);
  }
}

class AmxConvolution : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << core::skip::kNeedsAmx;
  }
};

TEST_F(AmxConvolution, AgreesWithTheDefinition) {
  for (const Problem& p : odd_problems(DataType::kBfloat16)) {
    if (p.shape.groups == 1) expect_right(p);
  }
  // Whole tiles and their ends; strides that divide the image and that do not; several images a strip and several
  // strips an image; one pixel.
  for (const ConvolutionShape& shape :
       {square(9, 64, 64, 14, 14, 3, 1, 1), square(5, 96, 48, 7, 7, 3, 1, 1), square(5, 160, 48, 7, 7, 1, 1, 0),
        square(2, 20, 33, 56, 56, 3, 1, 1), square(2, 34, 40, 31, 29, 3, 3, 1), square(1, 16, 16, 112, 112, 3, 1, 1),
        square(3, 33, 33, 5, 5, 3, 2, 0), square(2, 16, 16, 1, 1, 3, 1, 1), square(2, 512, 32, 9, 9, 1, 3, 0),
        square(2, 17, 33, 5, 5, 3, 1, 2), square(1, 16, 16, 1, 1, 1, 1, 0)}) {
    expect_right(Problem(in_bfloats(shape)));
  }
}

TEST_F(AmxConvolution, ReadsPlainImages) {
  for (ConvolutionShape shape :
       {square(2, 3, 32, 17, 15, 7, 2, 3), square(3, 3, 64, 64, 60, 7, 2, 3), square(2, 3, 20, 23, 27, 11, 4, 2),
        square(2, 1, 16, 9, 9, 5, 1, 0), square(5, 4, 33, 8, 9, 3, 1, 1), square(1, 3, 70, 13, 13, 3, 3, 1)}) {
    shape.plain_input = true;
    shape.bias = shape.batch == 2;
    const Problem p(in_bfloats(shape));
    SCOPED_TRACE(::testing::Message() << p.shape);
    const auto forward = make_amx(p.shape, {}), weights = make_amx(p.shape, {.direction = Direction::kBackwardWeights});
    ASSERT_TRUE(forward != nullptr && weights != nullptr);
    EXPECT_LE(relative_error(Runner(*forward).forward(p), p.output), kMapBound);
    EXPECT_LE(relative_error(Runner(*weights).backward_weights(p).weights, p.weights_gradient), kWeightsBound);
    EXPECT_EQ(make_amx(p.shape, {.direction = Direction::kBackwardData}), nullptr);
  }
}

TEST_F(AmxConvolution, AddsThenActivates) {
  const Problem p(in_bfloats(square(2, 22, 19, 6, 7, 3, 1, 1)));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kBfloat16, 9);
  const auto kernel = make_amx(p.shape, {.inference = true, .sum = true, .activation = UnitActivation::kRelu});
  ASSERT_NE(kernel, nullptr);
  EXPECT_LE(relative_error(Runner(*kernel).forward(p, &before), added_then_relu(p, before)), kMapBound);
}

// There are several strips, and several units of the gradient of weights. Strips follow the number of threads.
TEST_F(AmxConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {square(5, 17, 33, 34, 34, 3, 1, 1), square(7, 33, 17, 30, 30, 3, 2, 1)}) {
    const Problem p(in_bfloats(shape));
    const auto kernel = [&](Direction direction) { return make_amx(p.shape, {.direction = direction}); };
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(p); });
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
    expect_same_for_any_threads(
        [&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p).weights; });
  }
}

TEST_F(AmxConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1));
  ASSERT_NE(make_amx(good, {}), nullptr);
  EXPECT_EQ(make_amx(square(2, 32, 32, 8, 8, 3, 1, 1), {}), nullptr) << "float";
  EXPECT_EQ(make_amx(good, {.activation = UnitActivation::kSilu}), nullptr);
  EXPECT_EQ(make_amx_convolution(good, {}), nullptr) << "another algorithm";
  ConvolutionShape grouped = good, wrong = good, plain = good;
  grouped.groups = 2;
  plain.plain_input = true;  // and a window of 3 x 32
  ++wrong.out_width;
  EXPECT_EQ(make_amx(grouped, {}), nullptr);
  EXPECT_EQ(make_amx(plain, {}), nullptr);
  EXPECT_EQ(make_amx(wrong, {}), nullptr);
}

// Weights are packed, and their gradients unpacked, without the matrix unit's instructions. Channels fill neither tiles
// nor pairs of blocks, and taps are in another order than the window's places.
class AmxPack : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isa() != Isa::kAvx512Bf16) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  }

  static std::vector<amx::Tap> taps_of(int64_t window) {
    std::vector<amx::Tap> taps(static_cast<size_t>(window));
    for (size_t t = 0; t < taps.size(); ++t) taps[t].place = (static_cast<int64_t>(t) + 1) % window;
    return taps;
  }
  // The taps stay with the caller.
  static amx::Geometry geometry_of(int64_t in, int64_t out, const std::vector<amx::Tap>& taps) {
    amx::Geometry g;
    g.in_channels = in;
    g.out_channels = out;
    g.in_blocks = (in + 15) / 16;
    g.out_blocks = (out + 15) / 16;
    g.window = static_cast<int64_t>(taps.size());
    g.taps = taps.data();
    return g;
  }
  // For windows of `rows` rows: a pixel of the input is one of these, of all channels.
  static amx::Geometry image_geometry(int64_t channels, int64_t columns, int64_t out,
                                      const std::vector<amx::Tap>& rows) {
    amx::Geometry g = geometry_of(channels * columns, out, rows);
    g.image_channels = channels;
    g.image_window = columns;
    return g;
  }

  // Expects weight(output, input, place) of the geometry's channels, rounded, where its tiles have them, and zeros.
  template <typename Weight>
  static void expect_packed(const amx::Geometry& g, bool of_backward, const std::vector<float>& plain,
                            const Weight& weight) {
    TestBytes packed(amx::weights_bytes(g));
    amx::pack(
        {.geometry = g, .of_backward = of_backward, .plain = plain.data(), .packed = packed.data(), .threads = 2});
    EXPECT_TRUE(packed.fences_hold());
    int64_t wrong = 0, at = 0;
    for (int64_t block = 0; block < g.out_blocks; ++block) {
      for (int64_t t = 0; t < g.window; ++t) {
        for (int64_t pair = 0; pair < g.in_pairs() * 16; ++pair) {
          for (int64_t lane = 0; lane < 16; ++lane) {
            for (int64_t half = 0; half < 2; ++half, ++at) {
              const int64_t out = block * 16 + lane, in = 2 * pair + half;
              const bool real = out < g.out_channels && in < g.in_channels;
              const float wanted = real ? rounded_to(DataType::kBfloat16, weight(out, in, g.taps[t].place)) : 0.0F;
              uint16_t bits = 0;
              std::memcpy(&bits, packed.data() + 2 * at, 2);
              wrong += std::bit_cast<float>(static_cast<uint32_t>(bits) << 16) == wanted ? 0 : 1;
            }
          }
        }
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << at;
  }

  // Expects the number of output, input and place at place_of(output, input, place) of the plain gradient.
  template <typename PlaceOf>
  static void expect_unpacked(const amx::Geometry& g, const PlaceOf& place_of) {
    const std::vector<float> gradient = random_floats(amx::gradient_bytes(g) / 4, 6);
    const int64_t count = g.out_channels * g.in_channels * g.window;
    std::vector<float> plain(static_cast<size_t>(count) + 1, 99);
    amx::unpack({.geometry = g, .gradient = gradient.data(), .plain = plain.data(), .threads = 2});
    EXPECT_EQ(plain.back(), 99) << "written beside the gradient";
    for (int64_t t = 0; t < g.window; ++t) {
      for (int64_t out = 0; out < g.out_channels; ++out) {
        for (int64_t in = 0; in < g.in_channels; ++in) {
          const int64_t tile = (t * g.in_blocks + in / 16) * g.out_blocks + out / 16;
          ASSERT_EQ(plain[static_cast<size_t>(place_of(out, in, g.taps[t].place))],
                    gradient[static_cast<size_t>(tile * 256 + in % 16 * 16 + out % 16)])
              << out << ' ' << in << ' ' << t;
        }
      }
    }
  }
};

TEST_F(AmxPack, WeightsAndGradientsOfMaps) {
  for (const int64_t window : {1, 3}) {
    const std::vector<amx::Tap> taps = taps_of(window);
    const amx::Geometry forward = geometry_of(37, 21, taps), backward = geometry_of(21, 37, taps);
    const std::vector<float> plain = random_floats(23 * 37 * window, 5);  // two rows behind the weights
    const auto place_of = [&](int64_t out, int64_t in, int64_t place) { return (out * 37 + in) * window + place; };
    const auto weight = [&](int64_t out, int64_t in, int64_t place) {
      return plain[static_cast<size_t>(place_of(out, in, place))];
    };
    expect_packed(forward, false, plain, weight);
    expect_packed(backward, true, plain,
                  [&](int64_t to, int64_t from, int64_t place) { return weight(from, to, place); });
    expect_unpacked(forward, place_of);
  }
}

TEST_F(AmxPack, WeightsAndGradientsOfImages) {
  constexpr int64_t kRows = 3, kColumns = 11;
  for (const int64_t channels : {1, 4}) {
    const std::vector<amx::Tap> rows = taps_of(kRows);
    const amx::Geometry g = image_geometry(channels, kColumns, 21, rows);
    const std::vector<float> plain = random_floats(23 * channels * kRows * kColumns, 5);
    // Channel `in` is a column of the window and a channel of the image, which lie innermost.
    const auto place_of = [&](int64_t out, int64_t in, int64_t row) {
      return ((out * channels + in % channels) * kRows + row) * kColumns + in / channels;
    };
    expect_packed(g, false, plain, [&](int64_t out, int64_t in, int64_t row) {
      return plain[static_cast<size_t>(place_of(out, in, row))];
    });
    expect_unpacked(g, place_of);
  }
}

// Hiding the instructions from oneDNN hides them from us.
TEST(Amx, IsThereOnlyWithBf16) {
  if (has_amx()) {
    EXPECT_EQ(isa(), Isa::kAvx512Bf16);
    EXPECT_EQ(describe_isa(), "AVX-512 with BF16 and AMX");
  } else {
    EXPECT_EQ(describe_isa(), to_string(isa()));
    EXPECT_EQ(ConvolutionKernel::make(in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1)),
                                      {.algorithm = ConvolutionAlgorithm::kAmx}),
              nullptr);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::amx_convolution_test
