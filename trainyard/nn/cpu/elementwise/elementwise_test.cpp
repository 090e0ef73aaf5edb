#include "trainyard/core/testing/worst.h"
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::elementwise_test {
namespace {

TRAINYARD_KERNEL_TEST(ElementwiseTest);

struct Function {
  UnitActivation kind;
  double (*value)(double x);
  double (*derivative)(double x);
};
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double gauss(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
}
double below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}
// By definition. Random inputs do not hit the corners.
const Function kFunctions[] = {
    {UnitActivation::kNone, [](double x) { return x; }, [](double) { return 1.0; }},
    {UnitActivation::kRelu, [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {UnitActivation::kRelu6, [](double x) { return std::min(std::max(x, 0.0), 6.0); },
     [](double x) { return x > 0 && x < 6 ? 1.0 : 0.0; }},
    {UnitActivation::kSilu, [](double x) { return x * sigmoid(x); },
     [](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
    {UnitActivation::kHardSwish, [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; },
     [](double x) { return x <= -3  ? 0.0
                           : x >= 3 ? 1.0
                                    : x / 3 + 0.5; }},
    {UnitActivation::kHardSigmoid, [](double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; },
     [](double x) { return x > -3 && x < 3 ? 1.0 / 6 : 0.0; }},
    {UnitActivation::kSigmoid, sigmoid, [](double x) { return sigmoid(x) * (1 - sigmoid(x)); }},
    {UnitActivation::kGelu, [](double x) { return x * below(x); }, [](double x) { return below(x) + x * gauss(x); }},
    {UnitActivation::kTanh, [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }},
};

// Numbers between -8 and 8: past the bends of all functions.
TestMap wide(const MapShape& shape, DataType dtype, uint64_t seed) {
  const TestMap narrow = TestMap::random(shape, dtype, seed);
  return TestMap::of(shape, dtype,
                     [&](int64_t n, int64_t c, int64_t y, int64_t x) { return 4 * narrow.at(n, c, y, x); });
}

TYPED_TEST(ElementwiseTest, SumsOneToFourMaps) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      for (int count = 1; count <= kMaxGradients; ++count) {
        std::vector<TestMap> maps;
        for (int i = 0; i < count; ++i) maps.push_back(TestMap::random(shape, dtype, static_cast<uint64_t>(i)));
        const auto sum = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
          double total = 0;
          for (const TestMap& map : maps) total += map.at(n, c, y, x);
          return total;
        };
        SumForward a{.shape = shape, .dtype = dtype, .input_count = count};
        for (int i = 0; i < count; ++i) a.inputs[i] = maps[static_cast<size_t>(i)].data();
        TestMap output(shape, dtype);
        a.output = output.data();
        TypeParam::sum_forward(a);
        output.expect(sum);

        a.activation = UnitActivation::kRelu;
        TypeParam::sum_forward(a);
        output.expect([&](auto... at) { return std::max(0.0, sum(at...)); });

        TestBytes mask(shape.elements() / 8);
        a.mask = mask.data();
        TestMap last = maps.back();
        a.inputs[count - 1] = a.output = last.data();  // in place
        TypeParam::sum_forward(a);
        EXPECT_EQ(last, output);
        EXPECT_TRUE(mask.fences_hold());
        for (int64_t i = 0; i < shape.elements(); ++i) {
          const int64_t lane = i % shape.block, pixel = i / shape.block, block = pixel / shape.pixels();
          const double value = output.at(block / shape.blocks(), block % shape.blocks() * shape.block + lane,
                                         pixel % shape.pixels() / shape.width, pixel % shape.width);
          ASSERT_EQ((mask.data()[i / 8] >> (i % 8)) & 1, value > 0) << i;
        }
      }
    }
  }
}

TYPED_TEST(ElementwiseTest, ActivatesAsDefined) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      TestMap input = wide(shape, dtype, 1);
      const TestMap before = input;
      for (const Function& f : kFunctions) {
        TestMap output(shape, dtype);
        const auto expected = [&](auto... at) { return f.value(before.at(at...)); };
        TypeParam::activation_forward(
            {.shape = shape, .dtype = dtype, .activation = f.kind, .input = before.data(), .output = output.data()});
        output.expect(expected);
        input = before;  // in place
        TypeParam::activation_forward(
            {.shape = shape, .dtype = dtype, .activation = f.kind, .input = input.data(), .output = input.data()});
        EXPECT_EQ(input, output);
      }
    }
  }
}

