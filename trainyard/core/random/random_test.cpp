#include "trainyard/core/random/random.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/box_muller.h"
#include "trainyard/core/random/philox_blocks.h"

namespace trainyard::core::random_test {
namespace {

using Block = std::array<uint32_t, 4>;

// The known-answer vectors of Random123 1.14 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ManyBlocksAreThoseOfNeighbouringCounters) {
  const Block counter{0xfffffff0, 7, 3, 4};  // the first number wraps around
  const std::array<uint32_t, 2> key{5, 6};
  for (int64_t blocks : {0, 1, 15, 16, 17, 40}) {
    std::vector<uint32_t> out(static_cast<size_t>(4 * blocks) + 1, 99);
    philox4x32_blocks(counter, key, out.data(), blocks);
    for (int64_t i = 0; i < blocks; ++i) {
      const uint64_t count = (counter[0] | uint64_t{counter[1]} << 32) + static_cast<uint64_t>(i);
      const Block expected =
          philox4x32({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), counter[2], counter[3]}, key);
      for (size_t k = 0; k < 4; ++k) EXPECT_EQ(out[static_cast<size_t>(4 * i) + k], expected[k]) << i;
    }
    EXPECT_EQ(out.back(), 99u);
  }
}

// Test values of draft-eastlake-fnv (64-bit FNV-1a).
TEST(StableHash, KnownAnswers) {
  EXPECT_EQ(stable_hash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stable_hash("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stable_hash("foobar"), 0x85944171f73967e8u);
}

// From tools/golden/random_stream.py. Checkpoints continue with these numbers: they must never change.
TEST(RandomStream, NumbersAreStable) {
  const auto first = [](RandomStream stream) {
    std::vector<uint32_t> numbers(6);
    for (uint32_t& number : numbers) number = stream.next_u32();
    return numbers;
  };
  EXPECT_EQ(first(RandomStream(0, "")),
            (std::vector<uint32_t>{0xf6b01e1a, 0x1fde0cb8, 0x85141a4f, 0xb52b1455, 0x9e87181a, 0x55324d7a}));
  EXPECT_EQ(first(RandomStream(1234, "augment", {3, 50000})),
            (std::vector<uint32_t>{0xdb50d0fe, 0x7e51062e, 0x6aafb464, 0xf3f10575, 0xdcbf0183, 0x2875e792}));
  EXPECT_EQ(first(RandomStream(~uint64_t{0}, "dropout", {~uint64_t{0}})),
            (std::vector<uint32_t>{0xa5fd9a9e, 0x3d871cd9, 0xf2d9d265, 0x2ac8fba5, 0xea6ce739, 0xbbad2ed3}));
}

TEST(RandomStream, EveryPartOfTheIdentityMatters) {
  std::vector<RandomStream> streams = {
      {1, "a"},         {2, "a"},      {1, "b"},         {1, "a", {0}},    {1, "a", {0, 0}},
      {1, "a", {1}},    {1, "b", {1}}, {1, "a", {1, 2}}, {1, "a", {2, 1}}, {0, "a", {1, 2}},
      {1, "a", {1, 0}}, {0, ""},       {0, "", {0}},     {1, "ab"},        {1, "ba"},
  };
  for (uint64_t id = 10; id < 1000; ++id) streams.emplace_back(1, "a", std::initializer_list<uint64_t>{id, id});
  std::set<uint64_t> firsts;
  for (RandomStream& stream : streams) firsts.insert(stream.next_u64());
  EXPECT_EQ(firsts.size(), streams.size());
}

// Streams of neighbouring ids: the correlation of uniforms has standard deviation 1/sqrt(n).
TEST(RandomStream, NeighboursAreUncorrelated) {
  constexpr int kCount = 100'000;
  RandomStream a(7, "x", {0}), b(7, "x", {1}), c(8, "x", {0});
  double ab = 0, ac = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = a.uniform_double() - 0.5;
    ab += u * (b.uniform_double() - 0.5) * 12;
    ac += u * (c.uniform_double() - 0.5) * 12;
  }
  EXPECT_LT(std::abs(ab / kCount), 4 / std::sqrt(kCount));
  EXPECT_LT(std::abs(ac / kCount), 4 / std::sqrt(kCount));
}

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0, minimum = INFINITY, maximum = -INFINITY;
};

template <typename Draw>
Moments moments(int count, Draw draw) {
  std::vector<double> values(count);
  Moments result;
  for (double& value : values) result.mean += (value = draw()) / count;
  for (double value : values) {
    const double d = value - result.mean;
    result.variance += d * d / count;
    result.skewness += d * d * d / count;
    result.kurtosis += d * d * d * d / count;
    result.minimum = std::min(result.minimum, value);
    result.maximum = std::max(result.maximum, value);
  }
  result.skewness /= std::pow(result.variance, 1.5);
  result.kurtosis /= result.variance * result.variance;
  return result;
}

