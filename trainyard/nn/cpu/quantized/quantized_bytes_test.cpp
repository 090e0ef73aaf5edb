// Kernels of bytes against their definitions.
#include <limits>

#include "trainyard/nn/testing/byte_map.h"

namespace trainyard::nn::cpu::quantized_bytes_test {
namespace {

TRAINYARD_KERNEL_TEST(QuantizedBytesTest);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr UnitActivation kRanges[] = {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kRelu6};

// Values that lie on halves of steps, beyond both ends of the range, and everywhere.
float awkward(int64_t i) {
  const auto n = static_cast<float>(i * 37 % 1031 - 500);
  return i % 3 == 0 ? n * 0.5F : n * 0.37F;
}

TYPED_TEST(QuantizedBytesTest, QuantizesPlainMapsOfAnyStrides) {
  for (const uint8_t zero_point : {0, 3, 255}) {
    for (MapShape shape : this->shapes()) {
      for (const bool image : {false, true}) {
        if (image && shape.channels > 4) continue;
        if (image) shape.block = 4;
        for (const int order : {0, 1, 2}) {  // [N, C, H, W], [N, H, W, C], and every second element of [N, H, C, W]
          const int64_t c = shape.channels, h = shape.height, w = shape.width;
          std::vector<float> plain(static_cast<size_t>(2 * shape.batch * c * h * w));
          QuantizePlain a{.shape = shape, .plain = plain.data(), .inverse_scale = 0.75F, .zero_point = zero_point};
          const int64_t strides[3][4] = {
              {c * h * w, h * w, w, 1}, {c * h * w, 1, w * c, c}, {2 * c * h * w, 2 * w, 2 * w * c, 2}};
          std::copy_n(strides[order], 4, a.strides);
          for (size_t i = 0; i < plain.size(); ++i) plain[i] = awkward(static_cast<int64_t>(i));
          ByteMap map(shape, 1);
          std::vector<uint8_t> flags(static_cast<size_t>(shape.batch), 7);
          a.map = map.data();
          a.non_finite = flags.data();
          TypeParam::quantize_plain(a);
          map.expect([&](int64_t n, int64_t channel, int64_t y, int64_t x) {
            const int64_t i = n * a.strides[0] + channel * a.strides[1] + y * a.strides[2] + x * a.strides[3];
            return quantized_byte(plain[static_cast<size_t>(i)], 0.75F, zero_point);
          });
          EXPECT_EQ(flags, std::vector<uint8_t>(flags.size(), 7)) << "all numbers are finite";
          if (image) {
            for (int64_t lane = c; lane < 4; ++lane) EXPECT_EQ(map.at(0, lane), zero_point) << "a pad lane";
          }
        }
      }
    }
  }
}

TYPED_TEST(QuantizedBytesTest, ReportsSamplesThatAreNotFinite) {
  const int64_t channels = 19, pixels = 7;
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t place : {int64_t{0}, channels * pixels - 1}) {
      std::vector<float> plain(static_cast<size_t>(3 * channels * pixels), 1.0F);
      plain[static_cast<size_t>(channels * pixels + place)] = bad;
      const int32_t expected = std::isnan(bad) ? 9 : bad > 0 ? 255 : 0;
      std::vector<uint8_t> flags(3);

      const MapShape shape = this->shape(3, channels, 1, pixels);
      ByteMap map(shape, 1);
      TypeParam::quantize_plain({.shape = shape,
                                 .plain = plain.data(),
                                 .strides = {channels * pixels, pixels, pixels, 1},
                                 .zero_point = 9,
                                 .map = map.data(),
                                 .non_finite = flags.data()});
      EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 0}));
      EXPECT_EQ(map.at(1, place / pixels, 0, place % pixels), expected);

      flags.assign(3, 0);
      std::vector<uint8_t> vectors(plain.size());
      TypeParam::quantize_vectors({.batch = 3,
                                   .features = channels * pixels,
                                   .input = plain.data(),
                                   .zero_point = 9,
                                   .output = vectors.data(),
                                   .non_finite = flags.data()});
      EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 0}));
      EXPECT_EQ(vectors[static_cast<size_t>(channels * pixels + place)], expected);

      for (DataType dtype : kDataTypes) {
        flags.assign(3, 0);
        const TestMap floats = TestMap::of(shape, dtype, [&](int64_t n, int64_t c, int64_t, int64_t x) {
          return plain[static_cast<size_t>((n * channels + c) * pixels + x)];
        });
        TypeParam::quantize_map({.shape = shape,
                                 .dtype = dtype,
                                 .input = floats.data(),
                                 .zero_point = 9,
                                 .map = map.data(),
                                 .non_finite = flags.data()});
        EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 0}));
        EXPECT_EQ(map.at(1, place / pixels, 0, place % pixels), expected);
      }
    }
  }
}