// Far from zero GELU is a small part of its input, which absolute errors would not show.
TYPED_TEST(ElementwiseTest, GeluIsAccurateInItsTail) {
  constexpr int64_t kPixels = 4001;
  const MapShape shape = this->shape(1, 2, 1, kPixels);
  const TestMap input = TestMap::of(shape, DataType::kFloat, [](int64_t, int64_t c, int64_t, int64_t x) {
    return (c == 0 ? -5.0 : 5.0) * static_cast<double>(x + 1) / kPixels;
  });
  TestMap output(shape, DataType::kFloat);
  TypeParam::activation_forward(
      {.shape = shape, .activation = UnitActivation::kGelu, .input = input.data(), .output = output.data()});
  double largest = 0;
  input.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    const double value = input.at(n, c, y, x), exact = value * std::erfc(-value / std::sqrt(2.0)) / 2;
    core::take_worst(largest, std::abs(output.at(n, c, y, x) / exact - 1));
  });
  EXPECT_LT(largest, 8e-7);
  EXPECT_GT(largest, 0);
}

// In bfloat16 the error is that of rounding and a twentieth more, or absolutely what its GELU leaves: at
// each number of 8 bits from 2^-30 to 16, and its negative.
TYPED_TEST(ElementwiseTest, GeluInBfloat16IsRoundedOnceEverywhere) {
  constexpr int64_t kFrom = -30 * 128, kTo = 4 * 128;  // steps of an eighth of a percent: 2^-30 to 16
  const MapShape shape = this->shape(1, 2, 1, kTo - kFrom);
  const TestMap input = TestMap::of(shape, DataType::kBfloat16, [](int64_t, int64_t c, int64_t, int64_t x) {
    const int64_t step = kFrom + x, power = step >= 0 ? step / 128 : -((127 - step) / 128);
    return (c == 0 ? -1 : 1) * std::ldexp(1 + static_cast<double>(step - power * 128) / 128, static_cast<int>(power));
  });
  const TestMap ones = TestMap::of(shape, DataType::kBfloat16, [](auto...) { return 1.0; });
  TestMap output(shape, DataType::kBfloat16), gradient(shape, DataType::kBfloat16);
  TypeParam::activation_forward({.shape = shape,
                                 .dtype = DataType::kBfloat16,
                                 .activation = UnitActivation::kGelu,
                                 .input = input.data(),
                                 .output = output.data()});
  TypeParam::activation_backward({.shape = shape,
                                  .dtype = DataType::kBfloat16,
                                  .activation = UnitActivation::kGelu,
                                  .gradients = {ones.data()},
                                  .input = input.data(),
                                  .input_gradient = gradient.data()});
  double value_excess = 0, slope_excess = 0;
  input.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
    constexpr double kRounding = 1.06 / 256;
    const double at = input.at(n, c, y, x), value = at * below(at), slope = below(at) + at * gauss(at);
    core::take_worst(value_excess, std::abs(output.at(n, c, y, x) - value) - kRounding * std::abs(value));
    core::take_worst(slope_excess, std::abs(gradient.at(n, c, y, x) - slope) - kRounding * std::abs(slope));
  });
  EXPECT_LT(value_excess, 7e-7);
  EXPECT_LT(slope_excess, 1e-6);
}

