#include "trainyard/parallel/variable_update/variable_update.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/served_parameters.h"

namespace trainyard::parallel::variable_update_test {
namespace {

VariableUpdateOptions options_for(int replicas, const std::string& optimizer = "tf_nesterov",
                                  double weight_decay = 0.0) {
  return {.replicas = replicas,
          .parameters = {.dtype = at::kDouble},
          .make_optimizers = {[=](nn::ParameterSet& set) {
            return optim::optimizers().get(optimizer)(set, {.weight_decay = weight_decay});
          }},
          .seed = 3,
          .deadline = std::chrono::seconds(20)};
}

std::unique_ptr<VariableUpdate> make_update(const std::string& mode, const VariableUpdateOptions& options) {
  auto update = variable_updates().get(mode)(options);
  declare_small_layer(*update, options.replicas, {5, 7});
  return update;
}

void on_all_replicas(int replicas, const std::function<void(int)>& work) {
  std::vector<core::Thread> threads;
  for (int r = 0; r < replicas; ++r) threads.emplace_back(core::ThreadOptions{}, [&work, r] { work(r); });
  for (core::Thread& thread : threads) thread.join();
}

// Gradients of replica r in step s: different for each.
void set_gradients(nn::ParameterSet& set, int replica, int step) {
  const at::NoGradGuard guard;
  set.gradients().copy_(set.values().mul(0.5).add(0.25 * replica + step));
}

void run_steps(VariableUpdate& update, int replicas, int from, int to) {
  optim::StepState state;
  state.write({.learning_rate = 0.1});
  on_all_replicas(replicas, [&](int r) {
    for (int step = from; step < to; ++step) {
      set_gradients(update.parameters(r), r, step);
      update.reduce(r);
      update.update(r, state);
    }
  });
}

double first_value(nn::ParameterSet& set) {
  return set.values()[0].item<double>();
}

// v = m * v + g;  w -= lr * (g + m * v) with g the mean or the sum over replicas, in double.
double expected_first_value(double start, int replicas, int steps, bool sum, double weight_decay = 0.0) {
  double w = start, v = 0;
  for (int step = 0; step < steps; ++step) {
    double g = 0;
    for (int r = 0; r < replicas; ++r) g += 0.5 * w + 0.25 * r + step;
    g += replicas * weight_decay * w;
    if (!sum) g /= replicas;
    v = 0.9 * v + g;
    w -= 0.1 * (g + 0.9 * v);
  }
  return w;
}

class ExchangingUpdateTest : public testing::TestWithParam<std::string> {};

TEST_P(ExchangingUpdateTest, ReducesAndUpdatesByItsDefinition) {
  const bool sums_by_default = GetParam() == "replicated";
  for (const int replicas : {1, 2, 3}) {
    for (const auto reduction : {std::optional<GradientReduction>(), std::optional(GradientReduction::kMean),
                                 std::optional(GradientReduction::kSum)}) {
      VariableUpdateOptions options = options_for(replicas, "tf_nesterov", 0.125);
      options.reduction = reduction;
      auto update = make_update(GetParam(), options);
      const bool sum = reduction ? *reduction == GradientReduction::kSum : sums_by_default;
      EXPECT_EQ(update->reduction(), sum ? GradientReduction::kSum : GradientReduction::kMean);
      const double start = first_value(update->parameters(0));
      run_steps(*update, replicas, 0, 4);
      for (int r = 0; r < replicas; ++r) {
        EXPECT_NEAR(first_value(update->parameters(r)), expected_first_value(start, replicas, 4, sum, 0.125), 1e-12)
            << replicas << " replicas, replica " << r << ", sum " << sum;
      }
    }
  }
}

TEST_P(ExchangingUpdateTest, CopiesStayEqualBitForBit) {
  auto update = make_update(GetParam(), options_for(3));
  run_steps(*update, 3, 0, 10);
  EXPECT_TRUE(update->parameters(0).values().equal(update->parameters(1).values()));
  EXPECT_TRUE(update->parameters(0).values().equal(update->parameters(2).values()));
}

TEST_P(ExchangingUpdateTest, AFailedReplicaWakesTheOthers) {
  auto update = make_update(GetParam(), options_for(2));
  optim::StepState state;
  std::string waiter_saw;
  on_all_replicas(2, [&](int r) {
    if (r == 1) return update->abort({core::ErrorCode::kIo, "the disk of replica 1 is on fire"});
    try {
      update->reduce(r);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kPeerFailed);
      waiter_saw = error.what();
    }
  });
  EXPECT_NE(waiter_saw.find("the disk of replica 1 is on fire"), std::string::npos) << waiter_saw;
}

TEST_P(ExchangingUpdateTest, AReplicaThatNeverComesIsATimeout) {
  VariableUpdateOptions options = options_for(2);
  options.deadline = std::chrono::milliseconds(50);
  auto update = make_update(GetParam(), options);
  try {
    update->reduce(0);
    FAIL() << "waited for nobody";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kTimeout);
  }
  EXPECT_GE(update->communication_seconds(0), 0.0);
}

