// Values that are discarded and made again change the memory, but no bit of a result.
#include "trainyard/nn/cpu/plan/recomputation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::nn::cpu::recomputation_test {
namespace {

// Steps that have only what the choice looks at.
class FakeStep : public PlanStep {
 public:
  FakeStep(ValueId made, std::vector<ValueId> from, RecomputeCost cost, bool reads = false, bool pins = false)
      : made_(made), from_(std::move(from)), cost_(cost), reads_(reads), pins_(pins) {}
  ValueId output() const override { return made_; }
  std::vector<ValueId> inputs() const override { return from_; }
  std::vector<ValueId> kept() const override { return reads_ ? from_ : std::vector<ValueId>(); }
  bool pins_inputs() const override { return pins_; }
  RecomputeCost recompute_cost() const override { return cost_; }
  void forward(Run&) override {}
  void plan_backward(PlanBuilder&) override {}
  void backward(Run&) override {}

 private:
  ValueId made_;
  std::vector<ValueId> from_;
  RecomputeCost cost_;
  bool reads_, pins_;
};

class ValuesToForget : public ::testing::Test {
 protected:
  // Value 0 is the image; each further one has the bytes given.
  void add(std::vector<ValueId> from, RecomputeCost cost, int64_t bytes, bool reads = false, bool pins = false) {
    steps_.push_back(
        std::make_unique<FakeStep>(static_cast<ValueId>(bytes_.size()), std::move(from), cost, reads, pins));
    steps_.back()->index = static_cast<int>(steps_.size()) - 1;
    bytes_.push_back(bytes);
  }
  void convolution(ValueId from, int64_t bytes = 4) { add({from}, RecomputeCost::kCostly, bytes, true); }
  void norm(ValueId from, int64_t bytes = 4) { add({from}, RecomputeCost::kCheap, bytes, true); }

  std::vector<ValueId> discarded(Recomputation recomputation) const {
    std::vector<ValueId> result;
    const std::vector<bool> chosen = values_to_discard(steps_, bytes_, recomputation);
    for (size_t id = 0; id < chosen.size(); ++id) {
      if (chosen[id]) result.push_back(static_cast<ValueId>(id));
    }
    return result;
  }
  using Ids = std::vector<ValueId>;

  std::vector<std::unique_ptr<PlanStep>> steps_;
  std::vector<int64_t> bytes_{0};
};

TEST_F(ValuesToForget, NothingUnlessAsked) {
  convolution(0), norm(1), convolution(2);
  EXPECT_EQ(discarded(Recomputation::kNone), Ids());
}

// An activation on its own, whose backward reads its input.
TEST_F(ValuesToForget, AnActivationWhoseInputIsKeptAnyway) {
  convolution(0), add({1}, RecomputeCost::kNegligible, 4, true), convolution(2), norm(3);
  EXPECT_EQ(discarded(Recomputation::kNone), Ids({2}));
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({2, 4}));
  // Where no backward reads the input, it would be kept for the recomputation alone.
  steps_.clear(), bytes_ = {0};
  convolution(0), add({1}, RecomputeCost::kNegligible, 4, false), convolution(2);
  EXPECT_EQ(discarded(Recomputation::kNone), Ids());
}

TEST_F(ValuesToForget, ElementwiseForgetsNormsAndKeepsConvolutions) {
  convolution(0), norm(1), convolution(2), norm(3);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({2, 4}));
}

TEST_F(ValuesToForget, ElementwiseKeepsWhatWouldCostMoreThanItFrees) {
  // The sum of two outputs that no backward reads: discarding it would keep two for one.
  add({0}, RecomputeCost::kCostly, 4), add({0}, RecomputeCost::kCostly, 4);
  add({1, 2}, RecomputeCost::kCheap, 4);
  convolution(3);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids());
  // Two norms' outputs are made again themselves.
  steps_.clear(), bytes_ = {0};
  convolution(0), convolution(0), norm(1), norm(2);
  add({3, 4}, RecomputeCost::kCheap, 4);
  convolution(5);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({3, 4, 5}));
}

TEST_F(ValuesToForget, NeverWhatABackwardReadsInItsFirstPlace) {
  convolution(0), norm(1);
  add({2}, RecomputeCost::kNever, 4, false, true);
  norm(3);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({4}));
  for (ValueId id : discarded(Recomputation::kBlocks)) EXPECT_TRUE(id != 2 && id != 3) << id;
}

