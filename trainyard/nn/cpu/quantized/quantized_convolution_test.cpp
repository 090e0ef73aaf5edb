// Convolutions of bytes against sums by the definition in 64 bits, in every way that the processor has.

#include "trainyard/nn/cpu/quantized/quantized_convolution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::quantized_convolution_test {
namespace {

// A compilation of the kernels, with or without the instruction for bytes, by Winograd's algorithm, or with clipped
// activations.
struct Way {
  const char* name;
  int64_t block;
  bool vnni, winograd, clipped, runs;
  void (*convolve)(const QuantizedConvolution&);
  int64_t (*scratch_bytes)(const QuantizedConvolution&);
  void (*pack)(const QuantizedConvolution&, const QuantizedConvolutionPack&);
};

std::vector<Way> ways() {
  const bool bytes = has_byte_products(8), wide_bytes = has_byte_products(16);
  std::vector<Way> found;
  for (const auto& [vnni, winograd, clipped] :
       {std::tuple{false, false, false}, {true, false, false}, {false, true, false}, {false, false, true}}) {
    found.push_back({"AVX2", 8, vnni, winograd, clipped, !vnni || bytes, avx2::quantized_convolution,
                     avx2::quantized_convolution_scratch_bytes, avx2::quantized_convolution_pack});
    found.push_back({"AVX-512", 16, vnni, winograd, clipped, vnni ? wide_bytes : core::cpu_has_avx512(),
                     avx512::quantized_convolution, avx512::quantized_convolution_scratch_bytes,
                     avx512::quantized_convolution_pack});
  }
  std::erase_if(found, [](const Way& way) { return !way.runs; });
  return found;
}

bool exact(UnitActivation activation) {
  return activation == UnitActivation::kNone || activation == UnitActivation::kRelu ||
         activation == UnitActivation::kRelu6;
}

struct Problem {
  int64_t batch = 1, in = 1, out = 1, height = 1, width = 1;
  Window window = {};
  int64_t bottom = 0, right = 0;
  int64_t dilation = 1;
  bool image = false, vectors = false;
  uint8_t zero = 128;
  int8_t weight = 0;                 // all weights, or random ones
  std::vector<int8_t> weights = {};  // of neighbouring input channels, again and again, or empty
  int input = -1;                    // all inputs, or random ones
  bool ends = false;                 // random inputs and weights are the least or the largest
  double outliers = 1;               // so many random inputs are any byte, the others near the zero point
  std::vector<uint8_t> pixels = {};  // [height * width] of all channels and images, or empty
  DataType dtype = DataType::kUint8;
  UnitActivation activation = UnitActivation::kNone;
  bool residual = false;
  DataType residual_dtype = DataType::kUint8;
  float scale = 0.05F, factor = 0.001F;
  uint8_t out_zero = 100;