TEST_P(ExchangingUpdateTest, CountsTheTimeOfWaiting) {
  auto update = make_update(GetParam(), options_for(2));
  on_all_replicas(2, [&](int r) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    update->reduce(r);
  });
  EXPECT_GE(update->communication_seconds(0), 0.04);
  EXPECT_GE(update->waiting_seconds(0), 0.04);
}

INSTANTIATE_TEST_SUITE_P(All, ExchangingUpdateTest, testing::Values("parameter_server", "replicated"),
                         [](const auto& tested) { return tested.param; });

class AnyUpdateTest : public testing::TestWithParam<std::string> {};

TEST_P(AnyUpdateTest, AllReplicasStartAsReplica0) {
  auto update = make_update(GetParam(), options_for(2));
  EXPECT_NE(first_value(update->parameters(0)), 0.0);
  EXPECT_TRUE(update->parameters(0).values().equal(update->parameters(1).values()));
  const bool apart = GetParam() == "staged_parameter_server";  // replicas read older values
  EXPECT_EQ(&update->saved_parameters() == &update->parameters(0), !apart);
  EXPECT_TRUE(update->saved_parameters().values().equal(update->parameters(0).values()));
}

TEST_P(AnyUpdateTest, EachReplicaHasItsOwnGradientsAndBuffers) {
  auto update = make_update(GetParam(), options_for(2));
  update->parameters(0).gradients().fill_(1.0);
  update->parameters(0).buffer(0).fill_(1.0);
  EXPECT_EQ(update->parameters(1).gradients().abs().max().item<double>(), 0.0);
  EXPECT_EQ(update->parameters(1).buffer(0).abs().max().item<double>(), 0.0);
  core::MemoryState saved;
  update->save(saved);
  EXPECT_EQ(saved.tensor("model/bn.running_mean").min().item<double>(), 1.0) << "replica 0's are saved";
}

TEST_P(AnyUpdateTest, OneReplicaDoesNotCommunicate) {
  auto update = make_update(GetParam(), options_for(1));
  run_steps(*update, 1, 0, 3);
  EXPECT_EQ(update->communication_seconds(0), 0.0);
}

TEST_P(AnyUpdateTest, ContinuesFromWhatItSaved) {
  auto straight = make_update(GetParam(), options_for(2));
  run_steps(*straight, 2, 0, 6);

  auto first = make_update(GetParam(), options_for(2));
  run_steps(*first, 2, 0, 3);
  core::MemoryState saved;
  first->save(saved);
  auto second = make_update(GetParam(), options_for(2));
  second->load(saved);
  run_steps(*second, 2, 3, 6);
  for (int r = 0; r < 2; ++r) {
    EXPECT_TRUE(second->parameters(r).values().equal(straight->parameters(r).values())) << "replica " << r;
  }
}

TEST_P(AnyUpdateTest, SavedNamesDoNotDependOnTheNumberOfReplicas) {
  core::MemoryState one, two;
  make_update(GetParam(), options_for(1))->save(one);
  make_update(GetParam(), options_for(2))->save(two);
  EXPECT_EQ(one.names("model/"),
            (std::vector<std::string>{"model/bn.running_mean", "model/fc.bias", "model/fc.weight"}));
  EXPECT_EQ(one.names("optimizer/"),
            (std::vector<std::string>{"optimizer/fc.bias.momentum", "optimizer/fc.weight.momentum"}));
  EXPECT_EQ(two.names("model/"), one.names("model/"));
  EXPECT_EQ(two.names("optimizer/"), one.names("optimizer/"));
  auto more = make_update(GetParam(), options_for(3));
  more->parameters(0).values().zero_();
  more->load(one);
  EXPECT_NE(first_value(more->parameters(2)), 0.0) << "a state of one replica starts three";
}