TYPED_TEST(QuantizedBytesTest, ReportsImagesThatAreNotFinite) {
  std::vector<float> plain(3 * 3 * 35, 1.0F);
  plain[2 * 3 * 35 - 1] = kNan;
  std::vector<uint8_t> flags(3);
  ByteMap map({.batch = 3, .channels = 3, .height = 5, .width = 7, .block = 4}, 1);
  TypeParam::quantize_plain({.shape = map.shape(),
                             .plain = plain.data(),
                             .strides = {3 * 35, 35, 7, 1},
                             .zero_point = 9,
                             .map = map.data(),
                             .non_finite = flags.data()});
  EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(map.at(1, 2, 4, 6), 9);
}

TYPED_TEST(QuantizedBytesTest, QuantizesMapsAndVectors) {
  for (const MapShape& shape : this->shapes()) {
    for (DataType dtype : kDataTypes) {
      const TestMap input = TestMap::random(shape, dtype, 3);
      ByteMap map(shape, 1);
      TypeParam::quantize_map({.shape = shape,
                               .dtype = dtype,
                               .input = input.data(),
                               .inverse_scale = 91,
                               .zero_point = 77,
                               .map = map.data()});
      map.expect([&](auto... at) { return quantized_byte(static_cast<float>(input.at(at...)), 91, 77); });
    }
  }
  for (const int64_t features : {1, 15, 16, 17, 5000}) {
    const std::vector<float> input = random_floats(3 * features, 1);
    std::vector<uint8_t> output(input.size() + 1, 99);
    TypeParam::quantize_vectors({.batch = 3,
                                 .features = features,
                                 .input = input.data(),
                                 .inverse_scale = 100,
                                 .zero_point = 128,
                                 .output = output.data()});
    for (size_t i = 0; i < input.size(); ++i) EXPECT_EQ(output[i], quantized_byte(input[i], 100, 128));
    EXPECT_EQ(output.back(), 99) << "written beside the vectors";
  }
}