TYPED_TEST(ElementwiseTest, GeluOfWhatIsNotFiniteIsPyTorchs) {
  const MapShape shape = this->shape(1, 3, 1, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  for (DataType dtype : kDataTypes) {
    const TestMap input = TestMap::of(shape, dtype, [&](int64_t, int64_t c, int64_t, int64_t) {
      return c == 0 ? infinity : c == 1 ? -infinity : std::nan("");
    });
    TestMap output(shape, dtype);
    TypeParam::activation_forward({.shape = shape,
                                   .dtype = dtype,
                                   .activation = UnitActivation::kGelu,
                                   .input = input.data(),
                                   .output = output.data()});
    EXPECT_EQ(output.at(0, 0, 0, 0), infinity);
    EXPECT_TRUE(std::isnan(output.at(0, 1, 0, 0)));
    EXPECT_TRUE(std::isnan(output.at(0, 2, 0, 0)));
  }
}

TYPED_TEST(ElementwiseTest, PassesGradientsBackAsDefined) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      const TestMap input = wide(shape, dtype, 1), first = TestMap::random(shape, dtype, 2),
                    second = TestMap::random(shape, dtype, 3), before = TestMap::random(shape, dtype, 4);
      for (const Function& f : kFunctions) {
        for (const int count : {1, 2}) {
          const auto expected = [&](auto... at) {
            return (first.at(at...) + (count == 2 ? second.at(at...) : 0)) * f.derivative(input.at(at...));
          };
          TestMap fresh(shape, dtype), added = before, in_place = first;
          ActivationBackward a{.shape = shape,
                               .dtype = dtype,
                               .activation = f.kind,
                               .gradients = {first.data(), second.data()},
                               .gradient_count = count,
                               .input = input.data(),
                               .input_gradient = fresh.data()};
          expect_fresh_and_added(TypeParam::activation_backward, a, fresh, added, expected, 2e-6);
          a.gradients[0] = a.input_gradient = in_place.data();
          a.accumulate = false;
          TypeParam::activation_backward(a);
          EXPECT_EQ(in_place, fresh);
        }
      }
    }
  }
}

// There exponentials are zero or infinite.
TYPED_TEST(ElementwiseTest, GradientsAreFiniteFarFromZero) {
  const std::vector<double> sizes{20, 87, 88, 90, 104, 1000, 1e6, 1e18, 1e30, 3e38};
  const MapShape shape = this->shape(1, 2, 1, static_cast<int64_t>(sizes.size()));
  for (DataType dtype : kDataTypes) {
    const TestMap input = TestMap::of(shape, dtype, [&](int64_t, int64_t c, int64_t, int64_t x) {
      return c == 0 ? -sizes[static_cast<size_t>(x)] : sizes[static_cast<size_t>(x)];
    });
    const TestMap gradient = TestMap::of(shape, dtype, [](auto...) { return 2.0; });
    for (const Function& f : kFunctions) {
      TestMap result(shape, dtype);
      TypeParam::activation_backward({.shape = shape,
                                      .dtype = dtype,
                                      .activation = f.kind,
                                      .gradients = {gradient.data()},
                                      .input = input.data(),
                                      .input_gradient = result.data()});
      result.expect([&](auto... at) { return 2 * f.derivative(input.at(at...)); });
    }
  }
}

TYPED_TEST(ElementwiseTest, PassesGradientsBackThroughAMask) {
  for (DataType dtype : kDataTypes) {
    for (const MapShape& shape : this->shapes()) {
      const TestMap values = TestMap::random(shape, dtype, 1), gradient = TestMap::random(shape, dtype, 2);
      TestMap output(shape, dtype), result(shape, dtype);
      TestBytes mask(shape.elements() / 8);
      TypeParam::sum_forward({.shape = shape,
                              .dtype = dtype,
                              .activation = UnitActivation::kRelu,
                              .inputs = {values.data()},
                              .input_count = 1,
                              .mask = mask.data(),
                              .output = output.data()});
      TypeParam::activation_backward({.shape = shape,
                                      .dtype = dtype,
                                      .gradients = {gradient.data()},
                                      .mask = mask.data(),
                                      .input_gradient = result.data()});
      result.expect([&](auto... at) { return values.at(at...) > 0 ? gradient.at(at...) : 0.0; }, 0);
    }
  }
}

