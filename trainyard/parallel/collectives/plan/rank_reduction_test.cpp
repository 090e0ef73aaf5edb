#include "trainyard/parallel/collectives/plan/rank_reduction.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"

namespace trainyard::parallel::rank_reduction_test {
namespace {

using core::ReduceOp;

constexpr int64_t kElements = 3000;  // not a multiple of the blocks inside

// Values that every dtype here can hold: multiples of 1/8, or integers.
std::vector<at::Tensor> random_tensors(int ranks, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    core::RandomStream stream(3, "reduction", {static_cast<uint64_t>(rank)});
    at::Tensor values = at::empty({kElements}, at::kDouble);
    for (int64_t i = 0; i < kElements; ++i) {
      const double value = static_cast<double>(stream.below(200)) - 100;
      values.mutable_data_ptr<double>()[i] = at::isIntegralType(type, false) ? value : value / 8;
    }
    tensors.push_back(values.to(type));
  }
  return tensors;
}

// `tensors` are doubles.
double by_definition(const std::vector<at::Tensor>& tensors, ReduceOp op, int64_t element) {
  double result = op == ReduceOp::kMax ? -INFINITY : op == ReduceOp::kMin ? INFINITY : 0;
  for (const at::Tensor& tensor : tensors) {
    const double value = tensor.const_data_ptr<double>()[element];
    if (op == ReduceOp::kMax) {
      result = std::max(result, value);
    } else if (op == ReduceOp::kMin) {
      result = std::min(result, value);
    } else {
      result += value;
    }
  }
  return op == ReduceOp::kMean ? result / static_cast<double>(tensors.size()) : result;
}

void check(at::ScalarType type, ReduceOp op, int ranks, double tolerance) {
  SCOPED_TRACE(std::string(c10::toString(type)) + " op " + std::to_string(static_cast<int>(op)));
  std::vector<at::Tensor> tensors = random_tensors(ranks, type);
  std::vector<at::Tensor> before;
  std::vector<void*> buffers;
  for (at::Tensor& tensor : tensors) {
    before.push_back(tensor.clone());
    buffers.push_back(tensor.mutable_data_ptr());
  }
  // To memory elsewhere at first, with one element behind it.
  constexpr int64_t kBegin = 100, kCount = kElements - kBegin;
  at::Tensor elsewhere = at::full({kCount + 1}, 42, tensors[0].options());
  reduce_to(type, op, buffers, kBegin, kElements, elsewhere.mutable_data_ptr());
  elsewhere = elsewhere.to(at::kDouble);
  const auto* const results = elsewhere.const_data_ptr<double>();
  EXPECT_EQ(results[kCount], 42);
  reduce_range(type, op, buffers, kBegin, kElements);
  std::vector<at::Tensor> doubles;
  for (const at::Tensor& tensor : tensors) doubles.push_back(tensor.to(at::kDouble));
  for (at::Tensor& tensor : before) tensor = tensor.to(at::kDouble);
  for (int64_t i = 0; i < kElements; ++i) {
    for (size_t rank = 0; rank < doubles.size(); ++rank) {
      const double expected = i < kBegin ? before[rank].const_data_ptr<double>()[i] : by_definition(before, op, i);
      const double room = tolerance * std::max(1.0, std::abs(expected));
      ASSERT_NEAR(doubles[rank].const_data_ptr<double>()[i], expected, room) << i;
      ASSERT_TRUE(i < kBegin || results[i - kBegin] == doubles[rank].const_data_ptr<double>()[i]) << i;
    }
  }
}

TEST(RankReduction, AgreesWithDoublePrecision) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
    check(at::kFloat, op, 3, 1e-7);
    check(at::kDouble, op, 4, 1e-15);
    check(at::kHalf, op, 3, 0x1p-11);     // one rounding, of the result
    check(at::kBFloat16, op, 3, 0x1p-8);  // inputs are multiples of 1/8 that bfloat16 may have rounded already
    if (op == ReduceOp::kMean) continue;
    check(at::kLong, op, 3, 0);
    check(at::kInt, op, 2, 0);
  }
}