TYPED_TEST(QuantizedBytesTest, QuantizesWhatLayerNormMakes) {
  for (const MapShape& shape : this->shapes()) {
    const std::vector<float> weight = random_floats(shape.channels, 4), bias = random_floats(shape.channels, 5);
    for (DataType dtype : kDataTypes) {
      const TestMap input = TestMap::random(shape, dtype, 3);
      const TestMap numbers = TestMap::of(shape, DataType::kFloat, [&](auto... at) { return input.at(at...); });
      TestMap floats(shape, DataType::kFloat);
      LayerNormForward norm{.shape = shape, .input = numbers.data(), .weight = weight.data(), .bias = bias.data()};
      norm.output = floats.data();
      TypeParam::layer_norm_forward(norm);
      ByteMap map(shape, 1);
      std::vector<uint8_t> flags(static_cast<size_t>(shape.batch), 7);
      LayerNormBytes a{norm};
      a.dtype = dtype;
      a.input = input.data();
      a.output = map.data();
      a.inverse_scale = 31;
      a.zero_point = 77;
      a.non_finite = flags.data();
      TypeParam::layer_norm_bytes(a);
      map.expect([&](auto... at) { return quantized_byte(static_cast<float>(floats.at(at...)), 31, 77); });
      EXPECT_EQ(flags, std::vector<uint8_t>(flags.size(), 7)) << "all numbers are finite";
    }
  }
  const MapShape shape = this->shape(3, 20, 1, 37);
  TestMap input = TestMap::random(shape, DataType::kFloat, 3);
  input.set(1, 19, 0, 36, kNan);
  const std::vector<float> ones(20, 1.0F);
  std::vector<uint8_t> flags(3);
  ByteMap map(shape, 1);
  LayerNormBytes a{{.shape = shape, .input = input.data(), .weight = ones.data(), .bias = ones.data()}};
  a.output = map.data();
  a.zero_point = 9;
  a.non_finite = flags.data();
  TypeParam::layer_norm_bytes(a);
  EXPECT_EQ(flags, (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(map.at(1, 3, 0, 36), 9);
}

TYPED_TEST(QuantizedBytesTest, Dequantizes) {
  for (const MapShape& shape : this->shapes()) {
    const ByteMap map(shape, 5);
    const auto value = [&](auto... at) { return static_cast<float>(map.at(at...) - 100) * 0.3F; };
    for (DataType dtype : kDataTypes) {
      TestMap output(shape, dtype);
      TypeParam::dequantize_map({.shape = shape,
                                 .map = map.data(),
                                 .scale = 0.3F,
                                 .zero_point = 100,
                                 .dtype = dtype,
                                 .output = output.data()});
      output.expect(value, 0);
    }
    const auto count = static_cast<size_t>(shape.batch * shape.channels * shape.pixels());
    std::vector<float> plain(count + 1, 99), vectors(count + 1, 99);
    std::vector<uint8_t> bytes(count + 1, 99);
    TypeParam::dequantize_plain(
        {.shape = shape, .map = map.data(), .scale = 0.3F, .zero_point = 100, .plain = plain.data()});
    TypeParam::flatten_bytes({.shape = shape, .map = map.data(), .plain = bytes.data()});
    TypeParam::dequantize_vectors({.batch = shape.batch,
                                   .features = shape.channels * shape.pixels(),
                                   .input = bytes.data(),
                                   .scale = 0.3F,
                                   .zero_point = 100,
                                   .output = vectors.data()});
    size_t i = 0;
    for (int64_t n = 0; n < shape.batch; ++n) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        for (int64_t p = 0; p < shape.pixels(); ++p, ++i) {
          ASSERT_EQ(plain[i], value(n, c, p / shape.width, p % shape.width));
          ASSERT_EQ(bytes[i], map.at(n, c, p / shape.width, p % shape.width));
          ASSERT_EQ(vectors[i], plain[i]);
        }
      }
    }
    EXPECT_TRUE(plain[count] == 99 && bytes[count] == 99 && vectors[count] == 99) << "written beside the vectors";
  }
}

TYPED_TEST(QuantizedBytesTest, AddsMapsOfDifferentScales) {
  const float scales[] = {0.05F, 0.021F, 0.3F, 0.007F};
  const uint8_t zero_points[] = {0, 128, 255, 17};
  for (const MapShape& shape : this->shapes()) {
    for (int count = 1; count <= kMostByteInputs; ++count) {
      for (const UnitActivation activation : kRanges) {
        std::vector<ByteMap> inputs;
        SumBytes a{.shape = shape, .input_count = count};
        for (int i = 0; i < count; ++i) inputs.emplace_back(shape, static_cast<uint64_t>(i));
        for (int i = 0; i < count; ++i) {
          a.inputs[i] = inputs[static_cast<size_t>(i)].data();
          a.scales[i] = scales[i];
          a.zero_points[i] = zero_points[i];
        }
        ByteMap output(shape, 9);
        a.to = {.output = output.data(), .inverse_scale = 9, .zero_point = 40, .activation = activation};
        TypeParam::sum_bytes(a);
        const auto sum = [&](auto... at) {
          float value = static_cast<float>(inputs[0].at(at...) - zero_points[0]) * scales[0];
          for (int i = 1; i < count; ++i) {
            value = std::fma(static_cast<float>(inputs[static_cast<size_t>(i)].at(at...) - zero_points[i]), scales[i],
                             value);
          }
          return bounded(activation, value);
        };
        output.expect([&](auto... at) { return quantized_byte(sum(at...), 9, 40); });
        for (DataType dtype : kDataTypes) {
          TestMap floats(shape, dtype);
          a.to.dtype = dtype;
          a.to.output = floats.data();
          TypeParam::sum_bytes(a);
          floats.expect(sum, 0);
        }
        ByteMap overwritten = inputs[0];
        a.inputs[0] = overwritten.data();
        a.to.dtype = DataType::kUint8;
        a.to.output = overwritten.data();
        TypeParam::sum_bytes(a);
        EXPECT_EQ(overwritten, output);
      }
    }
  }
}

