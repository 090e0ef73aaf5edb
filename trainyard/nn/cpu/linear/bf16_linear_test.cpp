// The linear kernels in bfloat16, against sums in double of the numbers that they round to.

#include "trainyard/nn/cpu/linear/bf16_linear.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::bf16_linear::bf16_linear_test {
namespace {

struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        input(random_floats(s.batch * s.in, 1)),
        weight(random_floats(s.out * s.in, 2)),
        bias(random_floats(s.out, 3)),
        output_gradient(random_floats(s.batch * s.out, 4)) {}

  Shape shape;
  std::vector<float> input, weight, bias, output_gradient;
};

// A matrix between fences, unwritten.
struct Matrix {
  explicit Matrix(int64_t count) : bytes(count * 4), elements(count) {}
  float* data() { return reinterpret_cast<float*>(bytes.data()); }
  std::vector<float> values() const {
    const auto* const begin = reinterpret_cast<const float*>(bytes.data());
    return {begin, begin + elements};
  }
  TestBytes bytes;
  int64_t elements;
};

std::vector<float> forward_of(const Problem& p, bool with_bias, int threads) {
  Matrix output(p.shape.batch * p.shape.out);
  TestBytes scratch(forward_scratch_bytes(p.shape));
  forward({.shape = p.shape,
           .input = p.input.data(),
           .weight = p.weight.data(),
           .bias = with_bias ? p.bias.data() : nullptr,
           .output = output.data(),
           .scratch = scratch.data(),
           .threads = threads});
  EXPECT_TRUE(output.bytes.fences_hold() && scratch.fences_hold()) << "written beside the matrix";
  return output.values();
}

std::vector<float> input_gradient_of(const Problem& p, int threads) {
  Matrix gradient(p.shape.batch * p.shape.in);
  TestBytes scratch(backward_data_scratch_bytes(p.shape));
  backward_data({.shape = p.shape,
                 .output_gradient = p.output_gradient.data(),
                 .weight = p.weight.data(),
                 .input_gradient = gradient.data(),
                 .scratch = scratch.data(),
                 .threads = threads});
  EXPECT_TRUE(gradient.bytes.fences_hold() && scratch.fences_hold()) << "written beside the matrix";
  return gradient.values();
}

// before: what the gradient holds, which is added to; null: it is overwritten.
std::vector<float> weight_gradient_of(const Problem& p, const std::vector<float>* before, int threads) {
  Matrix gradient(p.shape.out * p.shape.in);
  if (before != nullptr) std::copy(before->begin(), before->end(), gradient.data());
  TestBytes scratch(backward_weights_scratch_bytes(p.shape));
  backward_weights({.shape = p.shape,
                    .input = p.input.data(),
                    .output_gradient = p.output_gradient.data(),
                    .weight_gradient = gradient.data(),
                    .accumulate = before != nullptr,
                    .scratch = scratch.data(),
                    .threads = threads});
  EXPECT_TRUE(gradient.bytes.fences_hold() && scratch.fences_hold()) << "written beside the matrix";
  return gradient.values();
}

float rounded(float value) {
  return rounded_to(DataType::kBfloat16, value);
}

// Expects sums of `terms` products: term(row, column, k) returns two factors. `offset` is added.
template <typename Term, typename Offset>
void expect_sums(const std::vector<float>& actual, int64_t columns, int64_t terms, Term term, Offset offset) {
  int wrong = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / columns, column = static_cast<int64_t>(i) % columns;
    double sum = offset(row, column), size = std::abs(sum);
    for (int64_t k = 0; k < terms; ++k) {
      const auto [first, second] = term(row, column, k);
      const double product = double{rounded(first)} * rounded(second);
      sum += product;
      size += std::abs(product);
    }
    if (std::abs(actual[i] - sum) <= 1e-6 * size || ++wrong > 3) continue;
    ADD_FAILURE() << "at (" << row << ", " << column << "): " << actual[i] << " instead of " << sum;
  }
  EXPECT_LE(wrong, 3) << "values are wrong altogether";
}

class Bf16Linear : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isa() != Isa::kAvx512Bf16) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  }
  // Odd and even counts, full and partial vectors, panels, bands and blocks of samples, a sum in two parts, and more
  // columns than a thread takes of the input's pairs at a time.
  static std::vector<Shape> shapes() {
    return {{1, 1, 1},   {2, 16, 3},     {3, 33, 7},   {5, 64, 16},   {8, 130, 67}, {9, 97, 34},
            {16, 31, 5}, {21, 200, 130}, {5, 4133, 4}, {13, 4097, 4}, {64, 2100, 4}};
  }
  static float at(const std::vector<float>& matrix, int64_t columns, int64_t row, int64_t column) {
    return matrix[static_cast<size_t>(row * columns + column)];
  }
};

