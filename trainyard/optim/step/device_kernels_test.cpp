// Who asks a device's kernels, for what, and with which numbers: on LibTorch's "meta" device, whose tensors have shapes
// and no values, so that nothing but the kernels registered here can have done the work.
#include "trainyard/optim/step/device_kernels.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/optimizers/sharpness_aware.h"
#include "trainyard/optim/scaling/loss_scaler.h"

namespace trainyard::optim::device_kernels_test {
namespace {

struct Calls {
  std::vector<DeviceUpdate> updates;
  std::vector<std::vector<at::Tensor>> slots;  // of the updates
  std::vector<AnyFormula> formulas;
  std::vector<std::vector<double>> fields;
  std::vector<int> part_counts;
  std::vector<int64_t> searched, raised_after;
  std::vector<bool> searched_before_scaling;
};

Calls& calls() {
  static Calls all;
  return all;
}

class RecordingKernels : public DeviceKernels {
 public:
  void flat_update(const DeviceUpdate& update, const AnyFormula& formula) const override {
    calls().updates.push_back(update);
    calls().slots.emplace_back(update.slots.begin(), update.slots.end());
    calls().formulas.push_back(formula);
  }
  at::Tensor sum_of_decayed_squares(const at::Tensor& values, const SegmentPartTable& parts) const override {
    calls().part_counts.push_back(parts.count);
    return at::empty({}, values.options().dtype(at::kDouble));
  }
  void write_fields(const at::Tensor& fields, std::span<const double> values) const override {
    EXPECT_GE(fields.numel(), static_cast<int64_t>(values.size()));
    calls().fields.emplace_back(values.begin(), values.end());
  }
  void find_non_finite(const at::Tensor& gradients, const at::Tensor& found) const override {
    EXPECT_EQ(found.scalar_type(), at::kInt);
    calls().searched.push_back(gradients.numel());
  }
  void apply_loss_scale(const at::Tensor& scale, const at::Tensor& found, const LossScaleSteps& rule,
                        const at::Tensor& fields) const override {
    EXPECT_EQ(scale.numel(), 4);
    EXPECT_EQ(fields.numel(), StepState::kFieldCount);
    calls().raised_after.push_back(rule.raise_after);
    calls().searched_before_scaling.push_back(found.defined());
  }
};

const core::Registration<std::shared_ptr<const DeviceKernels>> kMetaKernels(all_device_kernels(), "meta",
                                                                            std::make_shared<RecordingKernels>());

class DeviceKernelsTest : public testing::Test {
 protected:
  DeviceKernelsTest() {
    calls() = {};
    set_.declare({.name = "a.weight", .shape = {3, 11}, .init = nn::Initializer::zeros()});
    set_.declare({.name = "b.weight", .shape = {kPartElements + 1}, .init = nn::Initializer::zeros()});
    set_.allocate();
  }

