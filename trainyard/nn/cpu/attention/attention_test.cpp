// The attention kernels, with products in float and in bfloat16, against their definition in double precision.
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <omp.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/attention/bf16_attention.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::attention_test {
namespace {

// Products in bfloat16, beside the compilations of kernels.h.
struct Avx512Bf16 {
  static constexpr const char* kName = "Avx512Bf16";
  static constexpr int64_t kBlock = 16;
  static bool runs() { return isa() == Isa::kAvx512Bf16; }
  static void attention_forward(const AttentionForward& a) { bf16_attention::forward(a); }
  static void attention_backward(const AttentionBackward& a) { bf16_attention::backward(a); }
};

template <typename Kernels>
constexpr bool kRoundsWeights = std::is_same_v<Kernels, Avx512Bf16>;

// Maps of random numbers, whose windows lie scattered over the image.
template <typename Kernels>
class Problem {
 public:
  // Samples: 2.
  Problem(DataType dtype, int64_t heads, int64_t depth, int64_t windows, int64_t tokens, int64_t queries, bool biased)
      : dtype_(dtype),
        heads_(heads),
        depth_(depth),
        windows_(windows),
        tokens_(tokens),
        queries_(queries),
        output_shape_{2, heads * depth, 1, queries < tokens ? queries : windows * tokens, Kernels::kBlock},
        input_shape_{2, 3 * heads * depth, 1, windows * tokens, Kernels::kBlock},
        input(TestMap::random(input_shape_, dtype, 1)),
        gradient(TestMap::random(output_shape_, dtype, 2)),
        pixels_(static_cast<size_t>(windows * tokens)) {
    std::iota(pixels_.begin(), pixels_.end(), 0);
    if (queries == tokens) {
      for (size_t i = 0; i + 2 < pixels_.size(); i += 3) std::swap(pixels_[i], pixels_[i + 2]);
    }
    if (!biased) return;
    bias_ = random_floats(heads * tokens * tokens, 3);
    for (size_t i = 0; i < pixels_.size(); ++i) regions_.push_back(i % 5 == 0 ? 1 : 0);
  }

  AttentionPlaces places() const {
    return {.shape = output_shape_,
            .pixels_in = windows_ * tokens_,
            .dtype = dtype_,
            .heads = heads_,
            .windows = windows_,
            .tokens = tokens_,
            .queries = queries_,
            .pixels = pixels_.data(),
            .regions = regions_.empty() ? nullptr : regions_.data(),
            .bias = bias_.empty() ? nullptr : bias_.data()};
  }
  bool biased() const { return !bias_.empty(); }
  int64_t sums() const { return 2 * heads_ * windows_ * queries_; }
  int64_t biases() const { return 2 * heads_ * tokens_ * tokens_; }

  // Maps are in plain order: [sample, channel, pixel].
  struct Expected {
    std::vector<double> output, log_sums, input_gradient, bias_gradient;
  };
  Expected by_definition() const {
    Expected e;
    e.output.resize(static_cast<size_t>(2 * output_shape_.channels * output_shape_.width));
    e.log_sums.resize(static_cast<size_t>(sums()));
    e.input_gradient.resize(static_cast<size_t>(2 * input_shape_.channels * input_shape_.width));
    e.bias_gradient.resize(static_cast<size_t>(biases()));
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t h = 0; h < heads_; ++h) {
        for (int64_t w = 0; w < windows_; ++w) {
          for (int64_t i = 0; i < queries_; ++i) add_query(n, h, w, i, e);
        }
      }
    }
    return e;
  }

  static size_t plain(const MapShape& shape, int64_t n, int64_t c, int64_t pixel) {
    return static_cast<size_t>((n * shape.channels + c) * shape.width + pixel);
  }

 private:
  void add_query(int64_t n, int64_t h, int64_t w, int64_t i, Expected& e) const {
    const double scale = 1 / std::sqrt(static_cast<double>(depth_));
    const int64_t channels = heads_ * depth_, first = h * depth_, mine = at(w, i);
    std::vector<double> weights(static_cast<size_t>(tokens_)), slopes = weights;
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < tokens_; ++j) {
      double score = 0;
      for (int64_t d = 0; d < depth_; ++d) {
        score += scale * input.at(n, first + d, 0, mine) * input.at(n, channels + first + d, 0, at(w, j));
      }
      if (biased()) {
        score += bias_[static_cast<size_t>((h * tokens_ + i) * tokens_ + j)];
        score -= region(w, i) == region(w, j) ? 0 : 100;
      }
      sum += weights[static_cast<size_t>(j)] = std::exp(score);
    }
    e.log_sums[static_cast<size_t>(((n * heads_ + h) * windows_ + w) * queries_ + i)] = std::log(sum);
    for (int64_t j = 0; j < tokens_; ++j) {
      double& weight = weights[static_cast<size_t>(j)];
      double& slope = slopes[static_cast<size_t>(j)];
      weight /= sum;
      for (int64_t d = 0; d < depth_; ++d) {
        const double value = input.at(n, 2 * channels + first + d, 0, at(w, j));
        const double out = gradient.at(n, first + d, 0, mine);
        e.output[plain(output_shape_, n, first + d, mine)] += weight * value;
        e.input_gradient[plain(input_shape_, n, 2 * channels + first + d, at(w, j))] += weight * out;
        slope += value * out;
      }
      mean += weight * slope;
    }
    for (int64_t j = 0; j < tokens_; ++j) {
      const double slope = weights[static_cast<size_t>(j)] * (slopes[static_cast<size_t>(j)] - mean);
      e.bias_gradient[static_cast<size_t>(((n * heads_ + h) * tokens_ + i) * tokens_ + j)] += slope;
      for (int64_t d = 0; d < depth_; ++d) {
        e.input_gradient[plain(input_shape_, n, first + d, mine)] +=
            scale * slope * input.at(n, channels + first + d, 0, at(w, j));
        e.input_gradient[plain(input_shape_, n, channels + first + d, at(w, j))] +=
            scale * slope * input.at(n, first + d, 0, mine);
      }
    }
  }

  int64_t at(int64_t window, int64_t token) const { return pixels_[static_cast<size_t>(window * tokens_ + token)]; }
  int32_t region(int64_t window, int64_t token) const {
    return regions_[static_cast<size_t>(window * tokens_ + token)];
  }

  DataType dtype_;
  int64_t heads_, depth_, windows_, tokens_, queries_;
  MapShape output_shape_, input_shape_;

 public:
  TestMap input, gradient;

 private:
  std::vector<int32_t> pixels_, regions_;
  std::vector<float> bias_;
};

