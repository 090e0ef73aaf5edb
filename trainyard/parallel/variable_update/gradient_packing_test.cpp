// tf_cnn_benchmarks' tests of packing (allreduce_test.py), by their names. There a pack is a concatenation, here a
// slice of the block of gradients, in which 64 bytes begin each gradient.
#include "trainyard/parallel/variable_update/gradient_packing.h"

#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::parallel::gradient_packing_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty, ::testing::Pair;

using Shapes = std::vector<std::vector<int64_t>>;

std::string name_of(size_t tensor) {
  return "t" + std::to_string(tensor);
}

// Gradients in the order of the shapes, holding 0, 1, 2, ... over all of them.
nn::ParameterSet make_set(const Shapes& shapes, at::ScalarType type = at::kFloat) {
  nn::ParameterSet set({.dtype = type});
  for (size_t t = shapes.size(); t-- > 0;) set.declare({.name = name_of(t), .shape = shapes[t]});
  set.allocate();
  int64_t next = 0;
  for (size_t t = 0; t < shapes.size(); ++t) {
    at::Tensor gradient = set.gradient(*set.find(name_of(t)));
    gradient.copy_(at::arange(next, next + gradient.numel()).view(gradient.sizes()));
    next += gradient.numel();
  }
  return set;
}

// Returns the tensors of which each slice consists: each of them in whole, in order, none left out.
std::vector<std::vector<size_t>> tensors_of(const nn::ParameterSet& set, const std::vector<GradientSlice>& slices) {
  std::vector<std::vector<size_t>> tensors(slices.size());
  for (size_t t = 0; t < set.size(); ++t) {
    const nn::ParameterId id = *set.find(name_of(t));
    const int64_t begin = set.segment(id).offset, end = begin + set.gradient(id).numel();
    for (size_t s = 0; s < slices.size(); ++s) {
      if (slices[s].begin <= begin && end <= slices[s].begin + slices[s].count) tensors[s].push_back(t);
    }
  }
  return tensors;
}

std::vector<std::vector<size_t>> packed(const Shapes& shapes, int64_t bytes, int64_t group = 10) {
  const nn::ParameterSet set = make_set(shapes);
  return tensors_of(set, pack_gradients(set, {.small_bytes = bytes, .small_group = group}));
}

TEST(GradientPacking, testExtractRanges) {
  EXPECT_THAT(extract_ranges({}, 32).ranges, IsEmpty());
  EXPECT_THAT(extract_ranges({}, 32).singles, IsEmpty());
  const IndexRanges mixed = extract_ranges({1, 3, 4, 6, 7, 8, 9}, 32);
  EXPECT_THAT(mixed.ranges, ElementsAre(Pair(3, 4), Pair(6, 9)));
  EXPECT_THAT(mixed.singles, ElementsAre(1));
  const IndexRanges two = extract_ranges({1, 2, 3, 4, 6, 7, 8, 9}, 32);
  EXPECT_THAT(two.ranges, ElementsAre(Pair(1, 4), Pair(6, 9)));
  EXPECT_THAT(two.singles, IsEmpty());
  const IndexRanges ends = extract_ranges({1, 3, 4, 6, 7, 9}, 32);
  EXPECT_THAT(ends.ranges, ElementsAre(Pair(3, 4), Pair(6, 7)));
  EXPECT_THAT(ends.singles, ElementsAre(1, 9));
  const IndexRanges alone = extract_ranges({1, 3, 6, 9}, 32);
  EXPECT_THAT(alone.ranges, IsEmpty());
  EXPECT_THAT(alone.singles, ElementsAre(1, 3, 6, 9));
}

TEST(GradientPacking, ARunOfMoreThanTheMostBecomesSeveral) {
  const IndexRanges split = extract_ranges({0, 1, 2, 3, 4, 5, 6}, 3);
  EXPECT_THAT(split.ranges, ElementsAre(Pair(0, 2), Pair(3, 5)));
  EXPECT_THAT(split.singles, ElementsAre(6));
  EXPECT_THAT(extract_ranges({4, 5, 6}, 1).singles, ElementsAre(4, 5, 6));
}

TEST(GradientPacking, testPackRange) {
  EXPECT_THAT(packed({{4}, {4}}, 16), ElementsAre(ElementsAre(0, 1)));
  const nn::ParameterSet set = make_set({{4}, {4}, {3, 3}, {3, 3}});
  const std::vector<GradientSlice> slices = pack_gradients(set, {.small_bytes = 36});
  EXPECT_EQ(slices, (std::vector<GradientSlice>{{0, 16 + 16 + 16 + 9}})) << "the gap after the last is left out";
}