// Bounds below are four standard deviations of the estimate, so a fixed seed passes and a wrong shape does not.
constexpr int kDraws = 400'000;

TEST(Uniform, MomentsAndRange) {
  RandomStream stream(1, "uniform");
  const auto check = [](const Moments& m) {
    EXPECT_NEAR(m.mean, 0.5, 4 * std::sqrt(1 / 12.0 / kDraws));
    EXPECT_NEAR(m.variance, 1 / 12.0, 4 * std::sqrt(1 / 180.0 / kDraws));
    EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
    EXPECT_GE(m.minimum, 0);
    EXPECT_LT(m.maximum, 1);
    EXPECT_LT(m.minimum, 1e-4);
    EXPECT_GT(m.maximum, 1 - 1e-4);
  };
  check(moments(kDraws, [&] { return stream.uniform(); }));
  check(moments(kDraws, [&] { return stream.uniform_double(); }));
}

TEST(Uniform, NeverReachesHigh) {
  // Between 2^24 and 2^24 + 2 floats are 2 apart: half of the sums would round up to the excluded end.
  RandomStream stream(1, "range");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(stream.uniform(0x1p24f, 0x1p24f + 2), 0x1p24f);
}

TEST(Below, IsUniformWithoutBias) {
  RandomStream stream(1, "below");
  std::array<int, 7> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts.at(stream.below(counts.size()));
  double chi_square = 0;
  const double expected = static_cast<double>(kDraws) / counts.size();
  for (int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 22.46);  // 6 degrees of freedom, p = 0.001
  EXPECT_EQ(stream.below(1), 0u);
}

TEST(Below, LargeRangesAreUnbiased) {
  // With n = 3/4 of 2^64 a plain product or remainder would give a third of the values twice the share.
  RandomStream stream(1, "large");
  constexpr uint64_t kN = uint64_t{3} << 62;
  double mean = 0;
  int lowest_third = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = stream.below(kN);
    ASSERT_LT(value, kN);
    mean += static_cast<double>(value) / static_cast<double>(kN) / kDraws;
    // Lemire's product without rejection hits multiples of three (value = 3k) twice as often.
    lowest_third += value % 3 == 0;
  }
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(1 / 12.0 / kDraws));
  EXPECT_NEAR(lowest_third / static_cast<double>(kDraws), 1 / 3.0, 4 * std::sqrt(2 / 9.0 / kDraws));
}

TEST(Below, ZeroIsAnError) {
  EXPECT_THROW(RandomStream(0, "").below(0), Error);
}

TEST(Coin, IsFair) {
  RandomStream stream(1, "coin");
  int heads = 0;
  for (int i = 0; i < kDraws; ++i) heads += stream.next_bool();
  EXPECT_NEAR(heads / static_cast<double>(kDraws), 0.5, 4 * std::sqrt(0.25 / kDraws));
}