TYPED_TEST(QuantizedBytesTest, ScalesChannelsAndAddsAResidual) {
  for (const MapShape& shape : this->shapes()) {
    const std::vector<float> factors = random_floats(shape.batch * shape.channels, 1);
    const ByteMap input(shape, 1), bytes(shape, 2);
    const TestMap floats = TestMap::random(shape, DataType::kFloat, 3);
    ByteMap output(shape, 9);
    ScaleChannelsBytes a{
        .shape = shape, .input = input.data(), .scale = 0.07F, .zero_point = 31, .factor = factors.data()};
    a.to = {.output = output.data(), .inverse_scale = 20, .zero_point = 40};
    const auto product = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
      return static_cast<float>(input.at(n, c, y, x) - 31) *
             (factors[static_cast<size_t>(n * shape.channels + c)] * 0.07F);
    };
    TypeParam::scale_channels_bytes(a);
    output.expect([&](auto... at) { return quantized_byte(product(at...), 20, 40); });
    a.to.residual = bytes.data();
    a.to.residual_scale = 0.11F;
    a.to.residual_zero = 200;
    TypeParam::scale_channels_bytes(a);
    output.expect([&](auto... at) {
      return quantized_byte(std::fma(static_cast<float>(bytes.at(at...) - 200), 0.11F, product(at...)), 20, 40);
    });
    a.to.residual = floats.data();
    a.to.residual_dtype = DataType::kFloat;
    TypeParam::scale_channels_bytes(a);
    output.expect(
        [&](auto... at) { return quantized_byte(product(at...) + static_cast<float>(floats.at(at...)), 20, 40); });
  }
}

TYPED_TEST(QuantizedBytesTest, TablesHoldActivations) {
  for (const UnitActivation activation : kRanges) {
    std::vector<uint8_t> table(256);
    TypeParam::byte_table({.scale = 0.1F,
                           .zero_point = 90,
                           .activation = activation,
                           .output_inverse_scale = 13,
                           .output_zero_point = 20,
                           .table = table.data()});
    for (int q = 0; q < 256; ++q) {
      const float value = bounded(activation, static_cast<float>(q - 90) * 0.1F);
      EXPECT_EQ(table[static_cast<size_t>(q)], quantized_byte(value, 13, 20)) << q;
    }
  }
  std::vector<uint8_t> table(256);
  TypeParam::byte_table({.scale = 0.05F,
                         .zero_point = 128,
                         .activation = UnitActivation::kSilu,
                         .output_inverse_scale = 40,
                         .output_zero_point = 12,
                         .table = table.data()});
  for (int q = 0; q < 256; ++q) {
    const double x = (q - 128) * 0.05, exact = x / (1 + std::exp(-x)) * 40 + 12;
    EXPECT_NEAR(table[static_cast<size_t>(q)], std::clamp(exact, 0.0, 255.0), 0.5001) << q;
  }
  for (const int64_t count : {1, 63, 64, 200, 40000}) {
    const ByteMap input({.batch = 1, .channels = count, .block = 1}, 1);
    ByteMap output = input;
    TypeParam::map_bytes({.count = count, .input = output.data(), .table = table.data(), .output = output.data()});
    output.expect([&](auto... at) { return table[static_cast<size_t>(input.at(at...))]; });
  }
}