TEST_F(Bf16Linear, ForwardIsTheSumOfProducts) {
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(::testing::Message() << s.batch << " samples, " << s.in << " to " << s.out);
    const Problem p(s);
    for (const bool with_bias : {true, false}) {
      expect_sums(
          forward_of(p, with_bias, 2), s.out, s.in,
          [&](int64_t n, int64_t o, int64_t k) { return std::pair(at(p.input, s.in, n, k), at(p.weight, s.in, o, k)); },
          [&](int64_t, int64_t o) { return with_bias ? p.bias[static_cast<size_t>(o)] : 0.0F; });
    }
  }
}

TEST_F(Bf16Linear, BackwardsAreTheSumsOfProducts) {
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(::testing::Message() << s.batch << " samples, " << s.in << " to " << s.out);
    const Problem p(s);
    const auto nothing = [](int64_t, int64_t) { return 0.0F; };
    expect_sums(
        input_gradient_of(p, 2), s.in, s.out,
        [&](int64_t n, int64_t i, int64_t k) {
          return std::pair(at(p.output_gradient, s.out, n, k), at(p.weight, s.in, k, i));
        },
        nothing);
    const auto weight_term = [&](int64_t o, int64_t i, int64_t k) {
      return std::pair(at(p.output_gradient, s.out, k, o), at(p.input, s.in, k, i));
    };
    expect_sums(weight_gradient_of(p, nullptr, 2), s.in, s.batch, weight_term, nothing);
    const std::vector<float> before = random_floats(s.out * s.in, 5);
    expect_sums(weight_gradient_of(p, &before, 2), s.in, s.batch, weight_term,
                [&](int64_t o, int64_t i) { return at(before, s.in, o, i); });
  }
}

// Large enough that gradients of weights go past the caches.
TEST_F(Bf16Linear, LargeGradientsAndAnyNumberOfThreads) {
  const Shape s{7, 4160, 611};
  const Problem p(s);
  const std::vector<float> gradient = weight_gradient_of(p, nullptr, 2);
  expect_sums(
      gradient, s.in, s.batch,
      [&](int64_t o, int64_t i, int64_t k) {
        return std::pair(at(p.output_gradient, s.out, k, o), at(p.input, s.in, k, i));
      },
      [](int64_t, int64_t) { return 0.0F; });
  EXPECT_EQ(gradient, weight_gradient_of(p, nullptr, 1));
  EXPECT_EQ(input_gradient_of(p, 1), input_gradient_of(p, 2));
  EXPECT_EQ(forward_of(p, true, 1), forward_of(p, true, 2));
}

// Rows that begin beside a line cannot go past the caches.
TEST_F(Bf16Linear, LargeGradientsMayHaveRowsOfAnySize) {
  const Shape s{1, 4161, 611};
  const Problem p(s);
  expect_sums(
      weight_gradient_of(p, nullptr, 2), s.in, s.batch,
      [&](int64_t o, int64_t i, int64_t k) {
        return std::pair(at(p.output_gradient, s.out, k, o), at(p.input, s.in, k, i));
      },
      [](int64_t, int64_t) { return 0.0F; });
}

// Samples in fours and elements in steps of 32, of 2 bytes; pairs of outputs, of 4 bytes; pairs of samples, for outputs
// in whole vectors of 16 and for elements in panels of 64.
TEST_F(Bf16Linear, ScratchHasRoomForRoundedNumbers) {
  const Shape s{5, 33, 7};
  EXPECT_EQ(forward_scratch_bytes(s), 8 * 64 * 2);
  EXPECT_EQ(backward_data_scratch_bytes(s), 5 * 4 * 4);
  EXPECT_EQ(backward_weights_scratch_bytes(s), (32 + 3 * 64) * 4);
}

// NaN and infinity reach what depends on them, and nothing else.
TEST_F(Bf16Linear, NonFiniteNumbersStayWithTheirSums) {
  const Shape s{7, 33, 9};
  Problem p(s);
  p.input[3 * 33 + 32] = std::nanf("");
  const std::vector<float> output = forward_of(p, true, 1);
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t o = 0; o < s.out; ++o) EXPECT_EQ(std::isnan(at(output, s.out, n, o)), n == 3);
  }
  Problem q(s);
  q.output_gradient[6 * 9 + 8] = std::numeric_limits<float>::infinity();
  const std::vector<float> input_gradient = input_gradient_of(q, 1),
                           weight_gradient = weight_gradient_of(q, nullptr, 1);
  for (int64_t i = 0; i < s.in; ++i) {
    for (int64_t n = 0; n < s.batch; ++n) EXPECT_EQ(std::isinf(at(input_gradient, s.in, n, i)), n == 6);
    for (int64_t o = 0; o < s.out; ++o) EXPECT_EQ(std::isinf(at(weight_gradient, s.in, o, i)), o == 8);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::bf16_linear::bf16_linear_test