  int64_t out_height() const {
    return (height + window.top + bottom - (window.kernel_height - 1) * dilation - 1) / window.stride_height + 1;
  }
  int64_t out_width() const {
    return (width + window.left + right - (window.kernel_width - 1) * dilation - 1) / window.stride_width + 1;
  }
  int64_t outputs() const { return batch * out * out_height() * out_width(); }
  bool has_winograd() const {
    return window.kernel_height == 3 && window.kernel_width == 3 && window.stride_height == 1 &&
           window.stride_width == 1 && dilation == 1 && !image && !vectors;
  }
  // Whether bytes are made of sums whose factors are in units of the output's scale.
  bool in_quotients() const {
    return dtype == DataType::kUint8 && (!residual || residual_dtype == DataType::kUint8) && exact(activation);
  }
  // The least and the largest byte that clipping leaves as it is.
  int least_near() const { return std::clamp(zero - 64, 0, 126); }
  int most_near() const { return least_near() + 129; }
  bool is_clipped() const { return window.kernel_height == 1 && window.kernel_width == 1 && !image; }
};

Problem square(int64_t batch, int64_t in, int64_t out, int64_t height, int64_t width, int64_t kernel,
               int64_t stride = 1, int64_t pad = 0) {
  return {.batch = batch,
          .in = in,
          .out = out,
          .height = height,
          .width = width,
          .window = {.kernel_height = kernel,
                     .kernel_width = kernel,
                     .stride_height = stride,
                     .stride_width = stride,
                     .top = pad,
                     .left = pad},
          .bottom = pad,
          .right = pad};
}

// What a problem computes with, and the outputs before the activation, in the order [N, C, H, W].
struct Numbers {
  std::vector<uint8_t> input;
  std::vector<int8_t> weights;
  std::vector<float> factors, bias;
  std::vector<float> residual;  // bytes or floats
  std::vector<float> values;
  std::vector<float> quotients;  // the same in units of the output's scale, where bytes are made of these
};

constexpr uint8_t kResidualZero = 77;
constexpr float kResidualScale = 0.031F;

Numbers numbers_of(const Problem& p) {
  core::RandomStream random(7, "quantized_convolution_test", {});
  const auto whole = [&](int least, int most) {
    return static_cast<int>(std::floor(least + random.uniform() * (most - least + 1)));
  };
  Numbers n;
  for (int64_t i = 0; i < p.batch * p.in * p.height * p.width; ++i) {
    const bool is_near = p.outliers < 1 && random.uniform() >= p.outliers;
    const int least = is_near ? p.least_near() : 0, most = is_near ? p.most_near() : 255;
    const int any = p.ends ? whole(0, 1) == 0 ? least : most : whole(least, most);
    const int pixel = p.pixels.empty() ? any : p.pixels[static_cast<size_t>(i) % p.pixels.size()];
    n.input.push_back(static_cast<uint8_t>(p.input < 0 ? pixel : p.input));
  }
  for (int64_t i = 0; i < p.out * p.in * p.window.kernel_height * p.window.kernel_width; ++i) {
    const int any = p.ends ? 254 * whole(0, 1) - 127 : whole(-127, 127);
    const int one = p.weight == 0 ? any : p.weight;
    n.weights.push_back(
        static_cast<int8_t>(p.weights.empty() ? one : p.weights[static_cast<size_t>(i) % p.weights.size()]));
  }
  for (int64_t o = 0; o < p.out; ++o) {
    n.factors.push_back(p.factor * static_cast<float>(0.5 + random.uniform()));
    n.bias.push_back(static_cast<float>(random.uniform() * 4 - 2));
  }
  for (int64_t i = 0; i < p.outputs(); ++i) {
    n.residual.push_back(p.residual_dtype == DataType::kUint8 ? static_cast<float>(whole(0, 255))
                                                              : rounded_to(p.residual_dtype, random.uniform() * 4 - 2));
  }
  const Window& w = p.window;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t o = 0; o < p.out; ++o) {
      for (int64_t y = 0; y < p.out_height(); ++y) {
        for (int64_t x = 0; x < p.out_width(); ++x) {
          int64_t sum = 0;
          for (int64_t c = 0; c < p.in; ++c) {
            for (int64_t i = 0; i < w.kernel_height; ++i) {
              for (int64_t j = 0; j < w.kernel_width; ++j) {
                const int64_t row = y * w.stride_height + i * p.dilation - w.top,
                              column = x * w.stride_width + j * p.dilation - w.left;
                if (row < 0 || row >= p.height || column < 0 || column >= p.width) continue;
                const int64_t input =
                    n.input[static_cast<size_t>(((b * p.in + c) * p.height + row) * p.width + column)];
                const int8_t weight =
                    n.weights[static_cast<size_t>(((o * p.in + c) * w.kernel_height + i) * w.kernel_width + j)];
                sum += (input - p.zero) * weight;
              }
            }
          }
          const float factor = n.factors[static_cast<size_t>(o)], bias = n.bias[static_cast<size_t>(o)],
                      inverse_scale = 1 / p.scale;
          float value = std::fma(static_cast<float>(sum), factor, bias),
                quotient = std::fma(static_cast<float>(sum), factor * inverse_scale, bias * inverse_scale);
          if (p.residual) {
            const float r = n.residual[n.values.size()];
            value =
                p.residual_dtype == DataType::kUint8 ? std::fma(r - kResidualZero, kResidualScale, value) : value + r;
            quotient = std::fma(r - kResidualZero, kResidualScale * inverse_scale, quotient);
          }
          n.values.push_back(value);
          if (p.in_quotients()) n.quotients.push_back(quotient);
        }
      }
    }
  }
  return n;
}

double activated(UnitActivation activation, double v) {
  const double hard = std::min(std::max(v + 3, 0.0), 6.0) / 6;
  switch (activation) {
    case UnitActivation::kNone:
      return v;
    case UnitActivation::kRelu:
      return std::max(v, 0.0);
    case UnitActivation::kRelu6:
      return std::min(std::max(v, 0.0), 6.0);
    case UnitActivation::kSilu:
      return v / (1 + std::exp(-v));
    case UnitActivation::kHardSwish:
      return v * hard;
    case UnitActivation::kHardSigmoid:
      return hard;
    case UnitActivation::kSigmoid:
      return 1 / (1 + std::exp(-v));
    case UnitActivation::kGelu:
      return v * std::erfc(-v / std::sqrt(2.0)) / 2;
    case UnitActivation::kTanh:
      return std::tanh(v);
  }
  return 0;
}

