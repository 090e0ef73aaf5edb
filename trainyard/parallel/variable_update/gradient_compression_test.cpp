// What compressed gradients of both methods have in common: equal bits, skipped steps, scales, states, and their place
// in a variable update.
#include "trainyard/parallel/variable_update/gradient_compression.h"

#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/compressed_ranks.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel::gradient_compression_test {
namespace {

using ::testing::HasSubstr;

const NamedShapes kShapes = {{"conv.weight", {24, 3, 3, 3}}, {"fc.weight", {10, 64}}, {"fc.bias", {10}}};

void fill(int rank, uint64_t step, nn::ParameterSet& set, double scale = 1) {
  for (const nn::Segment& segment : set.segments()) {
    std::vector<float> values(static_cast<size_t>(segment.count));
    core::RandomStream(4, segment.spec.name, {step, static_cast<uint64_t>(rank)}).normals(values.data(), segment.count);
    const at::Tensor gradient = set.gradient(segment.id).view({-1});
    for (int64_t i = 0; i < segment.count; ++i) gradient[i] = values[static_cast<size_t>(i)] * scale;
  }
}

class CompressedGradients : public ::testing::TestWithParam<CompressionMethod> {
 protected:
  GradientCompression options() const {
    return {.method = GetParam(), .matrix_approximation_rank = 2, .min_compression_rate = 1, .top_k_share = 0.05};
  }
  CompressedRanks ranks(int size, core::ReduceOp op = core::ReduceOp::kMean) const {
    return {size, kShapes, options(), op, at::kFloat};
  }
  static void step(CompressedRanks& all, uint64_t number, double scale = 1) {
    all.reduce([&](int rank, auto& own) {
      fill(rank, number, own.set, scale);
      own.compressor->set_gradient_scale(scale);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Methods, CompressedGradients,
                         ::testing::Values(CompressionMethod::kPowerSgd, CompressionMethod::kTopK),
                         [](const auto& each) { return std::string(compression_method_name(each.param)); });

TEST_P(CompressedGradients, HaveTheSameBitsOnAllRanks) {
  CompressedRanks all = ranks(3);
  for (uint64_t number = 0; number < 4; ++number) {
    step(all, number);
    for (size_t r = 1; r < 3; ++r) EXPECT_TRUE(all[r].set.gradients().equal(all[0].set.gradients()));
    EXPECT_FALSE(all[1].compressor->error().equal(all[0].compressor->error()));
  }
}

TEST_P(CompressedGradients, AStepThatIsNotFiniteLeavesWhatIsKept) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::string where : {"conv.weight", "fc.weight", "fc.bias"}) {
      CompressedRanks all = ranks(3), undisturbed = ranks(3);
      step(all, 0);
      step(undisturbed, 0);
      const core::MemoryState before = all.state();
      all.reduce([&](int rank, auto& own) {
        fill(rank, 1, own.set);
        if (rank == 1) own.gradient(where).view({-1})[3].fill_(bad);
      });
      EXPECT_TRUE(equal_states(all.state(), before)) << where;
      for (size_t r = 0; r < 3; ++r) {
        for (const auto& [name, shape] : kShapes) EXPECT_TRUE(all[r].gradient(name).isnan().all().item<bool>());
      }
      step(all, 2);
      step(undisturbed, 2);
      EXPECT_TRUE(all[2].set.gradients().equal(undisturbed[2].set.gradients())) << where;
      EXPECT_FALSE(equal_states(all.state(), before));
    }
  }
}

// Scales that are powers of two change no bits.
TEST_P(CompressedGradients, FollowALossScaleThatChanges) {
  CompressedRanks plain = ranks(2), scaled = ranks(2);
  for (uint64_t number = 0; number < 4; ++number) {
    const double scale = number < 2 ? 1024 : 256;
    step(plain, number);
    step(scaled, number, scale);
    EXPECT_TRUE(scaled[0].set.gradients().div(scale).equal(plain[0].set.gradients())) << number;
  }
}

TEST_P(CompressedGradients, ContinueFromAStateBitForBit) {
  CompressedRanks whole = ranks(3), first = ranks(3), second = ranks(3);
  for (uint64_t number = 0; number < 6; ++number) {
    step(whole, number);
    if (number < 3) step(first, number);
    if (number == 2) second.load(first.state());
    if (number >= 3) step(second, number);
  }
  EXPECT_TRUE(equal_states(second.state(), whole.state()));
  for (size_t r = 0; r < 3; ++r) EXPECT_TRUE(second[r].set.gradients().equal(whole[r].set.gradients()));
}

TEST_P(CompressedGradients, OfAnotherNumberOfRanksKeepWhatIsToBeApplied) {
  for (const auto op : {core::ReduceOp::kMean, core::ReduceOp::kSum}) {
    CompressedRanks three = ranks(3, op), two = ranks(2, op);
    step(three, 0);
    const core::MemoryState state = three.state();
    ::testing::internal::CaptureStderr();
    two.load(state);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("error memories of 3 ranks are shared out over 2"));
    at::Tensor before = at::zeros(three[0].compressor->error().sizes(), at::kDouble), after = before.clone();
    for (size_t r = 0; r < 3; ++r) before.add_(three[r].compressor->error());
    for (size_t r = 0; r < 2; ++r) after.add_(two[r].compressor->error());
    if (op == core::ReduceOp::kMean) {
      before.div_(3);
      after.div_(2);
    }
    EXPECT_LT(before.sub(after).abs().max().item<double>(), 1e-6);
    EXPECT_GT(before.abs().max().item<double>(), 0.1);
    EXPECT_TRUE(two[0].compressor->error().equal(two[1].compressor->error()));
  }
}

