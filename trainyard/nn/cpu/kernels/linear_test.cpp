#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu {
namespace {

template <typename Kernels>
class LinearTest : public KernelTest<Kernels> {};
TYPED_TEST_SUITE(LinearTest, Compilations, CompilationName);

TYPED_TEST(LinearTest, IsTheSumOfProducts) {
  for (int64_t batch = 1; batch <= LinearForward::kMostSamples; ++batch) {
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

}  // namespace
}  // namespace trainyard::nn::cpu