TEST(GradientPacking, testPackSmallTensors) {
  const Shapes shapes = {{4}, {4}, {3, 3}, {3, 3}};
  EXPECT_THAT(packed(shapes, 12), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(packed(shapes, 16), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(packed(shapes, 256), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(packed(shapes, 256, 3), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3)));
}

TEST(GradientPacking, SizesAreInBytesOfTheType) {
  const nn::ParameterSet set = make_set({{4}, {4}}, at::kDouble);
  EXPECT_EQ(pack_gradients(set, {.small_bytes = 31}).size(), 2);
  EXPECT_EQ(pack_gradients(set, {.small_bytes = 32}).size(), 1);
}

TEST(GradientPacking, PartsAreOfOneSizeAndTheLastHasTheRest) {
  const nn::ParameterSet set = make_set({{100}, {7}});
  ASSERT_EQ(set.total(), 112 + 16);
  EXPECT_EQ(pack_gradients(set, {.parts = 1}), (std::vector<GradientSlice>{{0, 128}}));
  EXPECT_EQ(pack_gradients(set, {.parts = 3}), (std::vector<GradientSlice>{{0, 42}, {42, 42}, {84, 44}}));
  // Two of the three parts have at most 42 elements.
  EXPECT_EQ(pack_gradients(set, {.parts = 3, .small_bytes = 4 * 42}), (std::vector<GradientSlice>{{0, 84}, {84, 44}}));
  EXPECT_EQ(pack_gradients(set, {.parts = 1000}).size(), 128) << "no part is empty";
}

TEST(GradientPacking, NumbersThatPackNothingAreErrors) {
  for (const GradientPacking& bad : {GradientPacking{.parts = -1}, GradientPacking{.parts = int64_t{1} << 40},
                                     GradientPacking{.small_bytes = -1}, GradientPacking{.small_group = -1}}) {
    EXPECT_EQ(core::code_of([&] { bad.validate(); }), core::ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(GradientPacking{}.is_default());
  EXPECT_TRUE((GradientPacking{.small_bytes = 9, .small_group = 0}).is_default());
}

// Reduces the gradients of `devices` replicas, packed and not, and expects the same bits.
void expect_unchanged(int devices, const Shapes& shapes, const GradientPacking& packing) {
  const auto reduced = [&](const GradientPacking& how) {
    std::vector<nn::ParameterSet> sets;
    for (int d = 0; d < devices; ++d) sets.push_back(make_set(shapes));
    auto communicators = make_thread_communicators(devices);
    std::vector<core::Thread> threads;
    for (int d = 0; d < devices; ++d) {
      threads.emplace_back(core::ThreadOptions{}, [&, d] {
        const auto i = static_cast<size_t>(d);
        GradientBuckets buckets(sets[i], *communicators[i], core::ReduceOp::kSum, pack_gradients(sets[i], how));
        buckets.reduce();
      });
    }
    for (core::Thread& thread : threads) thread.join();
    return sets;
  };
  const std::vector<nn::ParameterSet> plain = reduced({.separate = true}), joined = reduced(packing);
  const nn::ParameterSet start = make_set(shapes);
  for (size_t d = 0; d < plain.size(); ++d) {
    for (size_t t = 0; t < shapes.size(); ++t) {
      const at::Tensor one = start.gradient(*start.find(name_of(t)));
      const at::Tensor alone = plain[d].gradient(*plain[d].find(name_of(t)));
      EXPECT_TRUE(at::equal(alone, one * devices)) << "device " << d << ", " << name_of(t);
      EXPECT_TRUE(at::equal(alone, joined[d].gradient(*joined[d].find(name_of(t))))) << "device " << d;
    }
  }
}

TEST(GradientPacking, testPackUnpack0) {
  const Shapes shapes = {{8}, {3, 3}, {12}, {5, 5, 5}};
  EXPECT_THAT(packed(shapes, 40), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
  expect_unchanged(3, shapes, {.small_bytes = 40});
}

TEST(GradientPacking, testPackUnpack1) {
  const Shapes shapes = {{5, 5, 5}, {2, 3}, {5}};
  EXPECT_THAT(packed(shapes, 40), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  expect_unchanged(4, shapes, {.small_bytes = 40});
}

TEST(GradientPacking, testPackUnpack2) {
  const Shapes shapes = {{5, 5, 5}, {2, 3}, {1, 5}, {7}, {100}};
  EXPECT_THAT(packed(shapes, 40), ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3), ElementsAre(4)));
  expect_unchanged(2, shapes, {.small_bytes = 40});
}

// Tensors that are large in between: packed ones return to their places.
TEST(GradientPacking, testUnpackSmallTensors) {
  const Shapes shapes = {{4}, {4}, {20}, {3, 3}, {3, 3}, {20}};
  EXPECT_THAT(packed(shapes, 36), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3, 4), ElementsAre(5)));
  expect_unchanged(2, shapes, {.small_bytes = 36});
}

TEST(GradientPacking, testUnpackGradTuple) {
  expect_unchanged(2, {{4}, {4}, {3, 3}, {3, 3}}, {.small_bytes = 36});
}

TEST(GradientPacking, testAllReducePacked0) {
  expect_unchanged(3, {{8}, {3, 3}, {12}, {5, 5, 5}}, {.small_bytes = 100, .small_group = 100});
}

TEST(GradientPacking, testAllReducePacked1) {
  expect_unchanged(2, {{8}, {3, 3}, {12}, {5, 5, 5}, {3}, {4}}, {.small_bytes = 100, .small_group = 100});
}

TEST(GradientPacking, PartsThatCutTensorsChangeNothing) {
  for (const int64_t parts : {1, 2, 3, 7, 100}) {
    expect_unchanged(3, {{8}, {3, 3}, {12}, {5, 5, 5}}, {.parts = parts});
  }
}

}  // namespace
}  // namespace trainyard::parallel::gradient_packing_test