TEST_P(CompressedGradients, BeginAnewWithoutAState) {
  CompressedRanks all = ranks(2), fresh = ranks(2);
  step(all, 0);
  ::testing::internal::CaptureStderr();
  all.load(core::MemoryState());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no state of compressed gradients"));
  EXPECT_TRUE(equal_states(all.state(), fresh.state()));
}

TEST_P(CompressedGradients, RefuseADamagedState) {
  CompressedRanks all = ranks(2);
  step(all, 0);
  const core::MemoryState good = all.state();
  const auto load_changed = [&](const std::string& changed, const std::function<void(core::StateWriter&)>& write) {
    core::MemoryState bad;
    for (const std::string& name : good.names()) {
      if (name != changed) good.copy(name, bad, name);
    }
    write(bad);
    return core::code_of([&] { all[0].compressor->load(bad); });
  };
  EXPECT_EQ(load_changed("steps", [](auto& out) { out.integer("steps", -1); }), core::ErrorCode::kCorruptData);
  EXPECT_EQ(load_changed("error_scale", [](auto& out) { out.real("error_scale", 0); }), core::ErrorCode::kCorruptData);
  EXPECT_EQ(
      load_changed("error_scale", [](auto& out) { out.real("error_scale", std::numeric_limits<double>::infinity()); }),
      core::ErrorCode::kCorruptData);
  EXPECT_EQ(load_changed("error/0/fc.weight",
                         [](auto& out) {
                           const at::Tensor other = at::zeros({3, 3});
                           out.tensor("error/0/fc.weight", other);
                         }),
            core::ErrorCode::kCorruptData);
}

TEST_P(CompressedGradients, ContinueFromAStateOfNoStepAtAll) {
  CompressedRanks fresh = ranks(2), resumed = ranks(2);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(core::message_of([&] { resumed.load(fresh.state()); }), "no error");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "there is nothing to say";
}

// What that method keeps is of no use here, and the user hears of it.
TEST_P(CompressedGradients, OfTheOtherMethodsStateSayWhatIsLost) {
  GradientCompression other = options();
  other.method = GetParam() == CompressionMethod::kTopK ? CompressionMethod::kPowerSgd : CompressionMethod::kTopK;
  CompressedRanks saved(2, kShapes, other, core::ReduceOp::kMean, at::kFloat), all = ranks(2);
  step(saved, 0);
  const core::MemoryState state = saved.state();
  ::testing::internal::CaptureStderr();
  all.load(state);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("compressed otherwise (by " + std::string(compression_method_name(other.method)) + ")"));
}

// Steps before start_iter are those of an uncompressed exchange, and count over a resume.
TEST_P(CompressedGradients, BeginAtTheirStep) {
  GradientCompression late = options();
  late.start_iter = 2;
  CompressedRanks all(2, kShapes, late, core::ReduceOp::kMean, at::kFloat);
  for (uint64_t number = 0; number < 2; ++number) {
    step(all, number);
    nn::ParameterSet& first = all[0].set;
    const at::Tensor result = first.gradients().clone();
    fill(0, number, first);
    at::Tensor mean = first.gradients().clone();
    fill(1, number, first);
    EXPECT_TRUE(mean.add(first.gradients()).div(2).equal(result));
  }
  const int64_t before = all[0].compressor->bytes().exchanged;
  EXPECT_EQ(before, all[0].compressor->bytes().uncompressed);
  CompressedRanks resumed(2, kShapes, late, core::ReduceOp::kMean, at::kFloat);
  resumed.load(all.state());
  step(all, 2);
  step(resumed, 2);
  EXPECT_LT(all[0].compressor->bytes().exchanged - before, before / 4);
  EXPECT_TRUE(resumed[1].set.gradients().equal(all[1].set.gradients()));
}