TEST(RankReduction, SixteenBitTypesAreSummedInFloat) {
  // 256 + 1 is 256 in bfloat16: in its own precision the ones would be lost one by one.
  std::vector<at::Tensor> tensors;
  std::vector<void*> buffers;
  for (int rank = 0; rank < 9; ++rank) {
    tensors.push_back(at::empty({1}, at::kBFloat16).fill_(rank == 0 ? 256 : 1));
    buffers.push_back(tensors.back().mutable_data_ptr());
  }
  reduce_range(at::kBFloat16, ReduceOp::kSum, buffers, 0, 1);
  EXPECT_EQ(tensors[4].item<float>(), 264);
}

TEST(RankReduction, NansArePassedOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
    for (int who = 0; who < 2; ++who) {
      float values[2] = {1, 1};
      values[who] = nan;
      void* const buffers[2] = {&values[0], &values[1]};
      reduce_range(at::kFloat, op, buffers, 0, 1);
      EXPECT_TRUE(std::isnan(values[0])) << static_cast<int>(op) << who;
      EXPECT_TRUE(std::isnan(values[1])) << static_cast<int>(op) << who;
    }
  }
}

// They compare equal, and their bits must not depend on who computes.
TEST(RankReduction, OfTwoZerosThatOfTheLaterRankIsTaken) {
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    for (int negative = 0; negative < 2; ++negative) {
      float values[2] = {0, 0};
      values[negative] = -0.0F;
      void* const buffers[2] = {&values[0], &values[1]};
      reduce_range(at::kFloat, op, buffers, 0, 1);
      EXPECT_EQ(std::signbit(values[0]), negative == 1) << static_cast<int>(op);
      EXPECT_EQ(std::signbit(values[1]), negative == 1) << static_cast<int>(op);
    }
  }
}

TEST(RankReduction, ConvertsToTheNearestAndBack) {
  for (const at::ScalarType wide : {at::kFloat, at::kDouble}) {
    const at::Tensor values = random_tensors(1, at::kDouble)[0].mul(1.0 / 3).to(wide);
    for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
      const at::Tensor rounded = at::empty({kElements}, narrow), back = at::empty({kElements}, wide);
      convert(wide, values.const_data_ptr(), narrow, rounded.mutable_data_ptr(), kElements);
      convert(narrow, rounded.const_data_ptr(), wide, back.mutable_data_ptr(), kElements);
      const double half_step = narrow == at::kHalf ? 0x1p-11 : 0x1p-8;
      for (int64_t i = 0; i < kElements; ++i) {
        const auto value = values[i].item<double>();
        ASSERT_LE(std::abs(back[i].item<double>() - value), half_step * std::abs(value)) << value;
        ASSERT_EQ(rounded[i].item<double>(), back[i].item<double>());
      }
    }
  }
  EXPECT_THROW(convert(at::kFloat, nullptr, at::kDouble, nullptr, 0), core::Error);
  EXPECT_THROW(convert(at::kLong, nullptr, at::kHalf, nullptr, 0), core::Error);
}

TEST(RankReduction, SaysWhatItCannotDo) {
  EXPECT_TRUE(can_reduce(at::kFloat, ReduceOp::kMean));
  EXPECT_TRUE(can_reduce(at::kLong, ReduceOp::kMax));
  EXPECT_FALSE(can_reduce(at::kLong, ReduceOp::kMean));
  EXPECT_FALSE(can_reduce(at::kBool, ReduceOp::kSum));
  EXPECT_THROW(reduce_range(at::kBool, ReduceOp::kSum, {}, 0, 0), core::Error);
}

}  // namespace
}  // namespace trainyard::parallel::rank_reduction_test
