// PowerSGD against PyTorch's powerSGD_hook (tools/golden/power_sgd.py), and by what follows from its definition.
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/parallel/testing/compressed_ranks.h"

namespace trainyard::parallel::power_sgd_test {
namespace {

const NamedShapes kShapes = {
    {"fc.weight", {6, 8}}, {"conv.weight", {5, 2, 2, 3}}, {"tiny.weight", {2, 2}}, {"fc.bias", {5}}};
constexpr size_t kCompressed = 2;
constexpr int kStartIter = 2, kSteps = 6;  // those of the script

GradientCompression power_sgd(int64_t rank, double rate = 1) {
  return {.method = CompressionMethod::kPowerSgd, .matrix_approximation_rank = rank, .min_compression_rate = rate};
}

// gradient() of the script.
void fill_gradients(int rank, int step, CompressedRanks::Rank& own) {
  for (size_t t = 0; t < kShapes.size(); ++t) {
    const at::Tensor flat = own.gradient(kShapes[t].first).view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const int64_t whole = (i * i * 7919 + i * 131 + rank * 104729 + int64_t{step} * 15485863 +
                             static_cast<int64_t>(t) * 32452843 + 17) %
                                2003 -
                            1001;
      flat[i] = static_cast<double>(whole) / 1000;
    }
  }
}

// start() of the script, as a state that begins at kStartIter.
core::MemoryState start_state(int ranks, int64_t rank) {
  core::MemoryState state;
  state.text("method", "powersgd");
  state.integer("steps", kStartIter);
  state.integer("ranks", ranks);
  state.real("error_scale", 1);
  for (size_t t = 0; t < kCompressed; ++t) {
    const int64_t columns = t == 0 ? 8 : 12;
    at::Tensor q = at::empty({columns, rank}, at::kDouble);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t k = 0; k < rank; ++k) {
        q[j][k] =
            static_cast<double>((j * j * 31 + k * k * j * 17 + k * 5 + static_cast<int64_t>(t) * 7 + 3) % 11 - 5) / 4;
      }
    }
    state.tensor("q/" + kShapes[t].first, std::as_const(q));
    for (int r = 0; r < ranks; ++r)
      state.tensor("error/" + std::to_string(r) + "/" + kShapes[t].first, at::zeros(kShapes[t].second, at::kDouble));
  }
  return state;
}

void expect_near(const at::Tensor& actual, std::istringstream& numbers) {
  const at::Tensor flat = actual.view({-1});
  for (int64_t i = 0; i < flat.numel(); ++i) {
    double wanted = 0;
    ASSERT_TRUE(numbers >> wanted);
    EXPECT_NEAR(flat[i].item<double>(), wanted, 1e-11) << "element " << i;
  }
}

TEST(PowerSgd, HasTheNumbersOfPyTorch) {
  std::map<std::tuple<int, int, std::string, int>, std::string> lines;
  std::ifstream file("trainyard/parallel/testdata/power_sgd.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    int ranks = 0, columns = 0, index = 0;
    std::string what;
    words >> ranks >> columns >> what >> index;
    std::string rest;
    std::getline(words, rest);
    lines[{ranks, columns, what, index}] = rest;
  }
  ASSERT_EQ(lines.size(), 2 * 3 * (kSteps - kStartIter) + 3 * (2 + 3));
  for (const int ranks : {2, 3}) {
    for (const int columns : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(columns) + " columns");
      GradientCompression options = power_sgd(columns);
      options.start_iter = kStartIter;
      CompressedRanks all(ranks, kShapes, options);
      all.load(start_state(ranks, columns));
      for (int step = kStartIter; step < kSteps; ++step) {
        all.reduce([&](int rank, auto& own) { fill_gradients(rank, step, own); });
        std::istringstream numbers(lines.at({ranks, columns, "reduced", step}));
        for (const auto& [name, shape] : kShapes) expect_near(all[0].gradient(name), numbers);
        for (size_t r = 1; r < all.size(); ++r) EXPECT_TRUE(all[r].set.gradients().equal(all[0].set.gradients()));
      }
      const core::MemoryState state = all.state();
      for (int r = 0; r < ranks; ++r) {
        std::istringstream numbers(lines.at({ranks, columns, "error", r}));
        for (size_t t = 0; t < kCompressed; ++t) {
          expect_near(state.tensor("error/" + std::to_string(r) + "/" + kShapes[t].first), numbers);
        }
      }
    }
  }
}

// A product of [rows, rank] and [rank, columns], of normal numbers.
at::Tensor low_rank(int64_t rows, int64_t columns, int64_t rank, uint64_t seed, at::ScalarType dtype) {
  at::Tensor left = at::empty({rows, rank}), right = at::empty({rank, columns});
  core::RandomStream random(seed, "low rank");
  random.normals(left.mutable_data_ptr<float>(), left.numel());
  random.normals(right.mutable_data_ptr<float>(), right.numel());
  return at::mm(left.to(dtype), right.to(dtype));
}

TEST(PowerSgd, AMatrixOfItsRankIsExact) {
  CompressedRanks all(2, {{"w", {40, 70}}}, power_sgd(3));
  for (int step = 0; step < 3; ++step) {
    const at::Tensor sum = low_rank(40, 70, 3, static_cast<uint64_t>(step), at::kDouble);
    // The ranks' own gradients have any rank; what they have in common has three.
    all.reduce([&](int rank, auto& own) {
      own.gradient("w").copy_(rank == 0 ? sum.mul(2) : at::zeros(sum.sizes(), at::kDouble));
    });
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_LT(all[r].gradient("w").sub(sum).abs().max().item<double>(), 1e-11) << step;
    }
  }
}