// A variable update of three processes that are threads.
class CompressedUpdates {
 public:
  CompressedUpdates(int size, const std::string& mode, const GradientCompression& compression)
      : communicators_(make_thread_communicators(size)), updates_(static_cast<size_t>(size)) {
    on_all([&](int rank) {
      auto& update = updates_[static_cast<size_t>(rank)];
      update = variable_updates().get(mode)(
          {.make_communicators =
               [&, rank] {
                 Communicators one;
                 one.push_back(std::move(communicators_[static_cast<size_t>(rank)]));
                 return one;
               },
           .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
           .deadline = std::chrono::seconds(60),
           .compression = compression});
      for (const auto& [name, shape] : kShapes) {
        update->parameters(0).declare({.name = name, .shape = shape, .init = nn::Initializer::normal(1.0)});
      }
      update->allocate();
    });
  }
  void on_all(const std::function<void(int rank)>& work) {
    std::vector<core::Thread> threads;
    for (size_t r = 0; r < updates_.size(); ++r) {
      threads.emplace_back(core::ThreadOptions{}, [&work, r] { work(static_cast<int>(r)); });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  void step(uint64_t number) {
    on_all([&](int rank) {
      VariableUpdate& update = *updates_[static_cast<size_t>(rank)];
      fill(rank, number, update.parameters(0));
      update.reduce(0);
      optim::StepState state;
      state.write({.learning_rate = 0.1});
      update.update(0, state);
    });
  }
  core::MemoryState gathered_state() {
    on_all([&](int rank) { updates_[static_cast<size_t>(rank)]->gather_state(); });
    return state();
  }
  core::MemoryState state() const {
    core::MemoryState state;
    updates_[0]->save(state);
    return state;
  }
  void load(const core::MemoryState& state) {
    on_all([&](int rank) { updates_[static_cast<size_t>(rank)]->load(state); });
  }
  at::Tensor values(size_t rank) const { return updates_[rank]->parameters(0).values(); }
  VariableUpdate& operator[](size_t rank) { return *updates_[rank]; }

 private:
  Communicators communicators_;
  std::vector<std::unique_ptr<VariableUpdate>> updates_;
};

TEST_P(CompressedGradients, OfProcessesContinueBitForBit) {
  for (const std::string mode : {"horovod", "collective_all_reduce"}) {
    CompressedUpdates whole(3, mode, options()), first(3, mode, options()), second(3, mode, options());
    EXPECT_TRUE(whole[0].gathers_state());
    for (uint64_t number = 0; number < 6; ++number) {
      whole.step(number);
      if (number < 3) first.step(number);
      if (number == 2) second.load(first.gathered_state());
      if (number >= 3) second.step(number);
    }
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(second.values(r).equal(whole.values(r)));
      EXPECT_TRUE(whole.values(r).equal(whole.values(0)));
    }
    EXPECT_TRUE(whole[0].gradient_bytes().has_value());
  }
}

// What rank 0 has not gathered since the last step is not saved.
TEST_P(CompressedGradients, AreNotSavedAsTheyWere) {
  CompressedUpdates all(2, "horovod", options());
  all.step(0);
  EXPECT_TRUE(all.state().names("compression/error/").empty());
  EXPECT_EQ(all.gathered_state().names("compression/error/").size(), 2 * 2);
  EXPECT_EQ(all.state().names("compression/error/").size(), 2 * 2);
  all.load(all.state());
  EXPECT_TRUE(all.state().names("compression/error/").empty()) << "what was gathered before another state was loaded";
  all.step(1);
  const core::MemoryState without = all.state();
  EXPECT_TRUE(without.names("compression/error/").empty());
  ::testing::internal::CaptureStderr();
  all.load(without);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no error memories"));
}

TEST(GradientCompression, OfReplicasOfOneProcessIsSavedWithoutGathering) {
  const auto make = [] {
    auto update = variable_updates().get("replicated")(
        {.replicas = 2,
         .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
         .compression = {.method = CompressionMethod::kTopK}});
    for (int r = 0; r < 2; ++r) update->parameters(r).declare({.name = "w", .shape = {30, 20}});
    update->allocate();
    return update;
  };
  const auto update = make(), loaded = make();
  const auto reduce = [](VariableUpdate& all, uint64_t number) {
    core::Thread other(core::ThreadOptions{}, [&] {
      fill(1, number, all.parameters(1));
      all.reduce(1);
    });
    fill(0, number, all.parameters(0));
    all.reduce(0);
    other.join();
  };
  reduce(*update, 0);
  EXPECT_FALSE(update->gathers_state());
  core::MemoryState state;
  update->save(state);
  loaded->load(state);
  reduce(*update, 1);
  reduce(*loaded, 1);
  EXPECT_TRUE(loaded->parameters(1).gradients().equal(update->parameters(1).gradients()));
}

TEST(GradientCompression, SaysWhatIsSaved) {
  const GradientBytes bytes{.exchanged = 1'500'000, .uncompressed = 6'250'000};
  EXPECT_EQ(compression_text({.method = CompressionMethod::kPowerSgd, .matrix_approximation_rank = 4}, bytes),
            "powersgd of rank 4, 1.500 MB instead of 6.250 MB a step: 4.2 times less");
  EXPECT_EQ(compression_text({.method = CompressionMethod::kTopK, .top_k_share = 0.025}, bytes),
            "the largest 2.5 % of each gradient, 1.500 MB instead of 6.250 MB a step: 4.2 times less");
  EXPECT_EQ(compression_text({.method = CompressionMethod::kTopK}, {}),
            "the largest 1 % of each gradient, 0.000 MB instead of 0.000 MB a step: 1.0 times less");
}

// A run that does not compress does not keep what was lost so far.
TEST(GradientCompression, OfAStateThatIsNotUsedAnyMoreIsWarnedOf) {
  const auto make = [](const GradientCompression& compression) {
    auto update = variable_updates().get("replicated")(
        {.replicas = 2,
         .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
         .compression = compression});
    for (int r = 0; r < 2; ++r) update->parameters(r).declare({.name = "w", .shape = {30, 20}});
    update->allocate();
    return update;
  };
  const auto plain = make({});
  core::MemoryState compressed, uncompressed;
  make({.method = CompressionMethod::kTopK})->save(compressed);
  plain->save(uncompressed);
  const auto said_to = [&](const core::MemoryState& state) {
    ::testing::internal::CaptureStderr();
    plain->load(state);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_to(compressed), HasSubstr("this run does not compress them"));
  EXPECT_EQ(said_to(uncompressed), "");
}

TEST(GradientCompression, RefusesWhatItCannotDo) {
  const auto code = [](const GradientCompression& options) { return core::code_of([&] { options.validate(); }); };
  EXPECT_FALSE(code({.method = CompressionMethod::kPowerSgd}));
  EXPECT_EQ(code({.matrix_approximation_rank = 0}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.matrix_approximation_rank = 257}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.min_compression_rate = 0.5}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.start_iter = -1}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.top_k_share = 0}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.top_k_share = std::numeric_limits<double>::quiet_NaN()}), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.top_k_share = 1.5}), core::ErrorCode::kInvalidArgument);
  EXPECT_FALSE(code({.matrix_approximation_rank = 256}));
  EXPECT_FALSE(code({.top_k_share = 1}));
  EXPECT_EQ(compression_method("powersgd"), CompressionMethod::kPowerSgd);
  EXPECT_EQ(core::code_of([] { compression_method("zip"); }), core::ErrorCode::kNotFound);

  VariableUpdateOptions update{
      .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
      .compression = {.method = CompressionMethod::kPowerSgd}};
  for (const std::string mode : {"replicated", "independent", "asynchronous"}) {
    EXPECT_THAT(core::message_of([&] { variable_updates().get(mode)(update); }),
                core::Says("not exchanged", "got 1 replica without an exchange"))
        << mode;
  }
  update.replicas = 3;
  EXPECT_THAT(core::message_of([&] { variable_updates().get("independent")(update); }),
              core::Says("not exchanged", "got 3 replicas without an exchange"));
  update.replicas = 2;
  update.packing.parts = 2;
  EXPECT_THAT(core::message_of([&] { variable_updates().get("replicated")(update); }), HasSubstr("cannot be packed"));
}

}  // namespace
}  // namespace trainyard::parallel::gradient_compression_test