// Windows as in pool_test.cpp: cut by the image's edges, larger than the image, or outside of it.
struct Case {
  int64_t channels;
  Window window;
  int64_t out_height, out_width, bottom, right;
};
const Case kPools[] = {{17, {3, 3, 2, 2, 1, 1}, 6, 4, 1, 1},   {40, {3, 3, 1, 1, 1, 1}, 11, 7, 1, 1},
                       {16, {2, 2, 2, 2, 0, 0}, 6, 4, 0, 0},   {3, {4, 3, 1, 3, 2, 0}, 11, 3, 1, 2},
                       {17, {15, 17, 1, 1, 3, 6}, 2, 2, 2, 5}, {1, {2, 2, 2, 2, 3, 4}, 8, 7, 4, 3},
                       {17, {3, 3, 2, 2, 0, 0}, 5, 3, 0, 0}};

// Calls use(row, column) for the pixels of the image in the window of output pixel (y, x).
template <typename Use>
void each_covered(const Case& c, const MapShape& in, int64_t y, int64_t x, Use use) {
  for (int64_t i = 0; i < c.window.kernel_height; ++i) {
    for (int64_t j = 0; j < c.window.kernel_width; ++j) {
      const int64_t row = y * c.window.stride_height - c.window.top + i;
      const int64_t column = x * c.window.stride_width - c.window.left + j;
      if (row >= 0 && row < in.height && column >= 0 && column < in.width) use(row, column);
    }
  }
}
// Returns how many pixels of a window lie in the image with its padding.
int64_t in_padded(int64_t at, int64_t kernel, int64_t stride, int64_t before, int64_t extent, int64_t after) {
  const int64_t start = at * stride - before;
  return std::min(kernel, extent + after - start);
}

TYPED_TEST(QuantizedBytesTest, Pools) {
  for (const Case& c : kPools) {
    const MapShape in = this->shape(3, c.channels, 11, 7);
    const MapShape out = this->shape(3, c.channels, c.out_height, c.out_width);
    const ByteMap input(in, 1);
    ByteMap output(out, 2);
    TypeParam::max_pool_bytes(
        {.input_shape = in, .output_shape = out, .window = c.window, .input = input.data(), .output = output.data()});
    output.expect([&](int64_t n, int64_t channel, int64_t y, int64_t x) {
      int32_t largest = 0;
      each_covered(c, in, y, x, [&](int64_t row, int64_t column) {
        largest = std::max(largest, input.at(n, channel, row, column));
      });
      return largest;
    });
    for (const bool count_padding : {false, true}) {
      AveragePoolBytes a{.input_shape = in,
                         .output_shape = out,
                         .window = c.window,
                         .bottom = c.bottom,
                         .right = c.right,
                         .count_padding = count_padding,
                         .input = input.data(),
                         .scale = 0.2F,
                         .zero_point = 50};
      a.to = {.output = output.data(), .inverse_scale = 5.5F, .zero_point = 60};
      TypeParam::average_pool_bytes(a);
      const auto mean = [&](int64_t n, int64_t channel, int64_t y, int64_t x) {
        int64_t sum = 0, count = 0;
        each_covered(c, in, y, x, [&](int64_t row, int64_t column) {
          sum += input.at(n, channel, row, column) - 50;
          ++count;
        });
        if (count_padding) {
          count = in_padded(y, c.window.kernel_height, c.window.stride_height, c.window.top, in.height, c.bottom) *
                  in_padded(x, c.window.kernel_width, c.window.stride_width, c.window.left, in.width, c.right);
        }
        return static_cast<float>(sum) * (0.2F / static_cast<float>(count));
      };
      output.expect([&](auto... at) { return quantized_byte(mean(at...), 5.5F, 60); });
      TestMap floats(out, DataType::kFloat);
      a.to.dtype = DataType::kFloat;
      a.to.output = floats.data();
      TypeParam::average_pool_bytes(a);
      floats.expect(mean, 0);
    }
  }
}