INSTANTIATE_TEST_SUITE_P(All, AnyUpdateTest,
                         testing::Values("parameter_server", "staged_parameter_server", "replicated", "independent"),
                         [](const auto& tested) { return tested.param; });

// Gradients and their regularization are those at the values of one update before: run_steps() computes them from what
// replicas read.
TEST(StagedParameterServer, AppliesGradientsAtTheValuesOfOneUpdateBefore) {
  for (const int replicas : {1, 3}) {
    auto update = make_update("staged_parameter_server", options_for(replicas, "tf_momentum", 0.125));
    double w = first_value(update->parameters(0)), read = w, v = 0;
    for (int step = 0; step < 5; ++step) {
      EXPECT_NEAR(first_value(update->parameters(replicas - 1)), read, 1e-12) << step;
      run_steps(*update, replicas, step, step + 1);
      const double gradient = 0.5 * read + 0.25 * (replicas - 1) / 2 + step + 0.125 * read;
      v = 0.9 * v + gradient;
      read = w;
      w -= 0.1 * v;
      EXPECT_NEAR(first_value(update->saved_parameters()), w, 1e-12) << step << " of " << replicas;
    }
  }
}

TEST(StagedParameterServer, SavesTheServersValuesAndGoesOnFromAnyState) {
  auto update = make_update("staged_parameter_server", options_for(2));
  run_steps(*update, 2, 0, 3);
  EXPECT_FALSE(update->saved_parameters().values().equal(update->parameters(0).values()));
  core::MemoryState saved;
  update->save(saved);
  const at::Tensor weight = update->saved_parameters().value({0});
  EXPECT_TRUE(saved.tensor("model/fc.weight").equal(weight));
  auto plain = make_update("parameter_server", options_for(2));
  plain->load(saved);
  EXPECT_TRUE(plain->parameters(1).value({0}).equal(weight));
  core::MemoryState of_plain;
  plain->save(of_plain);
  update->load(of_plain);
  EXPECT_TRUE(update->parameters(1).value({0}).equal(weight)) << "a state without staged values";
  EXPECT_EQ(update->optimizer_bytes(), 2 * plain->optimizer_bytes()) << "the server's values count";
}

// Values are fetched in each step: behind a skipped update replicas read what the server has had since the one before.
TEST(StagedParameterServer, BehindASkippedUpdateReplicasReadTheServersValues) {
  auto update = make_update("staged_parameter_server", options_for(1));
  run_steps(*update, 1, 0, 2);
  const at::Tensor read = update->parameters(0).values().clone(), server = update->saved_parameters().values().clone();
  ASSERT_FALSE(read.equal(server));
  optim::StepState state;
  state.write({.learning_rate = 0.1, .found_inf = true});
  set_gradients(update->parameters(0), 0, 2);
  update->optimizer(0)->complete_gradients(state);
  update->update(0, state);
  EXPECT_TRUE(update->saved_parameters().values().equal(server)) << "the update is skipped";
  EXPECT_TRUE(update->parameters(0).values().equal(server));
  EXPECT_FALSE(update->optimizer(0)->gradients_complete()) << "those of the next step are not";
}

TEST(StagedParameterServer, GivesChangedValuesAndMasksToAll) {
  auto update = make_update("staged_parameter_server", options_for(2));
  run_steps(*update, 2, 0, 2);
  update->parameters(0).buffer(0).fill_(3);
  update->change_values([](nn::ParameterSet& set) { set.set_mask({0}, set.value({0}).gt(0)); });
  EXPECT_TRUE(update->parameters(1).values().equal(update->saved_parameters().values()));
  run_steps(*update, 2, 2, 4);
  EXPECT_FALSE(update->saved_parameters()
                   .value({0})
                   .masked_select(update->parameters(0).mask({0}).logical_not())
                   .any()
                   .item<bool>());
  EXPECT_EQ(update->saved_parameters().buffer(0).min().item<double>(), 3) << "statistics are replica 0's";
}