// What the kernels make of a problem.
struct Results {
  TestMap output, input_gradient;
  std::vector<float> log_sums, bias_gradient;

  bool operator==(const Results&) const = default;
};

// before: what the input's gradient is added to; null: it is overwritten.
template <typename Kernels>
Results results_of(const Problem<Kernels>& problem, const TestMap* before = nullptr) {
  const AttentionPlaces places = problem.places();
  Results r{TestMap(places.shape, places.dtype),
            before == nullptr ? TestMap(problem.input.shape(), places.dtype) : *before,
            std::vector<float>(static_cast<size_t>(problem.sums())),
            std::vector<float>(static_cast<size_t>(problem.biased() ? problem.biases() : 0), NAN)};
  // NaN: the kernel reads nothing of it that it did not write.
  std::vector<float> memory(
      static_cast<size_t>(omp_get_max_threads() * AttentionForward::memory_floats(places, Kernels::kBlock)), NAN);
  Kernels::attention_forward({.places = places,
                              .input = problem.input.data(),
                              .output = r.output.data(),
                              .log_sums = r.log_sums.data(),
                              .memory = memory.data()});
  Kernels::attention_backward({.places = places,
                               .gradient = problem.gradient.data(),
                               .input = problem.input.data(),
                               .log_sums = r.log_sums.data(),
                               .input_gradient = r.input_gradient.data(),
                               .accumulate = before != nullptr,
                               .bias_gradient = problem.biased() ? r.bias_gradient.data() : nullptr});
  return r;
}