double quantized(const Problem& p, const Numbers& n, size_t i) {
  const auto of = [&](double value) { return static_cast<float>(value) * (1 / p.scale); };
  float quotient = p.in_quotients() ? n.quotients[i] : of(activated(p.activation, n.values[i]));
  if (p.in_quotients() && p.activation != UnitActivation::kNone) quotient = std::max(quotient, 0.0F);
  if (p.in_quotients() && p.activation == UnitActivation::kRelu6) quotient = std::min(quotient, of(6));
  const double whole = std::isnan(quotient) ? 0 : std::nearbyint(static_cast<double>(quotient));
  return std::clamp(whole + p.out_zero, 0.0, 255.0);
}

// The numbers of a map or of plain vectors.
class Maps {
 public:
  Maps(const Problem& p, int64_t block) : p_(p), block_(block) {}

  int64_t bytes(int64_t channels, int64_t pixels, DataType dtype) const {
    return p_.batch * (p_.vectors ? channels : padded(channels)) * pixels * size_of(dtype);
  }
  int64_t at(int64_t channels, int64_t pixels, int64_t n, int64_t c, int64_t pixel) const {
    if (p_.vectors) return n * channels + c;
    return ((n * (padded(channels) / block_) + c / block_) * pixels + pixel) * block_ + c % block_;
  }

 private:
  int64_t padded(int64_t channels) const { return (channels + block_ - 1) / block_ * block_; }

  const Problem& p_;
  int64_t block_;
};

// Writes and reads one number of `dtype`.
void put(uint8_t* data, int64_t at, DataType dtype, float value) {
  if (dtype == DataType::kUint8) {
    data[at] = static_cast<uint8_t>(value);
    return;
  }
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto upper = static_cast<uint16_t>(bits >> 16);
  dtype == DataType::kFloat ? std::memcpy(data + at * 4, &bits, 4) : std::memcpy(data + at * 2, &upper, 2);
}
float get(const uint8_t* data, int64_t at, DataType dtype) {
  if (dtype == DataType::kUint8) return data[at];
  uint32_t bits = 0;
  if (dtype == DataType::kFloat) {
    std::memcpy(&bits, data + at * 4, 4);
  } else {
    uint16_t upper = 0;
    std::memcpy(&upper, data + at * 2, 2);
    bits = static_cast<uint32_t>(upper) << 16;
  }
  return std::bit_cast<float>(bits);
}

std::vector<float> padded(std::vector<float> values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  return values;
}

// Runs a way; the outputs in the order [N, C, H, W].
std::vector<float> run(const Way& way, const Problem& p, const Numbers& n, int threads, bool in_place) {
  const int64_t in_block = p.image ? 4 : way.block, in_pixels = p.height * p.width,
                out_pixels = p.out_height() * p.out_width();
  const Maps inputs(p, in_block), outputs(p, way.block);
  QuantizedConvolution a{.input_shape = {p.batch, p.in, p.height, p.width, in_block},
                         .output_shape = {p.batch, p.out, p.out_height(), p.out_width(), way.block},
                         .window = p.window,
                         .dilation_height = p.dilation,
                         .dilation_width = p.dilation,
                         .vectors = p.vectors,
                         .vnni = way.vnni,
                         .input_zero = p.zero,
                         .threads = threads};
  EXPECT_TRUE(a.fits_winograd() == p.has_winograd() || p.in > QuantizedConvolution::kMostWinogradChannels);
  a.winograd = way.winograd && a.fits_winograd();
  a.clipped = way.clipped && a.fits_clipped();
  const int64_t padded_out = a.output_shape.padded_channels();
  // Pad lanes of the input and of a residual hold anything.
  TestBytes input(inputs.bytes(p.in, in_pixels, DataType::kUint8)), weights(a.packed_bytes()),
      output(outputs.bytes(p.out, out_pixels, p.dtype)), residual(outputs.bytes(p.out, out_pixels, p.residual_dtype)),
      scratch(way.scratch_bytes(a));
  std::vector<int32_t> offsets(static_cast<size_t>(padded_out));
  const std::vector<float> factors = padded(n.factors, padded_out), bias = padded(n.bias, padded_out);
  size_t i = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t c = 0; c < p.in; ++c) {
      for (int64_t q = 0; q < in_pixels; ++q) input.data()[inputs.at(p.in, in_pixels, b, c, q)] = n.input[i++];
    }
  }
  i = 0;
  const auto each_output = [&](auto&& use) {
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t c = 0; c < p.out; ++c) {
        for (int64_t q = 0; q < out_pixels; ++q) use(outputs.at(p.out, out_pixels, b, c, q));
      }
    }
  };
  TestBytes& added = in_place ? output : residual;
  if (p.residual) each_output([&](int64_t at) { put(added.data(), at, p.residual_dtype, n.residual[i++]); });
  way.pack(a,
           {.plain = n.weights.data(), .packed = reinterpret_cast<int8_t*>(weights.data()), .offsets = offsets.data()});
  a.input = input.data();
  a.weights = reinterpret_cast<const int8_t*>(weights.data());
  a.offsets = offsets.data();
  a.factors = factors.data();
  a.bias = bias.data();
  a.scratch = scratch.data();
  a.to = {.dtype = p.dtype,
          .output = output.data(),
          .inverse_scale = 1 / p.scale,
          .zero_point = p.out_zero,
          .activation = p.activation,
          .residual = p.residual ? added.data() : nullptr,
          .residual_dtype = p.residual_dtype,
          .residual_scale = kResidualScale,
          .residual_zero = kResidualZero};
  way.convolve(a);
  EXPECT_TRUE(output.fences_hold() && weights.fences_hold() && scratch.fences_hold());
  std::vector<float> result;
  each_output([&](int64_t at) { result.push_back(get(output.data(), at, p.dtype)); });
  if (p.dtype != DataType::kUint8 && !p.vectors) {
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t c = p.out; c < padded_out; ++c) {
        for (int64_t q = 0; q < out_pixels; ++q) {
          EXPECT_EQ(get(output.data(), outputs.at(p.out, out_pixels, b, c, q), p.dtype), 0) << "pad lane " << c;
        }
      }
    }
  }
  return result;
}