TEST(StagedParameterServer, RefusesWhatItCannot) {
  VariableUpdateOptions options = options_for(1);
  options.make_optimizers.push_back(options.make_optimizers[0]);
  EXPECT_EQ(core::code_of([&] { make_update("staged_parameter_server", options); }), core::ErrorCode::kUnsupported);
}

TEST(IndependentUpdate, ReplicasGoTheirOwnWays) {
  auto update = make_update("independent", options_for(2));
  const double start = first_value(update->parameters(0));
  run_steps(*update, 2, 0, 3);
  EXPECT_NEAR(first_value(update->parameters(0)), expected_first_value(start, 1, 3, false), 1e-12);
  EXPECT_GT(std::abs(first_value(update->parameters(0)) - first_value(update->parameters(1))), 1e-3);
}

TEST(IndependentUpdate, DoesNotTakeAReduction) {
  VariableUpdateOptions options = options_for(2);
  options.reduction = GradientReduction::kSum;
  EXPECT_THROW(make_update("independent", options), core::Error);
}

TEST(VariableUpdate, ReplicasThatDifferAreEqualAfterABroadcast) {
  const at::NoGradGuard guard;
  for (const std::string mode : {"parameter_server", "replicated", "independent"}) {
    SCOPED_TRACE(mode);
    const auto update = make_update(mode, options_for(2));
    run_steps(*update, 2, 0, 2);
    nn::ParameterSet &first = update->parameters(0), &second = update->parameters(1);
    second.buffer(0).add_(7);
    const bool own_values = mode != "parameter_server";
    if (own_values) {
      second.values().mul_(3);
      update->optimizer(1)->slots()[0].values.fill_(11);
    }
    const at::Tensor values = first.values().clone(), slot = update->optimizer(0)->slots()[0].values.clone();
    const uint64_t version = second.version();
    update->broadcast();
    EXPECT_TRUE(second.values().equal(values));
    EXPECT_TRUE(first.values().equal(values)) << "the first one keeps its own";
    EXPECT_TRUE(second.buffer(0).equal(first.buffer(0)));
    EXPECT_TRUE(update->optimizer(0)->slots()[0].values.equal(slot));
    if (!own_values) continue;
    EXPECT_TRUE(update->optimizer(1)->slots()[0].values.equal(slot));
    EXPECT_GT(second.version(), version) << "packed weights are made anew";
  }
  EXPECT_EQ(core::code_of([] { make_update("asynchronous", options_for(2))->broadcast(); }),
            core::ErrorCode::kUnsupported);
}

// An optimizer with slots and all counts: of updates, of those that each parameter has missed, and Lookahead's.
std::unique_ptr<optim::Optimizer> make_counting(nn::ParameterSet& set) {
  return optim::optimizers().get("torch_radam")(set, {.lookahead = optim::Lookahead{}});
}

std::vector<at::Tensor> state_of(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all{optimizer.update_count(), optimizer.missed_updates(), optimizer.lookahead_count()};
  for (const optim::Optimizer::Slot& slot : optimizer.slots()) all.push_back(slot.values);
  return all;
}

TEST(VariableUpdate, ABroadcastCopiesAllStateOfAnOptimizer) {
  const at::NoGradGuard guard;
  for (const std::string mode : {"replicated", "independent"}) {
    VariableUpdateOptions options = options_for(3);
    options.make_optimizers = {make_counting};
    const auto update = make_update(mode, options);
    for (int r = 0; r < 3; ++r) {
      for (const at::Tensor& each : state_of(*update->optimizer(r))) each.fill_(20 + r);
    }
    update->broadcast();
    for (int r = 0; r < 3; ++r) {
      const std::vector<at::Tensor> state = state_of(*update->optimizer(r));
      ASSERT_EQ(state.size(), 6U) << "three counts, two means, and the slow weights";
      for (size_t i = 0; i < state.size(); ++i) {
        EXPECT_TRUE(state[i].eq(20).all().item<bool>()) << mode << ", replica " << r << ": " << i;
      }
    }
  }
}