// A chain of n values of one size needs 2 sqrt(n) of them: those at the cuts and those between two cuts.
TEST_F(ValuesToForget, BlocksCutAChainByTheRootOfItsLength) {
  for (ValueId i = 0; i < 16; ++i) convolution(i);
  add({16}, RecomputeCost::kNever, 1, true);
  const Ids chosen = discarded(Recomputation::kBlocks);
  size_t run = 0, longest = 0;
  for (ValueId i = 1; i <= 16; ++i) {
    run = std::find(chosen.begin(), chosen.end(), i) != chosen.end() ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  EXPECT_LE(16 - chosen.size() + longest, 8U);
}

// Which values are discarded of 16 of one size, and of chains where small ones are better places to cut: those with the
// least sum of what is kept and of the largest part between two cuts.
TEST_F(ValuesToForget, BlocksKeepTheSmallestValues) {
  for (ValueId i = 0; i < 16; ++i) convolution(i);
  add({16}, RecomputeCost::kNever, 1, true);
  EXPECT_EQ(discarded(Recomputation::kBlocks), Ids({1, 2, 4, 5, 7, 8, 10, 11, 13, 14}));
  const auto chain = [&](const std::vector<int64_t>& sizes) {
    steps_.clear(), bytes_ = {0};
    for (const int64_t size : sizes) convolution(static_cast<ValueId>(bytes_.size()) - 1, size);
    add({static_cast<ValueId>(bytes_.size()) - 1}, RecomputeCost::kNever, 1, true);
    return discarded(Recomputation::kBlocks);
  };
  EXPECT_EQ(chain({8, 2, 4, 8, 2, 4, 8, 2, 4, 8, 2, 4}), Ids({1, 2, 4, 5, 7, 8, 10, 11}));
  EXPECT_EQ(chain({16, 1, 8, 1, 4, 1, 2, 1, 16, 1, 8, 1}), Ids({1, 3, 4, 5, 6, 7, 9}));
}

// The 20 bytes of each convolution are read by no backward: only those between two convolutions count.
TEST_F(ValuesToForget, BlocksCountWhatABackwardReads) {
  for (ValueId i = 0; i < 12; i += 2) {
    convolution(i, 20);
    add({i + 1}, RecomputeCost::kCheap, 8);
  }
  add({12}, RecomputeCost::kNever, 1, true);
  EXPECT_EQ(discarded(Recomputation::kBlocks), Ids({1, 2, 3, 5, 6, 7, 9, 10, 11}));
}

// As many bytes for as many are worth it, and what is kept for one output is there for the next.
TEST_F(ValuesToForget, ElementwiseTakesWhatFreesAsMuchAsItKeeps) {
  add({0}, RecomputeCost::kCostly, 4), add({1}, RecomputeCost::kCheap, 4), add({1}, RecomputeCost::kCheap, 2);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({2, 3}));
  steps_.clear(), bytes_ = {0};
  add({0}, RecomputeCost::kCostly, 4), add({1}, RecomputeCost::kCheap, 2), add({1}, RecomputeCost::kCheap, 4);
  EXPECT_EQ(discarded(Recomputation::kElementwise), Ids({3}));
}

// Not a single byte is kept for it.
TEST_F(ValuesToForget, AnActivationIsWorthNoInputHoweverSmall) {
  add({0}, RecomputeCost::kCostly, 1), add({1}, RecomputeCost::kNegligible, 4), convolution(2);
  EXPECT_EQ(discarded(Recomputation::kNone), Ids());
}

// A cut is never where a shortcut passes by: what is kept before the last cut is the input of a block.
TEST_F(ValuesToForget, BlocksAreCutBetweenThemOnly) {
  convolution(0);
  for (ValueId block = 1; block < 19; block += 3) {  // two convolutions and a sum with the block's input
    convolution(block), convolution(block + 1);
    add({block, block + 2}, RecomputeCost::kCheap, 4);
  }
  add({19}, RecomputeCost::kNever, 1, true);
  const Ids chosen = discarded(Recomputation::kBlocks);
  ASSERT_FALSE(chosen.empty());
  int kept_inputs = 0;
  for (ValueId id = 1; id < chosen.back(); ++id) {
    if (std::find(chosen.begin(), chosen.end(), id) != chosen.end()) continue;
    EXPECT_EQ(id % 3, 1) << id;
    ++kept_inputs;
  }
  EXPECT_GE(kept_inputs, 1);
}