// Without orthonormal columns the matrices would grow as the gradients do, step by step.
TEST(PowerSgd, LargeAndSmallGradientsAreExactInFloat) {
  for (const double scale : {1e25, 1e-25}) {
    CompressedRanks all(2, {{"w", {40, 70}}}, power_sgd(2), core::ReduceOp::kSum, at::kFloat);
    for (int step = 0; step < 4; ++step) {
      const at::Tensor wanted = low_rank(40, 70, 2, 7, at::kDouble).mul(scale);
      all.reduce([&](int, auto& own) { own.gradient("w").copy_(wanted.mul(0.5)); });
      EXPECT_LT(all[1].gradient("w").sub(wanted).abs().max().item<double>(), 1e-4 * scale) << step;
    }
  }
}

TEST(PowerSgd, WhatIsLostOfGradientsIsKept) {
  for (const auto op : {core::ReduceOp::kMean, core::ReduceOp::kSum}) {
    CompressedRanks all(3, {{"w", {30, 20}}, {"b", {9}}}, power_sgd(1), op);
    const double ranks = 3, shares = op == core::ReduceOp::kMean ? ranks : 1;
    at::Tensor given = at::zeros({30, 20}, at::kDouble), applied = at::zeros({30, 20}, at::kDouble);
    for (int step = 0; step < 5; ++step) {
      std::vector<at::Tensor> own_gradients(3);
      all.reduce([&](int rank, auto& own) {
        own.gradient("w").copy_(low_rank(30, 20, 8, static_cast<uint64_t>(100 * step + rank), at::kDouble));
        own.gradient("b").fill_(rank + step);
        own_gradients[static_cast<size_t>(rank)] = own.gradient("w").clone();
      });
      for (const at::Tensor& own : own_gradients) given.add_(own);
      applied.add_(all[0].gradient("w"), shares);
      EXPECT_EQ(all[2].gradient("b")[4].item<double>(), op == core::ReduceOp::kMean ? 1 + step : 3 * (1 + step));
      at::Tensor kept = at::zeros({600}, at::kDouble);
      for (size_t r = 0; r < 3; ++r) kept.add_(all[r].compressor->error());
      EXPECT_LT(given.sub(applied).sub(kept.view({30, 20})).abs().max().item<double>(), 1e-11) << step;
      EXPECT_GT(kept.abs().max().item<double>(), 0.1);
    }
  }
}

// A warm start follows a gradient that stays: the error memory brings all of it in the end.
TEST(PowerSgd, AGradientThatStaysIsAppliedInFull) {
  CompressedRanks all(2, {{"w", {12, 16}}}, power_sgd(2));
  const at::Tensor gradient = low_rank(12, 16, 12, 3, at::kDouble);
  at::Tensor applied = at::zeros(gradient.sizes(), at::kDouble);
  constexpr int kMany = 60;
  for (int step = 0; step < kMany; ++step) {
    all.reduce([&](int, auto& own) { own.gradient("w").copy_(gradient); });
    applied.add_(all[0].gradient("w"));
  }
  EXPECT_LT(applied.div(kMany).sub(gradient).norm().item<double>() / gradient.norm().item<double>(), 0.2);
}

TEST(PowerSgd, CountsItsBytes) {
  // w: (30 + 20) 2 of 600; tiny and b do not get smaller.
  CompressedRanks all(2, {{"w", {30, 20}}, {"tiny", {3, 3}}, {"b", {11}}}, power_sgd(2, 2), core::ReduceOp::kMean,
                      at::kFloat);
  EXPECT_EQ(all[0].compressor->bytes_of_step().exchanged, 4 * (100 + 9 + 11));
  EXPECT_EQ(all[0].compressor->bytes_of_step().uncompressed, 4 * (600 + 9 + 11));
  // Errors of w, what is not compressed, both narrow matrices, and the second one of the step before.
  EXPECT_EQ(all[0].compressor->memory_bytes(), 4 * (600 + (9 + 11) + (30 + 20) * 2 + 20 * 2));
  for (int step = 0; step < 3; ++step) all.reduce([](int, auto& own) { own.set.gradients().fill_(1); });
  EXPECT_EQ(all[0].compressor->bytes().exchanged, 3 * 4 * 120);
  // One that has to shrink seven times is not compressed.
  CompressedRanks none(2, {{"w", {30, 20}}}, power_sgd(2, 6));
  EXPECT_EQ(none[0].compressor->compressed().size(), 0);
  CompressedRanks some(2, {{"w", {30, 20}}}, power_sgd(2, 5.9));
  EXPECT_EQ(some[0].compressor->compressed().size(), 1);
  none.reduce([](int rank, auto& own) { own.set.gradients().fill_(rank); });
  EXPECT_EQ(none[1].gradient("w")[29][19].item<double>(), 0.5);
}

// Frozen parameters have zero gradients; they may be thawed.
TEST(PowerSgd, ZeroGradientsAreZeroAndLaterOnesExact) {
  CompressedRanks all(2, {{"w", {40, 70}}}, power_sgd(2));
  for (int step = 0; step < 2; ++step) {
    all.reduce([](int, auto& own) { own.gradient("w").zero_(); });
    EXPECT_EQ(all[0].gradient("w").abs().max().item<double>(), 0);
  }
  const at::Tensor wanted = low_rank(40, 70, 2, 5, at::kDouble);
  all.reduce([&](int, auto& own) { own.gradient("w").copy_(wanted); });
  EXPECT_LT(all[0].gradient("w").sub(wanted).abs().max().item<double>(), 1e-11);
}

}  // namespace
}  // namespace trainyard::parallel::power_sgd_test