TEST(VariableUpdate, RefusesBadOptions) {
  VariableUpdateOptions options = options_for(0);
  const auto refusal = [&options] { return core::message_of([&] { make_update("replicated", options); }); };
  EXPECT_THAT(refusal(), core::Says("training needs replicas: expected at least 1, got 0"));
  options = options_for(2);
  options.make_optimizers.emplace_back();
  EXPECT_THAT(refusal(), core::Says("a variable update needs a way to make each of its optimizers"));
  options.make_optimizers.clear();
  EXPECT_THAT(refusal(), core::Says("a variable update needs a way to make each of its optimizers"));
  options = options_for(2);
  options.deadline = std::chrono::milliseconds(0);
  EXPECT_THAT(refusal(), core::Says("the deadline for replicas is not usable: expected more than 0 ms, got 0"));
  options = options_for(2);
  options.bucket_bytes = 0;
  EXPECT_THAT(refusal(), core::Says("cannot leave in buckets of this size: expected at least 1 byte, got 0"));
  options.bucket_bytes = 1;
  options.deadline = std::chrono::milliseconds(1);
  EXPECT_EQ(core::message_of([&] { options.validate(); }), "no error") << "the least of both";
  options = options_for(2);
  options.accelerators.resize(3);
  EXPECT_THAT(core::message_of([&] { options.validate(); }),
              core::Says("each replica needs an accelerator, or none has one: expected 2, got 3"));
  options = options_for(2);
  options.make_communicators = [] { return make_thread_communicators(3); };
  EXPECT_THAT(core::message_of([&] { variable_updates().get("replicated")(options); }),
              core::Says("each replica needs a communicator: expected 2, got 3"));
  EXPECT_THROW(make_update("replicate", options_for(2)), core::Error);
}

TEST(VariableUpdate, ReplicasMustDeclareTheSame) {
  for (const std::string mode : {"parameter_server", "replicated"}) {
    auto update = variable_updates().get(mode)(options_for(2));
    for (const char* const name : {"v", "w"}) update->parameters(0).declare({.name = name, .shape = {2}});
    update->parameters(0).declare_buffer({.name = "mean", .shape = {2}});
    update->parameters(1).declare({.name = "v", .shape = {2}});
    EXPECT_THAT(core::message_of([&] { update->allocate(); }),
                core::Says("replicas have declared different variables: replica 1: expected 2 parameters and 1 "
                           "buffers, got 1 and 0"))
        << mode;
  }
}

TEST(VariableUpdate, MasksOfACheckpointAreRefusedOnADevice) {
  const auto host = make_update("replicated", options_for(1));
  host->change_values([](nn::ParameterSet& set) { set.set_mask({0}, set.value({0}).gt(0)); });
  core::MemoryState saved;
  host->save(saved);
  VariableUpdateOptions options = options_for(1);
  options.parameters.device = at::kMeta;  // a device whose optimizers nobody has
  options.make_optimizers = {[](nn::ParameterSet&) -> std::unique_ptr<optim::Optimizer> {
    throw core::Error(core::ErrorCode::kInternal, "the parameters are there by now");
  }};
  const auto device = variable_updates().get("replicated")(options);
  device->parameters(0).declare({.name = "fc.weight", .shape = {5, 7}});
  EXPECT_EQ(core::code_of([&] { device->allocate(); }), core::ErrorCode::kInternal);
  EXPECT_NE(core::message_of([&] { device->load(saved); }, core::ErrorCode::kUnsupported).find("fc.weight.mask"),
            std::string::npos);
}