// Such maps are written past the caches, by another instruction.
TYPED_TEST(ElementwiseTest, WritesMapsThatNoCacheHolds) {
  constexpr int64_t kBytes = int64_t{65} << 20;
  for (DataType dtype : kDataTypes) {
    const int64_t pixel = 2 * this->shape(1, 1).block * size_of(dtype);
    const MapShape shape = this->shape(1, 2 * this->shape(1, 1).block, 1, kBytes / pixel + 3);
    TestMap input(shape, dtype), output(shape, dtype);
    const int64_t elements = shape.elements();
    for (int64_t i = 0; i < elements; ++i) input.set_element(i, static_cast<double>(i % 251) - 125);
    TypeParam::sum_forward({.shape = shape,
                            .dtype = dtype,
                            .inputs = {input.data(), input.data()},
                            .input_count = 2,
                            .output = output.data()});
    int64_t wrong = 0;
    for (int64_t i = 0; i < elements; ++i) wrong += output.element(i) != 2 * (static_cast<double>(i % 251) - 125);
    EXPECT_EQ(wrong, 0);
    output.expect_clean();
  }
}

TYPED_TEST(ElementwiseTest, KeepsNan) {
  const MapShape shape = this->shape(1, 5, 1, 1);
  const auto value = [](int64_t, int64_t c, int64_t, int64_t) { return c == 2 ? std::nan("") : 1.0; };
  for (DataType dtype : kDataTypes) {
    const TestMap input = TestMap::of(shape, dtype, value);
    TestMap output(shape, dtype);
    TypeParam::sum_forward({.shape = shape,
                            .dtype = dtype,
                            .activation = UnitActivation::kRelu,
                            .inputs = {input.data()},
                            .input_count = 1,
                            .output = output.data()});
    output.expect(value, 0);
  }
}

// As PyTorch's threshold_backward, which stops a gradient only where the input is 0 or less.
TYPED_TEST(ElementwiseTest, GradientPassesNan) {
  const MapShape shape = this->shape(1, 5, 1, 1);
  for (DataType dtype : kDataTypes) {
    const TestMap input = TestMap::of(shape, dtype, [](int64_t, int64_t c, int64_t, int64_t) {
      return c == 2 ? std::nan("") : c == 3 ? -1.0 : 1.0;
    });
    const auto expected = [](int64_t, int64_t c, int64_t, int64_t) { return c == 3 ? 0.0 : 4.0; };
    const TestMap gradient = TestMap::of(shape, dtype, [](auto...) { return 4.0; });
    TestMap output(shape, dtype), by_input(shape, dtype), by_mask(shape, dtype);
    TestBytes mask(shape.elements() / 8);
    TypeParam::sum_forward({.shape = shape,
                            .dtype = dtype,
                            .activation = UnitActivation::kRelu,
                            .inputs = {input.data()},
                            .input_count = 1,
                            .mask = mask.data(),
                            .output = output.data()});
    ActivationBackward a{.shape = shape,
                         .dtype = dtype,
                         .activation = UnitActivation::kRelu,
                         .gradients = {gradient.data()},
                         .input = input.data(),
                         .input_gradient = by_input.data()};
    TypeParam::activation_backward(a);
    a.mask = mask.data();
    a.input_gradient = by_mask.data();
    TypeParam::activation_backward(a);
    by_input.expect(expected, 0);
    by_mask.expect(expected, 0);
  }
}

TYPED_TEST(ElementwiseTest, IsTheSameForAnyThreads) {
  const MapShape shape = this->shape(1, 17, 29, 37);
  const TestMap input = TestMap::random(shape, DataType::kFloat, 1);
  expect_same_for_any_threads([&] {
    TestMap output(shape, DataType::kFloat);
    TypeParam::activation_forward(
        {.shape = shape, .activation = UnitActivation::kSilu, .input = input.data(), .output = output.data()});
    return output;
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::elementwise_test