TEST(Normal, Moments) {
  RandomStream stream(1, "normal");
  const Moments m = moments(kDraws, [&] { return stream.normal(); });
  EXPECT_NEAR(m.mean, 0, 4 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(m.variance, 1, 4 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(m.skewness, 0, 4 * std::sqrt(6.0 / kDraws));
  EXPECT_NEAR(m.kurtosis, 3, 4 * std::sqrt(24.0 / kDraws));
  EXPECT_GT(m.maximum, 4);
  EXPECT_LT(m.minimum, -4);
}

// A normal cut at +-a has variance 1 - 2 a phi(a) / (2 Phi(a) - 1): 0.77374 for a = 2.
TEST(TruncatedNormal, Moments) {
  RandomStream stream(1, "truncated");
  const Moments m = moments(kDraws, [&] { return stream.truncated_normal(); });
  const double phi = std::exp(-2.0) / std::sqrt(2 * M_PI);
  const double inside = std::erf(std::sqrt(2.0));
  EXPECT_NEAR(m.mean, 0, 4 * std::sqrt(0.774 / kDraws));
  EXPECT_NEAR(m.variance, 1 - 4 * phi / inside, 0.005);
  EXPECT_GE(m.minimum, -2);
  EXPECT_LE(m.maximum, 2);
  EXPECT_GT(m.maximum, 1.99);
}

// All corners of both numbers and some thousands between them, against libm in double precision.
TEST(BoxMuller, IsItsFormula) {
  std::vector<uint32_t> radius, angle;
  for (uint32_t corner : {0x00000000u, 0x20000000u, 0x40000000u, 0x60000000u, 0x80000000u, 0xb504f333u, 0xe0000000u}) {
    for (uint32_t near : {0xffffffffu, 0u, 1u}) {
      radius.push_back(corner + near);
      angle.push_back(0xc0000000 - corner + near);
    }
  }
  RandomStream stream(1, "box muller");
  while (radius.size() < 10'003) {  // not whole vectors
    radius.push_back(stream.next_u32());
    angle.push_back(stream.next_u32());
  }
  std::vector<float> first(radius.size()), second(radius.size());
  box_muller(radius.data(), angle.data(), first.data(), second.data(), static_cast<int64_t>(radius.size()));
  for (size_t i = 0; i < radius.size(); ++i) {
    const double r = std::sqrt(-2 * std::log((radius[i] + 1.0) * 0x1p-32)), t = angle[i] * 0x1p-31 * M_PI;
    // libm's own sine is off by 1e-16 where it should be 0: t is rounded.
    EXPECT_NEAR(first[i], r * std::cos(t), 6e-8 * std::abs(r * std::cos(t)) + 1e-14) << radius[i] << " " << angle[i];
    EXPECT_NEAR(second[i], r * std::sin(t), 6e-8 * std::abs(r * std::sin(t)) + 1e-14) << radius[i] << " " << angle[i];
  }
}

// One in 500,000 floats is not the nearest to what libm says in double precision: the series are cut off.
TEST(BoxMuller, FloatsAreThoseOfLibmButForAFew) {
  constexpr size_t kPairs = 200'000;
  RandomStream stream(1, "nearest floats");
  std::vector<uint32_t> radius(kPairs), angle(kPairs);
  stream.next_u32s(radius.data(), static_cast<int64_t>(kPairs));
  stream.next_u32s(angle.data(), static_cast<int64_t>(kPairs));
  std::vector<float> first(kPairs), second(kPairs);
  box_muller(radius.data(), angle.data(), first.data(), second.data(), static_cast<int64_t>(kPairs));
  int others = 0;
  for (size_t i = 0; i < kPairs; ++i) {
    const double r = std::sqrt(-2 * std::log((radius[i] + 1.0) * 0x1p-32)), t = angle[i] * 0x1p-31 * M_PI;
    others += first[i] == static_cast<float>(r * std::cos(t)) ? 0 : 1;
    others += second[i] == static_cast<float>(r * std::sin(t)) ? 0 : 1;
  }
  EXPECT_LE(others, 6);
}

// Bulk and single numbers are the same and leave the stream at the same place, whatever was drawn before.
TEST(Normal, ManyAtATimeAreTheSame) {
  for (int64_t count : {0, 1, 2, 127, 128, 129, 1000}) {
    for (bool truncated : {false, true}) {
      for (int before : {0, 1}) {
        RandomStream bulk(1, "bulk");
        for (int i = 0; i < before; ++i) bulk.normal();
        RandomStream single = bulk;
        std::vector<float> numbers(static_cast<size_t>(count));
        truncated ? bulk.truncated_normals(numbers.data(), count) : bulk.normals(numbers.data(), count);
        for (float number : numbers) ASSERT_EQ(number, truncated ? single.truncated_normal() : single.normal());
        EXPECT_EQ(bulk.normal(), single.normal());
        EXPECT_EQ(bulk.next_u64(), single.next_u64());
      }
    }
  }
}

TEST(RandomStream, ManyAtATimeAreTheSame) {
  for (int64_t count : {0, 1, 2, 3, 5, 31, 32, 33, 36, 255, 256, 257, 1000}) {
    for (int before : {0, 1, 2, 3, 4}) {
      RandomStream bulk(1, "bulk");
      for (int i = 0; i < before; ++i) bulk.next_u32();
      RandomStream single = bulk;
      std::vector<uint32_t> numbers(static_cast<size_t>(count));
      bulk.next_u32s(numbers.data(), count);
      for (uint32_t number : numbers) ASSERT_EQ(number, single.next_u32());
      std::vector<float> between(static_cast<size_t>(count));
      bulk.uniforms(-0.3F, 5, between.data(), count);
      for (float number : between) ASSERT_EQ(number, single.uniform(-0.3F, 5));
      EXPECT_EQ(bulk.next_u64(), single.next_u64());
    }
  }
}

TEST(RandomStream, CopiesContinueAlike) {
  RandomStream stream(1, "copy");
  stream.next_u32();
  stream.normal();
  RandomStream copy = stream;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(stream.normal(), copy.normal());
    EXPECT_EQ(stream.next_u64(), copy.next_u64());
  }
}

}  // namespace
}  // namespace trainyard::core::random_test