// tf_cnn_benchmarks' test_grad_aggregation: ten replicas with ten gradients of one number each. With variables that are
// updated late (variable_consistency=relaxed) each step applies the sums of the step before.
void expect_sums_of_all(bool relaxed, const GradientPacking& packing, VariableUpdateOptions options) {
  constexpr int kVariables = 10;
  const int replicas = options.replicas;
  const auto name = [](int variable) { return "v" + std::to_string(variable); };
  options.packing = packing;
  options.make_optimizers = {
      [relaxed](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {.delayed = relaxed}); }};
  const auto update = variable_updates().get("replicated")(options);
  for (int r = 0; r < replicas; ++r) {
    for (int v = 0; v < kVariables; ++v) {
      update->parameters(r).declare({.name = name(v), .shape = {1}, .init = nn::Initializer::zeros()});
    }
  }
  update->allocate();
  optim::StepState state;
  state.write({.learning_rate = 1});
  const auto sum_of = [replicas](int v) { return replicas * (replicas * (replicas - 1) / 2 + v); };
  on_all_replicas(replicas, [&](int r) {
    const at::NoGradGuard guard;
    nn::ParameterSet& set = update->parameters(r);
    const auto run_step = [&](bool zeros) {
      for (int v = 0; v < kVariables; ++v) set.gradient(*set.find(name(v))).fill_(zeros ? 0 : replicas * r + v);
      update->reduce(r);
      for (int v = 0; v < kVariables; ++v) {
        EXPECT_EQ(set.gradient(*set.find(name(v))).item<double>(), zeros ? 0 : sum_of(v)) << "replica " << r;
      }
      update->update(r, state);
    };
    const auto expect_updates = [&](bool applied) {
      for (int v = 0; v < kVariables; ++v) {
        EXPECT_EQ(set.value(*set.find(name(v))).item<double>(), applied ? -sum_of(v) : 0) << "replica " << r;
      }
    };
    run_step(false);
    expect_updates(!relaxed);
    if (!relaxed) return;
    run_step(true);
    expect_updates(true);
  });
}

const std::vector<GradientPacking> kPackings = {
    {}, {.parts = 3}, {.small_bytes = 8}, {.small_bytes = 8, .small_group = 3}, {.separate = true}};

TEST(GradientAggregation, EachReplicaHasTheSumsOfAll) {
  for (const bool relaxed : {false, true}) {
    for (const GradientPacking& packing : kPackings) {
      SCOPED_TRACE(testing::Message() << packing.parts << " parts, " << packing.small_bytes << " bytes, relaxed "
                                      << relaxed);
      expect_sums_of_all(relaxed, packing, options_for(10));
    }
  }
}

// The same with the algorithms that test_grad_aggregation has: hierarchical_copy over eight replicas, pscpu, xring.
TEST(GradientAggregation, EachReplicaHasTheSumsOfAllByEachAlgorithm) {
  for (const AllReduceOptions& all_reduce : {AllReduceOptions{.hierarchical_copy = true},
                                             {.hierarchical_copy = true, .topology = NetworkTopology::kGcpV100},
                                             {.spec = "pscpu"},
                                             {.spec = "xring"}}) {
    const int replicas = all_reduce.hierarchical_copy ? 8 : 10;
    for (const bool relaxed : {false, true}) {
      for (const GradientPacking& packing : kPackings) {
        SCOPED_TRACE(testing::Message() << "spec '" << all_reduce.spec << "', " << packing.parts << " parts, "
                                        << packing.small_bytes << " bytes, relaxed " << relaxed);
        VariableUpdateOptions options = options_for(replicas);
        options.make_communicators = [&] { return make_thread_communicators(replicas, all_reduce.choice()); };
        expect_sums_of_all(relaxed, packing, options);
      }
    }
  }
}

// Without compression a loss scale says nothing.
TEST(VariableUpdate, TakesALossScaleForGradientsAsTheyAre) {
  auto update = make_update("replicated", options_for(2));
  const double start = first_value(update->parameters(0));
  for (int r = 0; r < 2; ++r) update->set_gradient_scale(r, 1024.0);
  run_steps(*update, 2, 0, 2);
  EXPECT_NEAR(first_value(update->parameters(1)), expected_first_value(start, 2, 2, true), 1e-12);
}

TEST(StagedParameterServer, SaysThatChangedValuesAreNew) {
  auto update = make_update("staged_parameter_server", options_for(2));
  const at::NoGradGuard guard;
  const uint64_t server = update->saved_parameters().version(), read = update->parameters(1).version();
  update->change_values([](nn::ParameterSet& set) { set.values().mul_(2); });
  EXPECT_GT(update->saved_parameters().version(), server);
  EXPECT_GT(update->parameters(1).version(), read);
}

}  // namespace
}  // namespace trainyard::parallel::variable_update_test