// Everything that can be made again: norms with and without what follows them, pools, sums, concatenations, channel
// factors, random factors, conversions around ATen's operations.
Graph everything() {
  GraphBuilder b({.image = {3, 16, 16}, .name = "everything"});
  const auto conv = [&](const std::string& name, GraphBuilder::Value x, int64_t channels) {
    return b.convolution(name, x, {.out_channels = channels, .kernel = 3, .padding = Padding::all(1)});
  };
  const auto unit = [&](const std::string& name, GraphBuilder::Value x, int64_t channels) {
    return b.activation(name + "/relu", b.batch_norm(name + "/bn", conv(name, x, channels)));
  };
  auto x = b.max_pool("pool", unit("stem", b.input(), 16), {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  for (int i = 0; i < 3; ++i) {
    const std::string name = "block" + std::to_string(i);
    const auto branch = b.batch_norm(name + "/bn", conv(name + "/b", unit(name + "/a", x, 16), 16));
    x = b.activation(name + "/relu", b.add(name + "/add", {x, b.stochastic_depth(name + "/depth", branch, 0.3)}));
  }
  for (int i = 0; i < 3; ++i) {
    const std::string name = "dense" + std::to_string(i);
    x = b.concat(name, {x, b.dropout(name + "/drop", unit(name + "/conv", x, 12), 0.2)});
  }
  x = b.adaptive_average_pool("through ATen", b.channel_shuffle("shuffle", x, 4), {8, 8});
  x = b.activation("silu", b.batch_norm("bn", x), Activation::Function::kSilu);
  x = b.average_pool("average", x, {.kernel = 2, .stride = 2});
  const auto factor =
      b.activation("factor", b.linear("squeeze", b.global_average_pool("mean", x), {.out_features = 52}),
                   Activation::Function::kSigmoid);
  x = unit("last", b.multiply("scale", x, factor), 24);
  return b.build(b.linear("fc", b.flatten("flat", x), {.out_features = 5}));
}

struct Trained {
  at::Tensor gradients, values;
  std::vector<at::Tensor> statistics;
  int64_t bytes = 0;
};

// frozen: what the names of parameters begin with that do not train.
Trained train_three_steps(const Graph& graph, at::ScalarType dtype, Recomputation recomputation, int64_t side,
                          const std::vector<std::string>& frozen = {}) {
  ParameterSet set;
  GradientSink sink(set);
  const auto executor =
      make_executor("cpu", graph,
                    {.dtype = dtype,
                     .kernels = {.convolutions = ConvolutionPolicy::kByShape, .recomputation = recomputation},
                     .parameters = &set,
                     .gradients = &sink});
  set.allocate();
  set.initialize(3);
  for (const Segment& segment : set.segments()) {
    const auto begins_so = [&](const std::string& start) { return segment.spec.name.starts_with(start); };
    if (std::any_of(frozen.begin(), frozen.end(), begins_so)) set.set_trainable(segment.id, false);
  }
  const at::Tensor images = (at::linspace(-2, 2, 4 * 3 * side * side) * 37).sin().view({4, 3, side, side});
  const at::Tensor labels = at::linspace(0, 4.99, 4).to(at::kLong);
  for (int64_t step = 0; step < 3; ++step) {
    sink.begin(0, 1);
    softmax_cross_entropy(executor->forward(images, {.seed = 3, .step = step}), labels).backward();
    sink.finish();
    set.values().sub_(set.gradients(), 0.05);
    set.values_changed();
  }
  Trained trained{.gradients = set.gradients().clone(), .values = set.values().clone()};
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) trained.statistics.push_back(set.buffer(i).clone());
  trained.bytes = executor->prepare(4)->activations;
  return trained;
}

void expect_same_bits_in_less_memory(const Graph& graph, int64_t side) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Trained kept = train_three_steps(graph, dtype, Recomputation::kNone, side);
    int64_t bytes = kept.bytes;
    for (const Recomputation recomputation : {Recomputation::kElementwise, Recomputation::kBlocks}) {
      const Trained again = train_three_steps(graph, dtype, recomputation, side);
      EXPECT_TRUE(at::equal(again.gradients, kept.gradients));
      EXPECT_TRUE(at::equal(again.values, kept.values));
      for (size_t i = 0; i < kept.statistics.size(); ++i) {
        EXPECT_TRUE(at::equal(again.statistics[i], kept.statistics[i])) << i;
      }
      EXPECT_LT(again.bytes, bytes) << graph.name;
    }
  }
}

TEST(Recomputation, OfEverythingGivesTheSameBits) {
  expect_same_bits_in_less_memory(everything(), 16);
}

// Below the layers that train no backward keeps what a recomputation reads: constants of norms, random factors.
TEST(Recomputation, OfLayersWithoutABackwardGivesTheSameBits) {
  const Graph graph = everything();
  std::vector<std::string> frozen = {"stem", "block0", "block1"};
  for (const std::vector<std::string>& more : {std::vector<std::string>(), {"block2", "dense0", "dense1"}}) {
    frozen.insert(frozen.end(), more.begin(), more.end());
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Trained kept = train_three_steps(graph, dtype, Recomputation::kNone, 16, frozen);
      for (const Recomputation recomputation : {Recomputation::kElementwise, Recomputation::kBlocks}) {
        const Trained again = train_three_steps(graph, dtype, recomputation, 16, frozen);
        EXPECT_TRUE(at::equal(again.gradients, kept.gradients)) << frozen.back() << ' ' << toString(dtype);
        EXPECT_TRUE(at::equal(again.values, kept.values)) << frozen.back() << ' ' << toString(dtype);
      }
    }
  }
}

// GELU between two layers with weights is all that could be discarded here, and is so unasked.
TEST(Recomputation, OfGeluNeedsNoFlag) {
  GraphBuilder b({.image = {3, 16, 16}, .name = "gelu"});
  auto x = b.convolution("up", b.input(), {.out_channels = 64, .kernel = 1});
  x = b.activation("gelu", x, Activation::Function::kGelu);
  x = b.convolution("down", x, {.out_channels = 16, .kernel = 1});
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", x), {.out_features = 5}));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Trained unasked = train_three_steps(graph, dtype, Recomputation::kNone, 16);
    const Trained asked = train_three_steps(graph, dtype, Recomputation::kElementwise, 16);
    EXPECT_EQ(unasked.bytes, asked.bytes);
    EXPECT_TRUE(at::equal(unasked.values, asked.values));
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::recomputation_test
