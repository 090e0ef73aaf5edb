#include <c10/util/BFloat16.h>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::linear_test {
namespace {

TRAINYARD_KERNEL_TEST(LinearTest);

TYPED_TEST(LinearTest, IsTheSumOfProducts) {
  for (const int64_t batch : {1, 2, 3, 4, 5, 8, 11, 16}) {
    for (int64_t in : {1, 7, 16, 64, 65, 130, 2048}) {
      for (int64_t out : {1, 3, 10}) {
        const std::vector<float> input = random_floats(batch * in, 1), weight = random_floats(out * in, 2),
                                 bias = random_floats(out, 3);
        for (const float* biases : {bias.data(), static_cast<const float*>(nullptr)}) {
          std::vector<float> output(static_cast<size_t>(batch * out) + 1, 99);
          TypeParam::linear_forward({.batch = batch,
                                     .in = in,
                                     .out = out,
                                     .input = input.data(),
                                     .weight = weight.data(),
                                     .bias = biases,
                                     .output = output.data()});
          for (int64_t n = 0; n < batch; ++n) {
            for (int64_t o = 0; o < out; ++o) {
              double sum = biases != nullptr ? biases[o] : 0, size = std::abs(sum);
              for (int64_t i = 0; i < in; ++i) {
                const double product =
                    double{input[static_cast<size_t>(n * in + i)]} * weight[static_cast<size_t>(o * in + i)];
                sum += product;
                size += std::abs(product);
              }
              EXPECT_NEAR(output[static_cast<size_t>(n * out + o)], sum, 1e-6 * size);
            }
          }
          EXPECT_EQ(output.back(), 99) << "written beside the matrix";
        }
      }
    }
  }
}

// Whole vectors, a rest, and rows that are shorter than a vector.
TYPED_TEST(LinearTest, TakesWeightsInBfloat16) {
  for (int64_t batch = 1; batch <= LinearForward::kMostRoundedSamples; ++batch) {
    for (const int64_t in : {5, 64, 205}) {
      constexpr int64_t kOut = 7;
      const std::vector<float> input = random_floats(batch * in, 1), weight = random_floats(kOut * in, 2);
      // The row behind the last one is not read: it would make NaN.
      std::vector<c10::BFloat16> rounded(weight.begin(), weight.end());
      rounded.insert(rounded.end(), 64, c10::BFloat16(NAN));
      std::vector<float> output(static_cast<size_t>(batch * kOut), 99);
      TypeParam::linear_forward({.batch = batch,
                                 .in = in,
                                 .out = kOut,
                                 .input = input.data(),
                                 .rounded_weight = rounded.data(),
                                 .output = output.data()});
      for (int64_t n = 0; n < batch; ++n) {
        for (int64_t o = 0; o < kOut; ++o) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < in; ++i) {
            const double product = double{input[static_cast<size_t>(n * in + i)]} *
                                   double{static_cast<float>(rounded[static_cast<size_t>(o * in + i)])};
            sum += product;
            size += std::abs(product);
          }
          EXPECT_NEAR(output[static_cast<size_t>(n * kOut + o)], sum, 1e-6 * size) << batch << " " << in;
        }
      }
    }
  }
}

// Expects the sums of `terms` products that term(row, column, k) returns, in a matrix of whole rows and one element
// behind it, which holds 99. What the matrix held before is `before`.
template <typename Term>
void expect_sums(const std::vector<float>& actual, int64_t columns, int64_t terms, double before, Term term) {
  EXPECT_EQ(actual.back(), 99) << "written beside the matrix";
  int wrong = 0;
  for (size_t i = 0; i + 1 < actual.size(); ++i) {
    double sum = before, size = std::abs(before);
    for (int64_t k = 0; k < terms; ++k) {
      const double product = term(static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns, k);
      sum += product;
      size += std::abs(product);
    }
    if (!(std::abs(actual[i] - sum) <= 2e-6 * size)) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << "of " << actual.size() - 1;
}

// Whole and partial vectors and panels; more columns than a thread takes of the input at a time; large gradients: those
// of the last go past the caches, but not rows that begin beside a line.
TYPED_TEST(LinearTest, BackwardsAreTheSumsOfProducts) {
  struct Case {
    int64_t batch, in, out;
  };
  for (const auto& [batch, in, out] :
       {Case{1, 1, 1}, Case{3, 7, 5}, Case{4, 64, 9}, Case{8, 130, 17}, Case{16, 100, 3}, Case{7, 96, 12},
        Case{10, 33, 7}, Case{16, 4200, 3}, Case{1, 2101, 1001}, Case{5, 2112, 1001}}) {
    SCOPED_TRACE(::testing::Message() << batch << " samples, " << in << " to " << out);
    const std::vector<float> input = random_floats(batch * in, 1), weight = random_floats(out * in, 2),
                             gradient = random_floats(batch * out, 3);
    const auto at = [](const std::vector<float>& matrix, int64_t columns, int64_t row, int64_t column) {
      return double{matrix[static_cast<size_t>(row * columns + column)]};
    };
    const int64_t inputs = in, outputs = out;  // clang does not capture structured bindings
    std::vector<float> data(static_cast<size_t>(batch * in) + 1, 99);
    TypeParam::linear_backward_data({.batch = batch,
                                     .in = in,
                                     .out = out,
                                     .output_gradient = gradient.data(),
                                     .weight = weight.data(),
                                     .input_gradient = data.data()});
    expect_sums(data, in, out, 0, [&](int64_t n, int64_t i, int64_t o) {
      return at(gradient, outputs, n, o) * at(weight, inputs, o, i);
    });
    for (const bool accumulate : {false, true}) {
      // Aligned, as in a parameter set.
      TestBytes bytes((out * in + 1) * 4);
      auto* const weights = reinterpret_cast<float*>(bytes.data());
      std::fill_n(weights, out * in, 2.0F);
      weights[out * in] = 99;
      TypeParam::linear_backward_weights({.batch = batch,
                                          .in = in,
                                          .out = out,
                                          .input = input.data(),
                                          .output_gradient = gradient.data(),
                                          .weight_gradient = weights,
                                          .accumulate = accumulate});
      expect_sums(
          {weights, weights + out * in + 1}, in, batch, accumulate ? 2 : 0,
          [&](int64_t o, int64_t i, int64_t n) { return at(gradient, outputs, n, o) * at(input, inputs, n, i); });
    }
  }
}

// Its rows are whole lines, but begin beside one: it cannot go past the caches.
TYPED_TEST(LinearTest, ALargeGradientMayBeginBesideALine) {
  constexpr int64_t kIn = 2112, kOut = 1001;
  const std::vector<float> input = random_floats(kIn, 1), gradient = random_floats(kOut, 3);
  TestBytes bytes((kOut * kIn + 2) * 4);
  auto* const weights = reinterpret_cast<float*>(bytes.data()) + 1;
  weights[kOut * kIn] = 99;
  TypeParam::linear_backward_weights(
      {.in = kIn, .out = kOut, .input = input.data(), .output_gradient = gradient.data(), .weight_gradient = weights});
  expect_sums({weights, weights + kOut * kIn + 1}, kIn, 1, 0, [&](int64_t o, int64_t i, int64_t) {
    return double{gradient[static_cast<size_t>(o)]} * input[static_cast<size_t>(i)];
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::linear_test