  const at::Device device_{at::kMeta};
  nn::ParameterSet set_{{.device = device_}};
};

TEST_F(DeviceKernelsTest, GetAnOptimizersUpdateWithItsNumbers) {
  const auto optimizer = optimizers().get("tf_nesterov")(set_, {.numbers = {{"momentum", 0.8}}, .weight_decay = 0.5});
  optimizer->set_weight_decay_factor(0.25);
  const StepState state(device_);
  const uint64_t before = set_.version();
  optimizer->apply(state);
  EXPECT_NE(set_.version(), before);
  ASSERT_EQ(calls().updates.size(), 1u);
  const DeviceUpdate& update = calls().updates[0];
  EXPECT_TRUE(update.values.is_same(set_.values()));
  EXPECT_TRUE(update.gradients.is_same(set_.gradients()));
  EXPECT_EQ(update.parts->count, 3);
  EXPECT_TRUE(update.fields.is_same(state.tensor()));
  EXPECT_EQ(update.decay, 0.125);
  EXPECT_EQ(update.clip, std::numeric_limits<double>::infinity());
  EXPECT_EQ(update.slots.size(), 1u);
  EXPECT_EQ(std::get<MomentumFormula<true>>(calls().formulas[0]).momentum, 0.8);
}

TEST_F(DeviceKernelsTest, GetTheSlotsInTheOrderOfTheFormula) {
  for (const auto& [name, count] :
       {std::pair{"sgd", size_t{0}}, std::pair{"tf_momentum", size_t{1}}, std::pair{"torch_adam", size_t{2}}}) {
    calls() = {};
    const auto optimizer = optimizers().get(name)(set_, {});
    optimizer->apply(StepState(device_));
    ASSERT_EQ(calls().slots.size(), 1u);
    ASSERT_EQ(calls().slots[0].size(), count) << name;
    for (size_t s = 0; s < count; ++s) {
      EXPECT_TRUE(calls().slots[0][s].is_same(optimizer->slots()[s].values)) << name << " " << s;
    }
  }
}

TEST_F(DeviceKernelsTest, GetWhetherParametersWithoutDecayAreScaledByNorms) {
  for (const double adapts : {0.0, 1.0}) {
    calls() = {};
    optimizers().get("lars")(set_, {.numbers = {{"adapt_undecayed", adapts}}})->apply(StepState(device_));
    EXPECT_EQ(calls().updates.at(0).adapt_undecayed, adapts == 1);
  }
}

// The gradients are complete, and clipped, before the update: it has no decay and no scale of its own.
TEST_F(DeviceKernelsTest, GetGradientsThatAreClippedByNorm) {
  for (const NormClipKind kind : {NormClipKind::kParameter, NormClipKind::kGlobal, NormClipKind::kAdaptive}) {
    calls() = {};
    const auto optimizer = optimizers().get("sgd")(
        set_, {.weight_decay = 0.5, .gradient_clip = 0.75, .norm_clip = NormClip{.kind = kind, .bound = 2}});
    const StepState state(device_);
    optimizer->apply(state);
    ASSERT_EQ(calls().updates.size(), 1u);
    EXPECT_EQ(calls().updates[0].decay, 0);
    EXPECT_EQ(calls().updates[0].clip, 0.75);
    EXPECT_FALSE(calls().updates[0].fields.is_same(state.tensor()));
    EXPECT_FALSE(optimizer->gradients_complete());
    const at::Tensor elsewhere = at::empty_like(set_.gradients());
    EXPECT_EQ(core::message_of([&] { optimizer->apply(state, elsewhere); }, core::ErrorCode::kUnsupported),
              "clipping by norm of gradients that lie elsewhere than their parameters' do not work on a device yet: "
              "meta: expected parameters in the host's memory");
  }
}

TEST_F(DeviceKernelsTest, GetTheCountOfUpdatesWhereAFormulaHasOne) {
  const auto adam = optimizers().get("tf_adam")(set_, {}), sgd = optimizers().get("sgd")(set_, {});
  adam->apply(StepState(device_));
  sgd->apply(StepState(device_));
  ASSERT_EQ(calls().updates.size(), 2u);
  EXPECT_TRUE(calls().updates[0].count.is_same(adam->update_count()));
  EXPECT_EQ(calls().updates[0].count.device(), device_);
  EXPECT_FALSE(calls().updates[1].count.defined());
}

TEST_F(DeviceKernelsTest, GetTheDecayWhereItBelongs) {
  struct Row {
    std::string name;
    bool decoupled;
    double decay, update_decay;
  };
  for (const Row& row : {Row{"sgd", false, 2, 0}, Row{"sgd", true, 0, 0.5}, Row{"torch_adamw", false, 0, 0.5},
                         Row{"lamb", false, 0, 0.5}, Row{"lars", false, 0, 2}}) {
    calls() = {};
    const auto optimizer = optimizers().get(row.name)(set_, {.weight_decay = 0.5, .decoupled_decay = row.decoupled});
    optimizer->set_weight_decay_factor(4);
    optimizer->apply(StepState(device_));
    EXPECT_EQ(calls().updates.at(0).decay, row.decay) << row.name;
    EXPECT_EQ(calls().updates.at(0).update_decay, row.update_decay) << row.name;
    EXPECT_EQ(calls().updates.at(0).segments, 2);
  }
}

TEST_F(DeviceKernelsTest, GetTheNumbersOfAStep) {
  StepState state(device_);
  state.write({.learning_rate = 0.5, .inverse_loss_scale = 0.25, .step = 7, .found_inf = true});
  EXPECT_EQ(calls().fields, (std::vector<std::vector<double>>{{0.5, 0.25, 7, 1}}));
}

TEST_F(DeviceKernelsTest, GetTheRegularizationLoss) {
  const auto optimizer = optimizers().get("sgd")(set_, {.weight_decay = 0.5});
  EXPECT_EQ(RegularizationLoss(*optimizer)().device(), device_);
  EXPECT_EQ(calls().part_counts, (std::vector<int>{3}));
  EXPECT_EQ(RegularizationLoss(*optimizers().get("sgd")(set_, {}))().device(), device_) << "of no terms";
}

TEST_F(DeviceKernelsTest, GetThePartsOfAnOptimizersOwnParametersOnly) {
  const auto optimizer = optimizers().get("sgd")(set_, {.parameters = {"b.*"}});
  optimizer->apply(StepState(device_));
  ASSERT_EQ(calls().updates.size(), 1u);
  EXPECT_EQ(calls().updates[0].parts->count, 2);
}

TEST_F(DeviceKernelsTest, GetCompleteGradientsWithoutScaleAndDecay) {
  const auto optimizer = optimizers().get("sgd")(set_, {.weight_decay = 0.5});
  const StepState state(device_);
  optimizer->complete_gradients(state);
  optimizer->apply(state);
  optimizer->apply(state);
  ASSERT_EQ(calls().updates.size(), 2u);
  EXPECT_EQ(calls().updates[0].decay, 0);
  EXPECT_FALSE(calls().updates[0].fields.is_same(state.tensor()));
  EXPECT_EQ(calls().updates[1].decay, 0.5);
  EXPECT_TRUE(calls().updates[1].fields.is_same(state.tensor()));
}

TEST_F(DeviceKernelsTest, AreNotAskedForWhatTheyDoNotKnow) {
  const RegularizationTerm term{.name = "sparse", .pattern = "*", .kind = RegularizationKind::kL1, .coefficient = 0.1};
  for (const OptimizerOptions& options :
       {OptimizerOptions{.groups = {{.pattern = "*"}}}, OptimizerOptions{.regularization = {term}}}) {
    const core::Error error = core::thrown_by([&] { optimizers().get("sgd")(set_, options); });
    EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
    EXPECT_TRUE(core::says(error, "do not work on a device yet")) << error.what();
  }
}

TEST_F(DeviceKernelsTest, AreNotAskedForWhatNeedsHostMemory) {
  const auto refused = [this](const std::string& name, const OptimizerOptions& options) {
    return core::message_of([&] { optimizers().get(name)(set_, options); }, core::ErrorCode::kUnsupported);
  };
  const std::string yet = " do not work on a device yet: meta: expected parameters in the host's memory";
  EXPECT_EQ(refused("sgd", {.groups = {{.pattern = "*"}}}), "groups of parameters" + yet);
  EXPECT_EQ(refused("sgd", {.layer_decay = 0.5}), "learning rates by layers" + yet);
  EXPECT_EQ(refused("sgd", {.regularization = {{.name = "l2", .pattern = "*", .coefficient = 0.1}}}),
            "terms of regularization beside weight decay" + yet);
  EXPECT_EQ(refused("sgd", {.lookahead = Lookahead{}}), "Lookahead's slow weights" + yet);
  EXPECT_EQ(refused("muon_sgd", {}), "muon's matrices" + yet);
  EXPECT_EQ(refused("schedule_free_sgd", {}), "schedule-free optimizers" + yet);
  EXPECT_EQ(refused("schedule_free_adamw", {}), "schedule-free optimizers" + yet);
  EXPECT_EQ(optimizers().get("sgd")(set_, {})->part_obstacle(), "parameters are on a device");
  EXPECT_FALSE(optimizers().get("torch_adam")(set_, {})->missed_updates().defined()) << "kernels count together";
  const auto sgd = optimizers().get("sgd")(set_, {});
  EXPECT_EQ(core::message_of([&] { return SharpnessAware(*sgd, {}); }, core::ErrorCode::kUnsupported),
            "sharpness-aware minimization does not work on a device yet: meta: expected parameters in the host's "
            "memory");
}

TEST_F(DeviceKernelsTest, LookForInfiniteGradientsOnlyWhereTheScaleMoves) {
  StepState state(device_);
  LossScaler fixed({.scale = 8, .rule = LossScaleRule::kTorch, .raise_after = 5}, device_),
      moving({.scale = 8, .automatic = true}, device_);
  fixed.end_step(set_.gradients(), state);
  EXPECT_TRUE(calls().searched.empty());
  moving.end_step(set_.gradients(), state);
  EXPECT_EQ(calls().searched, (std::vector<int64_t>{set_.total()}));
  EXPECT_EQ(calls().raised_after, (std::vector<int64_t>{5, 1001}));
  EXPECT_EQ(calls().searched_before_scaling, (std::vector<bool>{false, true}));
}

TEST(DeviceKernels, AreNoneForTheCpuAndAnErrorForADeviceWithoutAny) {
  EXPECT_EQ(device_kernels(at::kCPU), nullptr);
  const core::Error error = core::thrown_by([] { device_kernels(at::Device(at::kXLA, 1)); });
  EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
  EXPECT_TRUE(core::says(error, "xla:1")) << error.what();
}

}  // namespace
}  // namespace trainyard::optim::device_kernels_test