template <typename Kernels>
class AttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Kernels::runs()) return;
    GTEST_SKIP() << (kRoundsWeights<Kernels> ? core::skip::kNeedsAvx512Bf16 : core::skip::kNeedsAvx512);
  }

  // Odd and even tokens, blocks of queries and rests, channels that fill half a vector of pairs, several windows and
  // heads, with and without bias, and queries of the first tokens alone.
  static std::vector<Problem<Kernels>> problems() {
    std::vector<Problem<Kernels>> all;
    for (DataType dtype : kDataTypes) {
      if (kRoundsWeights<Kernels> && dtype == DataType::kFloat) continue;
      all.emplace_back(dtype, 1, 16, 1, 1, 1, false);
      all.emplace_back(dtype, 2, 48, 1, 7, 7, false);
      all.emplace_back(dtype, 1, 64, 1, 65, 65, false);
      all.emplace_back(dtype, 2, 32, 3, 49, 49, true);
      all.emplace_back(dtype, 1, 16, 2, 26, 26, true);
      all.emplace_back(dtype, 2, 80, 1, 33, 5, false);
      all.emplace_back(dtype, 3, 32, 1, 50, 1, true);
    }
    return all;
  }
};
using AttentionCompilations = ::testing::Types<Avx2, Avx512, Avx512Bf16>;
TYPED_TEST_SUITE(AttentionTest, AttentionCompilations, CompilationName);

// Weights of bfloat16 are off by up to 2^-9, and so are the products of their sums; values lie between -2 and 2.
template <typename Kernels>
constexpr double kTolerance = kRoundsWeights<Kernels> ? 0.012 : 5e-6;

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "at " << i;
  }
}

TYPED_TEST(AttentionTest, FollowsTheDefinition) {
  for (const Problem<TypeParam>& problem : this->problems()) {
    const auto expected = problem.by_definition();
    const Results r = results_of(problem);
    const auto of = [&](const TestMap& map, const std::vector<double>& plain) {
      return [&](int64_t n, int64_t c, int64_t, int64_t x) { return plain[problem.plain(map.shape(), n, c, x)]; };
    };
    r.output.expect(of(r.output, expected.output), kTolerance<TypeParam>);
    r.input_gradient.expect(of(r.input_gradient, expected.input_gradient), kTolerance<TypeParam>);
    expect_near(r.log_sums, expected.log_sums, 5e-6);
    if (problem.biased()) expect_near(r.bias_gradient, expected.bias_gradient, 2e-5);
  }
}

TYPED_TEST(AttentionTest, AddsToTheGradientOfTheInput) {
  for (const Problem<TypeParam>& problem : this->problems()) {
    const TestMap before = TestMap::random(problem.input.shape(), problem.input.dtype(), 9);
    const Results alone = results_of(problem), added = results_of(problem, &before);
    added.input_gradient.expect([&](int64_t n, int64_t c, int64_t y,
                                    int64_t x) { return before.at(n, c, y, x) + alone.input_gradient.at(n, c, y, x); },
                                problem.input.dtype() == DataType::kFloat ? 1e-6 : 0.01);  // what was alone was rounded
  }
}

// A thread's memory still holds the numbers of the sample before.
TYPED_TEST(AttentionTest, NanStaysInItsSample) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  for (Problem<TypeParam>& problem : this->problems()) {
    const Results without = results_of(problem);
    for (TestMap* map : {&problem.input, &problem.gradient}) {
      map->each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
        if (n == 0) map->set(n, c, y, x, NAN);
      });
    }
    const Results with = results_of(problem);
    const auto same = [](const TestMap& a, const TestMap& b) {
      a.each([&](int64_t n, int64_t c, int64_t y, int64_t x) {
        if (n == 0) return;
        ASSERT_EQ(a.at(n, c, y, x), b.at(n, c, y, x)) << c << ", " << x;
      });
    };
    same(with.output, without.output);
    same(with.input_gradient, without.input_gradient);
    EXPECT_TRUE(std::isnan(with.output.at(0, 0)) && std::isnan(with.input_gradient.at(0, 0)));
  }
  omp_set_num_threads(threads);
}

TYPED_TEST(AttentionTest, IsTheSameForAnyThreads) {
  for (const Problem<TypeParam>& problem : this->problems()) {
    expect_same_for_any_threads([&] { return results_of(problem); });
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::attention_test