TYPED_TEST(QuantizedBytesTest, MeansOfWholeImages) {
  for (const MapShape& shape : this->shapes()) {
    const ByteMap input(shape, 1);
    const auto count = static_cast<size_t>(shape.batch * shape.channels);
    std::vector<uint8_t> bytes(count + 1, 99);
    std::vector<float> floats(count + 1, 99);
    GlobalAverageBytes a{.shape = shape, .input = input.data(), .scale = 0.3F, .zero_point = 120};
    a.to = {.output = bytes.data(), .inverse_scale = 10, .zero_point = 128};
    TypeParam::global_average_bytes(a);
    a.to = {.dtype = DataType::kFloat, .output = floats.data()};
    TypeParam::global_average_bytes(a);
    for (size_t i = 0; i < count; ++i) {
      const int64_t n = static_cast<int64_t>(i) / shape.channels, c = static_cast<int64_t>(i) % shape.channels;
      int64_t sum = 0;
      for (int64_t p = 0; p < shape.pixels(); ++p) sum += input.at(n, c, p / shape.width, p % shape.width) - 120;
      const float mean = static_cast<float>(sum) * (0.3F / static_cast<float>(shape.pixels()));
      EXPECT_EQ(floats[i], mean);
      EXPECT_EQ(bytes[i], quantized_byte(mean, 10, 128));
    }
    EXPECT_TRUE(bytes[count] == 99 && floats[count] == 99) << "written beside the vectors";
  }
}

struct Channels {
  int64_t source, target, from, to, count;
};
const Channels kChannels[] = {{16, 16, 0, 0, 16},  {16, 32, 0, 16, 16}, {40, 40, 0, 0, 40}, {3, 40, 0, 17, 3},
                              {17, 40, 0, 23, 17}, {40, 17, 23, 0, 17}, {40, 16, 5, 0, 16}, {1, 3, 0, 2, 1},
                              {40, 40, 33, 1, 5},  {16, 17, 0, 1, 16},  {64, 80, 7, 9, 50}, {3, 1, 1, 0, 1}};

TYPED_TEST(QuantizedBytesTest, CopiesChannels) {
  std::vector<uint8_t> table(256);
  for (size_t q = 0; q < 256; ++q) table[q] = static_cast<uint8_t>(q * 89 + 7);
  for (const Channels& c : kChannels) {
    for (const bool fill_rest : {false, true}) {
      for (const bool translated : {false, true}) {
        const ByteMap source(this->shape(3, c.source, 9, 31), 1), before(this->shape(3, c.target, 9, 31), 2);
        ByteMap target = before;
        TypeParam::copy_channels_bytes({.source_shape = source.shape(),
                                        .target_shape = target.shape(),
                                        .from = c.from,
                                        .to = c.to,
                                        .count = c.count,
                                        .source = source.data(),
                                        .table = translated ? table.data() : nullptr,
                                        .target = target.data(),
                                        .fill_rest = fill_rest,
                                        .fill = 200});
        target.expect([&](int64_t n, int64_t channel, int64_t y, int64_t x) -> int32_t {
          if (channel < c.to || channel >= c.to + c.count) return fill_rest ? 200 : before.at(n, channel, y, x);
          const int32_t byte = source.at(n, channel - c.to + c.from, y, x);
          return translated ? table[static_cast<size_t>(byte)] : byte;
        });
      }
    }
  }
}

TYPED_TEST(QuantizedBytesTest, PermutesChannels) {
  for (const MapShape& shape : this->shapes()) {
    const ByteMap input(shape, 1);
    std::vector<int32_t> channels(static_cast<size_t>(shape.channels));
    for (int64_t c = 0; c < shape.channels; ++c) {
      channels[static_cast<size_t>(c)] = static_cast<int32_t>((c * 7 + 3) % shape.channels);
    }
    ByteMap output(shape, 2);
    TypeParam::permute_channels_bytes(
        {.shape = shape, .channels = channels.data(), .input = input.data(), .output = output.data()});
    output.expect([&](int64_t n, int64_t c, int64_t y, int64_t x) {
      return input.at(n, channels[static_cast<size_t>(c)], y, x);
    });
  }
}

TYPED_TEST(QuantizedBytesTest, IsTheSameForAnyThreads) {
  const MapShape shape = this->shape(2, 40, 33, 37);
  const ByteMap input(shape, 1);
  expect_same_for_any_threads([&] {
    ByteMap output(shape, 2);
    SumBytes a{.shape = shape, .inputs = {input.data(), input.data()}, .scales = {0.1F, 0.2F}};
    a.to = {.output = output.data(), .inverse_scale = 4};
    TypeParam::sum_bytes(a);
    return output;
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::quantized_bytes_test
