// Grouped convolution of bytes against its definition in int64, with each kind of instruction.
#include <cstdlib>

#include "trainyard/nn/testing/byte_map.h"

namespace trainyard::nn::cpu::grouped_bytes_test {
namespace {

struct Problem {
  int64_t channels, out, groups, height, width;
  Window window{};
  int64_t dilation = 1, batch = 2;
};

int64_t outputs(int64_t extent, int64_t kernel, int64_t stride, int64_t before, int64_t dilation) {
  return (extent + 2 * before - (kernel - 1) * dilation - 1) / stride + 1;
}

const Problem kProblems[] = {
    // Depthwise: one, two, three and four outputs a piece, one and two quads, odd channels, images smaller than a
    // piece.
    {.channels = 40, .out = 40, .groups = 40, .height = 19, .width = 21, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 17, .out = 17, .groups = 17, .height = 9, .width = 12, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 3, .out = 3, .groups = 3, .height = 8, .width = 7, .window = {5, 5, 1, 1, 2, 2}},
    {.channels = 32, .out = 32, .groups = 32, .height = 14, .width = 14, .window = {5, 5, 2, 2, 2, 2}},
    {.channels = 20, .out = 20, .groups = 20, .height = 7, .width = 7, .window = {7, 7, 1, 1, 3, 3}},
    {.channels = 20, .out = 20, .groups = 20, .height = 9, .width = 5, .window = {2, 2, 1, 1, 0, 1}},
    {.channels = 20, .out = 20, .groups = 20, .height = 3, .width = 3, .window = {1, 1, 1, 1, 0, 0}},
    {.channels = 20, .out = 20, .groups = 20, .height = 11, .width = 13, .window = {3, 3, 3, 3, 0, 0}},
    {.channels = 20, .out = 20, .groups = 20, .height = 11, .width = 13, .window = {1, 9, 1, 2, 0, 4}},
    {.channels = 20, .out = 20, .groups = 20, .height = 12, .width = 15, .window = {3, 3, 1, 1, 2, 2}, .dilation = 2},
    {.channels = 9, .out = 9, .groups = 9, .height = 15, .width = 15, .window = {5, 5, 2, 2, 6, 6}, .dilation = 3},
    {.channels = 16, .out = 16, .groups = 16, .height = 1, .width = 1, .window = {3, 3, 1, 1, 1, 1}},
    // Groups in a block, of a block, of several blocks, across blocks, with more or fewer outputs than inputs.
    {.channels = 32, .out = 32, .groups = 16, .height = 7, .width = 9, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 40, .out = 40, .groups = 10, .height = 7, .width = 9, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 64, .out = 64, .groups = 8, .height = 5, .width = 17, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 48, .out = 48, .groups = 3, .height = 5, .width = 5, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 64, .out = 64, .groups = 2, .height = 5, .width = 5, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 72, .out = 72, .groups = 3, .height = 4, .width = 6, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 30, .out = 30, .groups = 10, .height = 4, .width = 6, .window = {3, 3, 1, 1, 1, 1}, .dilation = 2},
    {.channels = 10, .out = 20, .groups = 10, .height = 6, .width = 6, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 24, .out = 6, .groups = 3, .height = 6, .width = 6, .window = {1, 1, 1, 1, 0, 0}},
    {.channels = 19, .out = 23, .groups = 1, .height = 6, .width = 6, .window = {3, 3, 2, 2, 1, 1}},
    // Depthwise 3x3: rows of fewer outputs than a tile, of one, of one and a part; more rows than a piece of work;
    // strides that differ; no padding, and more than the window.
    {.channels = 16, .out = 16, .groups = 16, .height = 4, .width = 3, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 35, .width = 4, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 7, .width = 7, .window = {3, 3, 1, 1, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 6, .width = 5, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 37, .width = 8, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 14, .width = 14, .window = {3, 3, 2, 2, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 9, .width = 9, .window = {3, 3, 2, 1, 1, 1}},
    {.channels = 16, .out = 16, .groups = 16, .height = 9, .width = 9, .window = {3, 3, 1, 2, 0, 0}},
    {.channels = 16, .out = 16, .groups = 16, .height = 3, .width = 3, .window = {3, 3, 1, 1, 4, 5}},
    // Windows that are as wide, or as tall, as 3x3 alone; groups whose windows and strides differ in both dimensions.
    {.channels = 20, .out = 20, .groups = 20, .height = 18, .width = 41, .window = {5, 3, 1, 1, 2, 1}},
    {.channels = 20, .out = 20, .groups = 20, .height = 9, .width = 15, .window = {3, 7, 1, 1, 1, 3}},
    {.channels = 24, .out = 24, .groups = 6, .height = 8, .width = 11, .window = {2, 3, 1, 2, 0, 1}},
    {.channels = 20, .out = 28, .groups = 2, .height = 7, .width = 9, .window = {3, 1, 2, 1, 1, 0}},
};

template <typename Kernels>
class GroupedBytesTest : public KernelTest<Kernels> {
 protected:
  static std::vector<bool> ways() {
    return has_byte_products(Kernels::kBlock) ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }
  static QuantizedGroupedShape shape_of(const Problem& p, bool vnni) {
    QuantizedGroupedShape s{.input_shape = KernelTest<Kernels>::shape(p.batch, p.channels, p.height, p.width),
                            .output_shape = KernelTest<Kernels>::shape(p.batch, p.out),
                            .groups = p.groups,
                            .window = p.window,
                            .dilation_height = p.dilation,
                            .dilation_width = p.dilation,
                            .vnni = vnni,
                            .threads = omp_get_max_threads()};
    const Window& w = p.window;
    s.output_shape.height = outputs(p.height, w.kernel_height, w.stride_height, w.top, p.dilation);
    s.output_shape.width = outputs(p.width, w.kernel_width, w.stride_width, w.left, p.dilation);
    return s;
  }
};
TYPED_TEST_SUITE(GroupedBytesTest, Compilations, CompilationName);

// Weights, some of which are the largest: two products of 255 * 127 saturate 16 bits.
std::vector<int8_t> weights_of(const QuantizedGroupedShape& s) {
  const int64_t count = s.output_shape.channels * s.group_in() * s.window_pixels();
  std::vector<int8_t> weights(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    weights[static_cast<size_t>(i)] = static_cast<int8_t>(i / 7 % 3 == 0   ? 127
                                                          : i / 7 % 3 == 1 ? -127
                                                                           : i * 29 % 255 - 127);
  }
  return weights;
}
std::vector<float> per_channel(int64_t channels, float first, float step) {
  std::vector<float> values(static_cast<size_t>(channels));
  for (size_t c = 0; c < values.size(); ++c) values[c] = first + step * static_cast<float>(c % 11);
  return values;
}

// A convolution with memory of its own.
template <typename Kernels>
struct Layer {
  QuantizedGroupedConvolution a;
  std::vector<int8_t> plain;
  TestBytes packed, scratch;
  std::vector<int32_t> offsets;
  std::vector<float> factors, bias;

  Layer(const QuantizedGroupedShape& shape, const ByteMap& input, uint8_t input_zero)
      : a{shape},
        plain(weights_of(shape)),
        packed(shape.packed_bytes()),
        scratch(shape.scratch_bytes()),
        offsets(static_cast<size_t>(shape.output_shape.padded_channels()), 12345),
        factors(per_channel(shape.output_shape.padded_channels(), 0.001F, 0.0003F)),
        bias(per_channel(shape.output_shape.padded_channels(), -3, 0.7F)) {
    QuantizedGroupedPack pack{shape};
    pack.plain = plain.data();
    pack.input_zero = input_zero;
    pack.packed = reinterpret_cast<int8_t*>(packed.data());
    pack.offsets = offsets.data();
    Kernels::quantized_grouped_pack(pack);
    a.input = input.data();
    a.input_zero = input_zero;
    a.weights = pack.packed;
    a.offsets = offsets.data();
    a.factors = factors.data();
    a.bias = bias.data();
    a.scratch = scratch.data();
  }
  Layer(const Layer&) = delete;

  void run(const QuantizedOutput& to) {
    a.to = to;
    Kernels::quantized_grouped_convolution(a);
    EXPECT_TRUE(packed.fences_hold() && scratch.fences_hold()) << "written beside the memory";
  }

  // Returns the definition's value before the residual, and the same with factors and biases times `scale`.
  float value(const ByteMap& input, int64_t n, int64_t c, int64_t y, int64_t x) const {
    return scaled(1, input, n, c, y, x);
  }
  float scaled(float scale, const ByteMap& input, int64_t n, int64_t c, int64_t y, int64_t x) const {
    const Window& w = a.window;
    int64_t sum = 0;
    for (int64_t i = 0; i < a.group_in(); ++i) {
      for (int64_t ky = 0; ky < w.kernel_height; ++ky) {
        for (int64_t kx = 0; kx < w.kernel_width; ++kx) {
          const int64_t row = y * w.stride_height + ky * a.dilation_height - w.top;
          const int64_t column = x * w.stride_width + kx * a.dilation_width - w.left;
          if (row < 0 || row >= a.input_shape.height || column < 0 || column >= a.input_shape.width) continue;
          const int64_t at = ((c * a.group_in() + i) * w.kernel_height + ky) * w.kernel_width + kx;
          const int64_t channel = c / a.group_out() * a.group_in() + i;
          sum += int64_t{plain[static_cast<size_t>(at)]} * (input.at(n, channel, row, column) - a.input_zero);
        }
      }
    }
    return std::fma(static_cast<float>(sum), scale * factors[static_cast<size_t>(c)],
                    scale * bias[static_cast<size_t>(c)]);
  }
};

// Returns the byte of an activated value that is in units of the output's scale before.
int32_t byte_of_quotient(UnitActivation activation, float quotient, float inverse_scale, uint8_t zero_point) {
  if (activation != UnitActivation::kNone) quotient = std::max(quotient, 0.0F);
  if (activation == UnitActivation::kRelu6) quotient = std::min(quotient, 6 * inverse_scale);
  return quantized_byte(quotient, 1, zero_point);
}

// Returns a map with many of the largest bytes.
ByteMap input_of(const MapShape& shape) {
  ByteMap input(shape, 1);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (i / 50 % 3 == 0) input.data()[i] = 255;
  }
  return input;
}

TYPED_TEST(GroupedBytesTest, IsExact) {
  for (const Problem& p : kProblems) {
    for (const bool vnni : this->ways()) {
      SCOPED_TRACE(::testing::Message() << p.channels << " channels, " << p.groups << " groups, window "
                                        << p.window.kernel_width << (vnni ? ", VNNI" : ""));
      const QuantizedGroupedShape shape = this->shape_of(p, vnni);
      const ByteMap input = input_of(shape.input_shape);
      for (const uint8_t input_zero : {0, 133}) {
        Layer<TypeParam> layer(shape, input, input_zero);
        TestMap floats(shape.output_shape, DataType::kFloat);
        layer.run({.dtype = DataType::kFloat, .output = floats.data()});
        const auto value = [&](auto... at) { return layer.value(input, at...); };
        floats.expect(value, 0);
        for (const UnitActivation activation : {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kRelu6}) {
          ByteMap output(shape.output_shape, 2);
          layer.run({.output = output.data(), .inverse_scale = 12, .zero_point = 30, .activation = activation});
          output.expect(
              [&](auto... at) { return byte_of_quotient(activation, layer.scaled(12, input, at...), 12, 30); });
        }
      }
    }
  }
}

TYPED_TEST(GroupedBytesTest, AddsResidualsAndActivates) {
  for (const Problem& p : {kProblems[0], kProblems[13]}) {
    for (const bool vnni : this->ways()) {
      const QuantizedGroupedShape shape = this->shape_of(p, vnni);
      const ByteMap input = input_of(shape.input_shape), bytes(shape.output_shape, 3);
      Layer<TypeParam> layer(shape, input, 7);
      ByteMap output(shape.output_shape, 2);
      QuantizedOutput to{.output = output.data(),
                         .inverse_scale = 12,
                         .zero_point = 30,
                         .activation = UnitActivation::kRelu,
                         .residual = bytes.data(),
                         .residual_scale = 0.1F,
                         .residual_zero = 200};
      layer.run(to);
      output.expect([&](auto... at) {
        const float sum = std::fma(static_cast<float>(bytes.at(at...) - 200), 0.1F, layer.value(input, at...));
        return quantized_byte(std::max(sum, 0.0F), 12, 30);
      });
      for (DataType dtype : kDataTypes) {
        const TestMap floats = TestMap::random(shape.output_shape, dtype, 4);
        to.residual = floats.data();
        to.residual_dtype = dtype;
        layer.run(to);
        output.expect([&](auto... at) {
          return quantized_byte(std::max(layer.value(input, at...) + static_cast<float>(floats.at(at...)), 0.0F), 12,
                                30);
        });
        TestMap activated_floats(shape.output_shape, dtype);
        layer.run({.dtype = dtype, .output = activated_floats.data(), .activation = UnitActivation::kSigmoid});
        activated_floats.expect([&](auto... at) { return 1 / (1 + std::exp(-double{layer.value(input, at...)})); });
      }
    }
  }
}

// Factors so large that a value may leave int32 before it is limited to bytes.
TYPED_TEST(GroupedBytesTest, LimitsLargeValues) {
  for (const Problem& p : {kProblems[0], kProblems[1]}) {
    for (const bool vnni : this->ways()) {
      const QuantizedGroupedShape shape = this->shape_of(p, vnni);
      const ByteMap input = input_of(shape.input_shape);
      Layer<TypeParam> layer(shape, input, 7);
      for (size_t i = 0; i < layer.factors.size(); i += 3) layer.factors[i] = 1e6F;
      for (const UnitActivation activation : {UnitActivation::kNone, UnitActivation::kRelu6}) {
        ByteMap output(shape.output_shape, 2);
        layer.run({.output = output.data(), .inverse_scale = 12, .zero_point = 30, .activation = activation});
        output.expect([&](auto... at) { return byte_of_quotient(activation, layer.scaled(12, input, at...), 12, 30); });
      }
    }
  }
}

TYPED_TEST(GroupedBytesTest, IsTheSameForAnyThreads) {
  for (const Problem& p : {kProblems[0], kProblems[14], kProblems[17]}) {
    Problem tall = p;
    tall.height = 40;
    const ByteMap input = input_of(this->shape_of(tall, false).input_shape);
    expect_same_for_any_threads([&] {
      const QuantizedGroupedShape shape = this->shape_of(tall, this->ways().back());
      Layer<TypeParam> layer(shape, input, 7);
      ByteMap output(shape.output_shape, 2);
      layer.run({.output = output.data(), .inverse_scale = 12, .zero_point = 30});
      return output;
    });
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::grouped_bytes_test
