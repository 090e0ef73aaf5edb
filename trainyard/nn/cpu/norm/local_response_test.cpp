#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::local_response_test {
namespace {

TRAINYARD_KERNEL_TEST(LocalResponseTest);

struct Case {
  int64_t channels, radius;
  double bias, alpha, beta;
};
// Windows within a block, over its edges, over several blocks, over all channels.
const Case kCases[] = {{1, 2, 1, 1, 0.5},    {3, 1, 1, 0.5, 0.75},  {16, 4, 2, 1e-4, 0.75}, {17, 2, 1, 0.3, 1},
                       {17, 5, 1, 0.1, 0.3}, {40, 9, 1, 0.2, 0.5},  {40, 17, 1, 0.1, 0.75}, {40, 0, 1, 1, 0.5},
                       {40, 40, 3, 0.1, 2},  {40, 100, 1, 0.1, 0.5}};

// Returns the sum of term(k) over the channels k in the window of c.
template <typename Term>
double over_window(const Case& test, int64_t c, Term term) {
  double sum = 0;
  for (int64_t k = std::max<int64_t>(0, c - test.radius); k <= std::min(test.channels - 1, c + test.radius); ++k) {
    sum += term(k);
  }
  return sum;
}

TYPED_TEST(LocalResponseTest, ForwardAndBackward) {
  for (DataType dtype : kDataTypes) {
    for (const Case& test : kCases) {
      for (const int64_t batch : {1, 3}) {
        const MapShape shape = this->shape(batch, test.channels, 3, 7);
        const TestMap input = TestMap::random(shape, dtype, 1), gradient = TestMap::random(shape, dtype, 2);
        const auto base = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
          return test.bias + test.alpha * over_window(test, c, [&](int64_t k) {
                               return input.at(n, k, y, x) * input.at(n, k, y, x);
                             });
        };
        TestMap output(shape, dtype), fresh(shape, dtype), added = input;
        TypeParam::local_response_forward({.shape = shape,
                                           .dtype = dtype,
                                           .radius = test.radius,
                                           .bias = static_cast<float>(test.bias),
                                           .alpha = static_cast<float>(test.alpha),
                                           .beta = static_cast<float>(test.beta),
                                           .input = input.data(),
                                           .output = output.data()});
        output.expect([&](auto... at) { return input.at(at...) * std::pow(base(at...), -test.beta); });

        // d/dx[c] of sum over k of g[k] * x[k] * s[k]^-beta
        const auto back = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
          const double rest = over_window(test, c, [&](int64_t k) {
            return gradient.at(n, k, y, x) * input.at(n, k, y, x) * std::pow(base(n, k, y, x), -test.beta - 1);
          });
          return gradient.at(n, c, y, x) * std::pow(base(n, c, y, x), -test.beta) -
                 2 * test.alpha * test.beta * input.at(n, c, y, x) * rest;
        };
        LocalResponseBackward a{.shape = shape,
                                .dtype = dtype,
                                .radius = test.radius,
                                .bias = static_cast<float>(test.bias),
                                .alpha = static_cast<float>(test.alpha),
                                .beta = static_cast<float>(test.beta),
                                .gradient = gradient.data(),
                                .input = input.data(),
                                .input_gradient = fresh.data()};
        expect_fresh_and_added(TypeParam::local_response_backward, a, fresh, added, back, 3e-6);
      }
    }
  }
}

// Powers of small and of large sums, and of negative sums, which have none.
TYPED_TEST(LocalResponseTest, PowersOfExtremes) {
  for (const float beta : {0.5F, 0.75F, 0.3F, 1.5F}) {
    for (const double x : {1e-12, 1e-6, 1.0, 3e4, 1e12}) {
      const MapShape shape = this->shape(1, 1);
      const TestMap input = TestMap::of(shape, DataType::kFloat, [&](auto...) { return x; });
      TestMap output(shape, DataType::kFloat);
      TypeParam::local_response_forward(
          {.shape = shape, .bias = 0, .beta = beta, .input = input.data(), .output = output.data()});
      const double expected = x * std::pow(x * x, -static_cast<double>(beta));
      EXPECT_NEAR(output.at(0, 0) / expected, 1, 1e-5) << "beta " << beta << ", x " << x;
      TypeParam::local_response_forward(
          {.shape = shape, .bias = 0, .alpha = -1, .beta = beta, .input = input.data(), .output = output.data()});
      EXPECT_TRUE(std::isnan(output.at(0, 0))) << "beta " << beta << ", x " << x;
    }
  }
}

TYPED_TEST(LocalResponseTest, IsTheSameForAnyThreads) {
  const MapShape shape = this->shape(1, 17, 9, 11);
  const TestMap input = TestMap::random(shape, DataType::kFloat, 1);
  expect_same_for_any_threads([&] {
    TestMap target(shape, DataType::kFloat);
    TypeParam::local_response_backward({.shape = shape,
                                        .radius = 3,
                                        .beta = 0.6F,
                                        .gradient = input.data(),
                                        .input = input.data(),
                                        .input_gradient = target.data()});
    return target;
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::local_response_test