void expect_right(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.batch << " x " << p.in << " x " << p.height << " x " << p.width << " to "
                                    << p.out << ", window " << p.window.kernel_height << " x " << p.window.kernel_width
                                    << ", stride " << p.window.stride_height << ", dilation " << p.dilation
                                    << ", padding " << p.window.top << ", zero " << int{p.zero} << ", dtype "
                                    << int(p.dtype) << ", activation " << int(p.activation));
  const Numbers n = numbers_of(p);
  std::vector<float> first;
  for (const Way& way : ways()) {
    if ((way.winograd && !p.has_winograd()) || (way.clipped && !p.is_clipped())) continue;
    SCOPED_TRACE(::testing::Message() << way.name
                                      << (way.vnni       ? " with VNNI"
                                          : way.winograd ? ", Winograd"
                                          : way.clipped  ? ", clipped"
                                                         : ""));
    const std::vector<float> one = run(way, p, n, 1, false);
    EXPECT_EQ(run(way, p, n, 2, p.residual && p.residual_dtype == p.dtype), one) << "two threads";
    if (first.empty()) first = one;
    if (exact(p.activation)) {
      EXPECT_EQ(one, first) << "bits of other instructions";
    }
    int wrong = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      const double want =
          p.dtype == DataType::kUint8 ? quantized(p, n, i) : rounded_to(p.dtype, activated(p.activation, n.values[i]));
      const double step =
          p.dtype == DataType::kUint8 ? 1 : std::max(1.0, std::abs(want)) * (p.dtype == DataType::kFloat ? 1e-6 : 8e-3);
      if (std::abs(one[i] - want) <= (exact(p.activation) ? 0 : step) || ++wrong > 3) continue;
      ADD_FAILURE() << "output " << i << ": " << one[i] << " instead of " << want;
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(QuantizedConvolution, AgreesWithTheDefinition) {
  // One tile and several, and their ends; one block and several, one more channel, a panel of one block.
  for (const int64_t channels : {1, 3, 8, 16, 17, 40, 64}) {
    expect_right(square(2, channels, 72 - channels, 5, 7, 1));
    expect_right(square(1, channels, 33, 9, 6, 3, 1, 1));
  }
  for (int64_t pixels = 1; pixels <= 30; ++pixels) expect_right(square(2, 20, 40, 1, pixels, 1));
  for (int64_t width = 1; width <= 30; ++width) expect_right(square(1, 20, 40, 3, width, 3, 1, 1));
  for (const int64_t height : {1, 2, 4, 7}) expect_right(square(3, 24, 24, height, 7, 3, 1, 1));
  // Strides that divide the image and that do not, padding on some sides, dilation.
  for (const int64_t kernel : {1, 2, 3, 5, 7}) {
    for (const int64_t stride : {1, 2, 3, 4}) expect_right(square(1, 9, 17, 13, 16, kernel, stride, kernel / 2));
  }
  for (const int64_t dilation : {2, 3, 4}) {
    for (const int64_t stride : {1, 2, 4}) {
      Problem p = square(2, 18, 8, 15, 13, 3, stride, 2);
      p.dilation = dilation;
      expect_right(p);
    }
  }
  Problem p = square(2, 10, 20, 12, 11, 4, 2, 0);
  p.window.kernel_width = 3;
  p.window.stride_width = 3;
  p.window.left = 2;
  p.bottom = 3;
  expect_right(p);
  p.right = 9;  // windows wholly in the padding
  expect_right(p);
  // Chunks of rows.
  expect_right(square(1, 64, 16, 70, 65, 3, 1, 1));
  expect_right(square(2, 200, 8, 40, 40, 1));
  expect_right(square(3, 200, 8, 7, 7, 1));
  expect_right(square(0, 8, 8, 3, 3, 1));
}

TEST(QuantizedConvolution, DividesAmongMoreThreadsThanThereAreRows) {
  for (const Problem& p : {square(1, 40, 100, 2, 9, 3, 1, 1), square(5, 16, 16, 1, 1, 1), square(2, 48, 48, 7, 7, 1)}) {
    const Numbers n = numbers_of(p);
    for (const Way& way : ways()) {
      const std::vector<float> one = run(way, p, n, 1, false);
      for (const int threads : {2, 3}) EXPECT_EQ(run(way, p, n, threads, false), one) << threads;
    }
  }
}

TEST(QuantizedConvolution, ReadsImages) {
  for (const int64_t channels : {1, 3, 4}) {
    for (Problem p : {square(2, channels, 32, 30, 34, 7, 2, 3), square(1, channels, 20, 17, 19, 3, 2, 1),
                      square(2, channels, 16, 9, 9, 1), square(1, channels, 24, 32, 32, 16, 16, 0),
                      square(1, channels, 16, 23, 23, 11, 4, 2)}) {
      p.image = true;
      expect_right(p);
    }
  }
}

TEST(QuantizedConvolution, PadsWithTheZeroPoint) {
  for (const uint8_t zero : {0, 1, 128, 255}) {
    Problem p = square(1, 17, 19, 6, 8, 3, 1, 1);
    p.zero = zero;
    expect_right(p);
    p.window.stride_height = p.window.stride_width = 2;
    p.window.top = p.window.left = 2;
    expect_right(p);
  }
}

TEST(QuantizedConvolution, NothingSaturatesInBetween) {
  for (const int8_t weight : {-127, 127}) {
    for (const int input : {0, 255}) {
      for (const uint8_t zero : {0, 255}) {
        Problem p = square(1, 512, 16, 4, 4, 3, 1, 1);
        p.weight = weight;
        p.input = input;
        p.zero = zero;
        p.dtype = DataType::kFloat;
        expect_right(p);
      }
    }
  }
  // A sum of kMostTerms terms, the largest that there is.
  Problem p = square(1, QuantizedConvolution::kMostTerms / 4, 3, 2, 2, 2);
  p.weight = 127;
  p.input = 255;
  p.zero = 0;
  p.dtype = DataType::kFloat;
  expect_right(p);
}

TEST(QuantizedConvolution, WinogradTakesAnyMap) {
  for (const int64_t height : {1, 2, 3, 4, 5, 8, 9}) {
    for (const int64_t width : {1, 2, 4, 6, 7}) expect_right(square(2, 17, 19, height, width, 3, 1, 1));
  }
  Problem p = square(1, 20, 24, 7, 10, 3);
  expect_right(p);
  p.window.top = 2;
  p.bottom = p.right = 5;  // squares wholly in the padding
  p.zero = 255;
  p.residual = true;
  expect_right(p);
  expect_right(square(1, 256, 160, 6, 6, 3, 1, 1));  // few tiles: threads share out the weights
}

TEST(QuantizedConvolution, WinogradIsExactAtTheEnds) {
  for (const uint8_t zero : {0, 255}) {
    Problem p = square(1, 40, 24, 9, 9, 3, 1, 1);
    p.zero = zero;
    p.ends = true;
    p.dtype = DataType::kFloat;
    expect_right(p);
    // The largest sums, and one channel more, for which there is no Winograd.
    for (const int64_t more : {0, 1}) {
      p = square(1, QuantizedConvolution::kMostWinogradChannels + more, 3, 5, 5, 3, 1, 1);
      p.zero = zero;
      p.dtype = DataType::kFloat;
      p.input = 255 - zero;
      for (const int8_t weight : {-127, 127}) {
        p.weight = weight;
        expect_right(p);
      }
    }
  }
  // The largest numbers of 16 bits, of either sign: pixels by the signs of two rows of B^T, all weights equal.
  const int rows[4][6] = {{2, 3, -4, -3, 2, 0}, {0, -2, -5, -1, 2, 0}, {0, 2, 1, -5, 2, 0}, {0, 2, 3, -4, -3, 2}};
  for (const auto& row : rows) {
    for (const auto& column : rows) {
      for (const int sign : {-1, 1}) {
        Problem p = square(1, 16, 8, 6, 6, 3);
        p.dtype = DataType::kFloat;
        p.weight = 127;
        for (int i = 0; i < 36; ++i) p.pixels.push_back(sign * row[i / 6] * column[i % 6] > 0 ? 255 : 0);
        expect_right(p);
      }
    }
  }
}

TEST(QuantizedConvolution, WinogradIsTakenWhereItPays) {
  const auto taken = [](int64_t batch, int64_t in, int64_t out, int64_t size, int64_t kernel = 3, int64_t stride = 1) {
    const QuantizedConvolution a{.input_shape = {batch, in, size, size, 8},
                                 .output_shape = {batch, out, size / stride, size / stride, 8},
                                 .window = {.kernel_height = kernel,
                                            .kernel_width = kernel,
                                            .stride_height = stride,
                                            .stride_width = stride,
                                            .top = kernel / 2,
                                            .left = kernel / 2}};
    QuantizedConvolution with_vnni = a;
    with_vnni.vnni = true;
    EXPECT_FALSE(is_faster_by_winograd(with_vnni));
    return is_faster_by_winograd(a);
  };
  EXPECT_TRUE(taken(1, 64, 64, 56));
  EXPECT_TRUE(taken(8, 512, 512, 7));
  EXPECT_FALSE(taken(1, 512, 512, 7)) << "reads too many weights";
  EXPECT_FALSE(taken(8, 512, 512, 2)) << "nearly empty tiles";
  EXPECT_FALSE(taken(8, 1842, 64, 28)) << "sums of 33 bits";
  EXPECT_FALSE(taken(1, 3, 64, 56)) << "few channels";
  EXPECT_FALSE(taken(1, 64, 64, 56, 3, 2));
  EXPECT_FALSE(taken(1, 64, 64, 56, 5));
}

// Bytes at the ends of what is not clipped, one further, and weights whose products reach both ends of 16 bits.
TEST(QuantizedConvolution, ClippedIsExactAtTheEnds) {
  for (const uint8_t zero : {0, 64, 65, 128, 190, 255}) {
    Problem p = square(1, 44, 24, 3, 5, 1);
    p.zero = zero;
    for (const int beyond : {0, 1}) {
      for (const int input : {p.least_near() - beyond, p.most_near() + beyond}) {
        if (input < 0 || input > 255) continue;
        p.input = input;
        for (const int8_t weight : {-127, 127, 1, 0}) {
          p.weight = weight;
          expect_right(p);
        }
      }
    }
    p.input = -1;
    p.weight = 0;
    p.ends = true;
    for (const double outliers : {0.0, 0.02}) {
      p.outliers = outliers;
      expect_right(p);
    }
  }
}

// Four weights whose products just stay in 16 bits, and just do not, in some channels and in all.
TEST(QuantizedConvolution, ClippedCentersWhereItMust) {
  Problem p = square(1, 48, 24, 5, 6, 1);
  for (const int sign : {1, -1}) {
    for (const std::vector<int>& magnitudes :
         std::vector<std::vector<int>>{{64, 63},
                                       {64, 64, 1, 2, 64, 63, 3, 4},
                                       {127, 127, 1, 1, 0, 0, 1, 1},
                                       {127, 127, 127, 127, -127, -127, -127, -127},
                                       {64, 63, 64, 63, 64, 63, 64, 63, 64, 64, 64, 64, 64, 64, 64, 64}}) {
      p.weights.clear();
      for (const int magnitude : magnitudes) p.weights.push_back(static_cast<int8_t>(sign * magnitude));
      for (const int input : {-1, p.least_near(), p.most_near()}) {
        p.input = input;
        for (const double outliers : {0.0, 0.02}) {
          p.outliers = outliers;
          expect_right(p);
        }
      }
    }
  }
}

TEST(QuantizedConvolution, ClippedFindsTheCentersOfEachOutputBlock) {
  // Of eight input blocks one has weights that need centers, for one output of a panel's two blocks.
  for (const int64_t large : {3, 11}) {
    Problem p = square(1, 64, 16, 7, 7, 1);
    p.zero = 0;
    p.outliers = 0.01;
    p.dtype = DataType::kFloat;
    for (int64_t i = 0; i < p.out * p.in; ++i) {
      p.weights.push_back(i / p.in == large && i % p.in / 8 == 5 ? 127 : 20);
    }
    expect_right(p);
  }
}

TEST(QuantizedConvolution, ClippedTakesFewAndManyOutliers) {
  // One run of pixels and several, their ends, parts of many channels, pad lanes, one block of outputs.
  std::vector<Problem> problems = {square(1, 800, 20, 10, 10, 1), square(3, 16, 40, 7, 9, 1),
                                   square(2, 25, 17, 6, 5, 1, 2), square(1, 1600, 8, 2, 2, 1),
                                   square(1, 64, 32, 20, 20, 1),  square(1, 96, 32, 7, 7, 1)};
  for (const int64_t batch : {1, 2, 5, 100}) {
    problems.push_back(square(batch, 100, 43, 1, 1, 1));
    problems.back().vectors = true;
  }
  for (Problem p : problems) {
    for (const double outliers : {0.0, 0.002, 0.02, 0.1, 0.7}) {
      for (const uint8_t zero : {3, 128}) {
        p.outliers = outliers;
        p.zero = zero;
        expect_right(p);
      }
    }
    p.outliers = 0.01;
    p.residual = true;
    p.activation = UnitActivation::kRelu;
    expect_right(p);
    p.dtype = p.residual_dtype = DataType::kFloat;
    p.activation = UnitActivation::kGelu;
    expect_right(p);
  }
}

TEST(QuantizedConvolution, ClipsWhereItPays) {
  const auto clips = [](int64_t in, int64_t out, int64_t kernel, int64_t in_block = 8, uint8_t zero = 128) {
    return is_faster_clipped({.input_shape = {1, in, 14, 14, in_block},
                              .output_shape = {1, out, 14, 14, 8},
                              .window = {.kernel_height = kernel, .kernel_width = kernel},
                              .input_zero = zero});
  };
  EXPECT_TRUE(clips(256, 64, 1));
  EXPECT_FALSE(clips(256, 64, 3)) << "its window has several pixels";
  EXPECT_FALSE(clips(256, 16, 1)) << "few outputs";
  EXPECT_FALSE(clips(24, 64, 1, 8, 0)) << "few inputs";
  EXPECT_TRUE(clips(64, 64, 1, 8, 0));
  EXPECT_FALSE(clips(64, 64, 1)) << "few inputs, of which many may be outliers";
  EXPECT_FALSE(clips(3, 64, 1, 4)) << "an image";
  QuantizedConvolution a{.input_shape = {1, 256, 1, 1, 8}, .output_shape = {1, 256, 1, 1, 8}};
  EXPECT_TRUE(is_faster_clipped(a));
  a.vnni = true;
  EXPECT_FALSE(is_faster_clipped(a));
}

TEST(QuantizedConvolution, ClampsOutputs) {
  for (const float factor : {1e-6F, 0.1F, 1e4F, 1e30F}) {
    for (const uint8_t zero : {0, 100, 255}) {
      Problem p = square(1, 16, 16, 4, 5, 1);
      p.factor = factor;
      p.out_zero = zero;
      expect_right(p);
      p.activation = UnitActivation::kRelu;
      expect_right(p);
    }
  }
}

TEST(QuantizedConvolution, AddsAndActivates) {
  for (const DataType dtype : {DataType::kUint8, DataType::kFloat, DataType::kBfloat16}) {
    for (int kind = 0; kind <= static_cast<int>(UnitActivation::kTanh); ++kind) {
      Problem p = square(2, 20, 41, 5, 6, 1);
      p.dtype = dtype;
      p.activation = static_cast<UnitActivation>(kind);
      p.factor = 1e-5F;
      p.out_zero = kind % 2 == 0 ? 0 : 37;
      expect_right(p);
      p.residual = true;
      for (const DataType residual : {DataType::kUint8, DataType::kFloat, DataType::kBfloat16}) {
        p.residual_dtype = residual;
        expect_right(p);
      }
    }
  }
}

// A map that is too large for the caches is written past them: as its samples are, one by one.
TEST(QuantizedConvolution, WritesLargeMaps) {
  const int64_t batch = 180, channels = 128;  // above 64 MiB
  for (const Way& way : ways()) {
    for (const bool residual : {false, true}) {
      const int64_t pixels = residual ? 3136 : 3137;  // 3137 pixels are no whole lines
      QuantizedConvolution a{.input_shape = {batch, way.block, pixels, 1, way.block},
                             .output_shape = {batch, channels, pixels, 1, way.block},
                             .vnni = way.vnni,
                             .threads = 2};
      core::RandomStream random(3, "large_map", {});
      TestBytes input(a.input_shape.elements()), weights(a.packed_bytes()), added(channels * pixels),
          output(a.output_shape.elements()), one(channels * pixels);
      std::vector<uint8_t> scratch(static_cast<size_t>(way.scratch_bytes(a)) + 64);
      for (int64_t i = 0; i < a.input_shape.elements(); ++i)
        input.data()[i] = static_cast<uint8_t>(i * 2654435761U >> 9);
      for (int64_t i = 0; i < channels * pixels; ++i) added.data()[i] = static_cast<uint8_t>(i * 40503U >> 7);
      std::vector<int8_t> plain(static_cast<size_t>(channels * way.block));
      for (int8_t& weight : plain) weight = static_cast<int8_t>(random.uniform() * 200 - 100);
      std::vector<int32_t> offsets(channels);
      const std::vector<float> factors(channels, 1e-4F), bias(channels, 0.5F);
      way.pack(a, {plain.data(), reinterpret_cast<int8_t*>(weights.data()), offsets.data()});
      a.weights = reinterpret_cast<const int8_t*>(weights.data());
      a.offsets = offsets.data();
      a.factors = factors.data();
      a.bias = bias.data();
      a.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
      // A residual of all samples is the output's old values.
      for (int64_t n = 0; n < batch; ++n)
        std::memcpy(output.data() + n * channels * pixels, added.data(), channels * pixels);
      TestBytes residuals = output;
      a.input = input.data();
      a.to = {.output = output.data(),
              .inverse_scale = 30,
              .zero_point = 99,
              .residual = residual ? residuals.data() : nullptr};
      way.convolve(a);
      EXPECT_TRUE(output.fences_hold());
      a.input_shape.batch = a.output_shape.batch = 1;
      a.to.output = one.data();
      if (residual) a.to.residual = added.data();
      for (int64_t n = 0; n < batch; n += 7) {
        a.input = input.data() + n * way.block * pixels;
        way.convolve(a);
        ASSERT_EQ(std::memcmp(one.data(), output.data() + n * channels * pixels, channels * pixels), 0)
            << way.name << ", sample " << n;
      }
    }
  }
}

TEST(QuantizedConvolution, ComputesVectors) {
  for (const int64_t batch : {1, 3, 20}) {
    for (const int64_t in : {1, 16, 37, 100}) {
      for (const DataType dtype : {DataType::kUint8, DataType::kFloat}) {
        Problem p = square(batch, in, 43, 1, 1, 1);
        p.vectors = true;
        p.dtype = dtype;
        expect_right(p);
        p.residual = true;
        p.residual_dtype = dtype;
        p.activation = UnitActivation::kRelu;
        expect_right(p);
      }
    }
  }
}

TEST(QuantizedConvolution, WritesTheZeroPointForNan) {
  Problem p = square(1, 8, 16, 2, 3, 1);
  p.residual = true;
  p.residual_dtype = DataType::kFloat;
  Numbers n = numbers_of(p);
  std::fill(n.residual.begin(), n.residual.end(), std::numeric_limits<float>::quiet_NaN());
  for (const Way& way : ways()) {
    for (const auto activation : {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kGelu}) {
      p.activation = activation;
      for (const float q : run(way, p, n, 1, false)) EXPECT_EQ(q, p.out_zero);
    }
  }
}

// GELU has a form of its own for bytes: no byte is further from the exact value than rounding and 1e-6 allow.
TEST(QuantizedConvolution, GeluIsPreciseEverywhere) {
  Problem p = square(1, 1, 1, 64, 64, 1);
  p.residual = true;
  p.residual_dtype = DataType::kFloat;
  p.activation = UnitActivation::kGelu;
  p.out_zero = 200;
  Numbers n = numbers_of(p);
  std::fill(n.factors.begin(), n.factors.end(), 0.0F);
  std::fill(n.bias.begin(), n.bias.end(), 0.0F);
  for (size_t i = 0; i < n.residual.size(); ++i) n.residual[i] = (static_cast<float>(i) - 2040) / 256;
  for (const float scale : {1.0F / 8, 1.0F / 1000, 1e-5F}) {
    p.scale = scale;
    for (const Way& way : ways()) {
      const std::vector<float> bytes = run(way, p, n, 1, false);
      for (size_t i = 0; i < bytes.size(); ++i) {
        const double steps = activated(p.activation, n.residual[i]) / scale + p.out_zero;
        ASSERT_NEAR(bytes[i], std::clamp(steps, 0.0, 255.0), 0.5 + 1e-6 / scale + 1e-4) << n.residual[i] << way.name;
      }
    }
  }
}

TEST(QuantizedConvolution, ChoosesByTheProcessor) {
  EXPECT_TRUE(core::cpu_isa_limit() == core::CpuIsaLimit::kNone || !has_vnni()) << "the limits hide it";
  Problem p = square(1, 20, 20, 5, 5, 3, 1, 1);
  const Way chosen = {"",
                      channel_block(),
                      has_vnni(),
                      false,
                      false,
                      true,
                      quantized_convolution,
                      quantized_convolution_scratch_bytes,
                      quantized_convolution_pack};
  const Numbers n = numbers_of(p);
  EXPECT_EQ(run(chosen, p, n, 2, false), run(ways().front(), p, n, 1, false));
}

}  // namespace
}  // namespace trainyard::nn::cpu::quantized_convolution_test
