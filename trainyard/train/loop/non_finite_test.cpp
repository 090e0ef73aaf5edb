// Steps whose loss or gradients are not finite: found on every replica, named, and without a trace in what is kept.
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/step/non_finite_search.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"
#include "trainyard/train/testing/two_scalars.h"

namespace trainyard::train::non_finite_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Batches of another source, of which one or all have an image with a NaN, or one is left out.
class ChangedSource : public data::BatchSource {
 public:
  struct Change {
    int bad_batch = -1;  // the how-manieth call of next(), from 0; kAll
    int bad_replica = 0;
    int left_out = -1;
  };
  static constexpr int kAll = -2;
  ChangedSource(std::shared_ptr<data::BatchSource> source, Change change)
      : source_(std::move(source)), change_(change) {}

  int64_t batch_size() const override { return source_->batch_size(); }
  int replicas() const override { return source_->replicas(); }
  std::vector<data::Batch> next() override {
    if (calls_ == change_.left_out) source_->next(), ++calls_;
    std::vector<data::Batch> batches = source_->next();
    const bool bad = change_.bad_batch == kAll || calls_ == change_.bad_batch;
    if (bad) batches[static_cast<size_t>(change_.bad_replica)].images()[2][1][3][3] = kNan;
    ++calls_;
    return batches;
  }
  double waited_seconds() const override { return 0; }
  void stop() override {}
  data::Position position() const override { return source_->position(); }
  void seek(data::Position position) override { source_->seek(position); }

 private:
  std::shared_ptr<data::BatchSource> source_;
  Change change_;
  int calls_ = 0;
};

std::shared_ptr<data::BatchSource> changed(int replicas, ChangedSource::Change change) {
  return std::make_shared<ChangedSource>(tiny_source(240, 8, replicas), change);
}

struct Case {
  const char* executor;
  at::ScalarType dtype;
  const char* variable_update;
  int replicas;
  int micro_steps;
  bool sync_batch_norm = false;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* executor : {"cpu", "reference"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      cases.push_back({executor, dtype, "parameter_server", 1, 1});
      cases.push_back({executor, dtype, "replicated", 2, 2});
    }
  }
  for (const char* update : {"parameter_server", "replicated", "independent"}) {
    cases.push_back({"cpu", at::kFloat, update, 2, 1});
    cases.push_back({"cpu", at::kFloat, update, 1, 2});
  }
  cases.push_back({"cpu", at::kFloat, "parameter_server", 2, 2});
  cases.push_back({"cpu", at::kFloat, "independent", 2, 2});
  cases.push_back({"cpu", at::kFloat, "replicated", 2, 1, true});
  cases.push_back({"reference", at::kFloat, "parameter_server", 2, 2, true});
  return cases;
}

class NonFinite : public testing::TestWithParam<Case> {
 protected:
  TowerTrainerOptions options() const {
    TowerTrainerOptions options = tiny_options({}, GetParam().replicas);
    options.devices.executor = GetParam().executor;
    options.devices.dtype = GetParam().dtype;
    options.exchange.variable_update = GetParam().variable_update;
    options.micro_steps = GetParam().micro_steps;
    options.exchange.sync_batch_norm = GetParam().sync_batch_norm;
    options.devices.kernels.convolutions =
        nn::ConvolutionPolicy::kByShape;  // two trainings that are compared choose alike
    return options;
  }
  // The first micro-step of the third step, on the last replica.
  ChangedSource::Change third_step_is_bad() const {
    return {.bad_batch = 2 * GetParam().micro_steps, .bad_replica = GetParam().replicas - 1};
  }
};

// The state of the replica whose numbers were bad, when each decides for itself.
std::vector<std::string> kept_names(const core::StateReader& state, const TowerTrainerOptions& options) {
  std::string of_replica;
  if (options.exchange.variable_update == "independent" && options.devices.replicas > 1) {
    of_replica = "replica/" + std::to_string(options.devices.replicas - 1) + "/";
  }
  std::vector<std::string> names = state.names(of_replica + "model/");
  for (const std::string& name : state.names(of_replica + "optimizer/")) names.push_back(name);
  EXPECT_EQ(names.size(), 12U);  // 5 parameters and their slots, 2 statistics
  return names;
}

void expect_same(const TowerTrainer& expected_trainer, const TowerTrainer& actual_trainer) {
  core::MemoryState expected, actual;
  expected_trainer.save(expected);
  actual_trainer.save(actual);
  for (const std::string& name : kept_names(expected, actual_trainer.options())) {
    EXPECT_TRUE(std::as_const(expected).tensor(name).equal(std::as_const(actual).tensor(name))) << name;
  }
}

TEST_P(NonFinite, StopNamesStepAndLayerAndLeavesAllAsItWas) {
  const int replicas = GetParam().replicas;
  TowerTrainer straight(options(), changed(replicas, {}));
  straight.train({.steps_per_epoch = 2});

  TowerTrainer trainer(options(), changed(replicas, third_step_is_bad()));
  const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 5}); });
  EXPECT_EQ(core::exit_code(error.code()), 1);
  EXPECT_TRUE(core::says(error, "epoch 1, step 3: global step 3")) << error.what();
  EXPECT_TRUE(core::says(error, "it began with the output of layer 'conv' (NaN)")) << error.what();
  EXPECT_TRUE(core::says(error, "image 2 of the batch holds NaN")) << error.what();
  EXPECT_TRUE(core::says(error, "--on_nan=skip")) << error.what();
  EXPECT_EQ(core::says(error, "of replica 1"), replicas == 2) << error.what();
  EXPECT_EQ(trainer.global_step(), 2);
  expect_same(straight, trainer);
}

TEST_P(NonFinite, ASkippedStepLeavesNoTrace) {
  const int replicas = GetParam().replicas;
  TowerTrainerOptions skipping = options();
  skipping.on_nan = OnNan::kSkip;
  TowerTrainer straight(options(), changed(replicas, {})), trainer(skipping, changed(replicas, third_step_is_bad()));
  straight.train({.steps_per_epoch = 2});
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 3});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_NE(warnings.find("global step 3 is skipped"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("layer 'conv'"), std::string::npos) << warnings;
  expect_same(straight, trainer);
  EXPECT_EQ(trainer.source().position().offset, 3 * 8 * replicas * GetParam().micro_steps);

  // And the steps after it are those of a run that never saw the batch.
  if (GetParam().micro_steps > 1) return;
  TowerTrainer without(options(), changed(replicas, {.left_out = 2}));
  without.train({.steps_per_epoch = 4});
  trainer.train({.steps_per_epoch = 5, .starting_step = 3});
  EXPECT_EQ(trainer.skipped_steps(), 1);
  expect_same(without, trainer);
}

TEST_P(NonFinite, IgnoringGoesOnWithOneWarning) {
  TowerTrainerOptions ignoring = options();
  ignoring.on_nan = OnNan::kIgnore;
  TowerTrainer trainer(ignoring, changed(GetParam().replicas, third_step_is_bad()));
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 5});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(trainer.global_step(), 5);
  const size_t first = warnings.find("--on_nan=stop would end it");
  ASSERT_NE(first, std::string::npos) << warnings;
  EXPECT_NE(warnings.find("global step 3: "), std::string::npos) << warnings;
  EXPECT_EQ(warnings.find("--on_nan", first + 1), std::string::npos) << warnings;
  EXPECT_EQ(trainer.skipped_steps(), 0);
  core::MemoryState state;
  trainer.save(state);
  bool finite = true;
  for (const std::string& name : kept_names(state, trainer.options())) {
    finite = finite && std::as_const(state).tensor(name).isfinite().all().item<bool>();
  }
  EXPECT_FALSE(finite) << "the update was applied";
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string name = std::string(c.executor) + (c.dtype == at::kFloat ? "_fp32_" : "_bf16_") + c.variable_update;
  name += "_" + std::to_string(c.replicas) + "_replicas_" + std::to_string(c.micro_steps) + "_micro_steps";
  return name + (c.sync_batch_norm ? "_sync_batch_norm" : "");
}

INSTANTIATE_TEST_SUITE_P(All, NonFinite, testing::ValuesIn(all_cases()), case_name);

// What ends a training of the tiny model on good data.
std::string stopped_by(const TowerTrainerOptions& options, int64_t steps = 5) {
  TowerTrainer trainer(options, tiny_source(240, 8, options.devices.replicas));
  return core::thrown_by([&] { trainer.train({.steps_per_epoch = steps}); }).what();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(NonFiniteTraining, AWeightThatIsNanIsNamed) {
  for (const char* executor : {"cpu", "reference"}) {
    TowerTrainerOptions options = tiny_options();
    options.devices.executor = executor;
    options.start = [](nn::ParameterSet& set) { set.value(*set.find("fc.weight"))[3][1] = kNan; };
    const std::string error = stopped_by(options);
    EXPECT_TRUE(contains(error, "the loss is NaN; it began with the output of layer 'fc' (NaN)")) << error;
    EXPECT_TRUE(contains(error, "fc.weight (NaN) was not finite before the step")) << error;
    EXPECT_TRUE(contains(error, "global step 1")) << error;
  }
}

TEST(NonFiniteTraining, AForeignModuleIsNamedAsAWhole) {
  for (const char* executor : {"cpu", "reference"}) {
    TowerTrainerOptions options = tiny_options();
    options.graph = two_scalars();
    options.devices.executor = executor;
    options.start = [](nn::ParameterSet& set) { set.value(*set.find("body.b")).fill_(kInfinity); };
    options.loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output.mean(); });
    TowerTrainer trainer(options,
                         std::make_shared<MemorySource>(at::ones({8, 1, 1, 1}), at::empty({8}, at::kLong).zero_(), 4));
    const std::string error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 2}); }).what();
    EXPECT_TRUE(contains(error, "the loss is inf; it began with the output of layer 'body' (a custom layer) (inf)"))
        << error;
    EXPECT_TRUE(contains(error, "body.b (inf) was not finite before the step")) << error;
  }
}

// A loss of another size in backward only: its value stays, the gradients overflow.
TEST(NonFiniteTraining, AGradientThatOverflowsIsNamedWithItsLayer) {
  for (const char* executor : {"cpu", "reference"}) {
    TowerTrainerOptions options = tiny_options({.batch_norm = false});
    options.devices.executor = executor;
    options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
      const at::Tensor loss = nn::softmax_cross_entropy(output, labels);
      return loss.add(loss.sub(loss.detach()).mul(2e38F).mul(100.0F));
    });
    const std::string error = stopped_by(options);
    EXPECT_TRUE(contains(error, "the gradient of fc.")) << error;
    EXPECT_TRUE(contains(error, "it began with a gradient that the backward of layer 'fc' made")) << error;
  }
}

// Logits of minus infinity at the label, on one replica, once: the loss is infinite, all gradients are finite.
TEST(NonFiniteTraining, AnInfiniteLossOfOneReplicaSkipsTheStepOfAll) {
  for (const std::string mode : {"parameter_server", "replicated"}) {
    const auto with_hook = [&](int64_t bad_call) {
      TowerTrainerOptions options = tiny_options({}, 2);
      options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
      options.exchange.variable_update = mode;
      options.on_nan = OnNan::kSkip;
      options.loss = [bad_call](TowerContext& context) -> Loss {
        return [bad_call, bad = context.index() == 1, calls = std::make_shared<int64_t>(0)](const LossInput& in) {
          const at::Tensor& output = in.outputs["logits"];
          const at::Tensor& labels = in.batch["labels"];
          const bool now = bad && ++*calls >= bad_call && *calls <= bad_call + 1;  // and when it is run again
          if (!now) return nn::softmax_cross_entropy(output, labels);
          at::Tensor mask = at::empty(output.sizes()).zero_();
          mask[0][labels[0].item<int64_t>()] = -kInfinity;
          return nn::softmax_cross_entropy(output.add(mask), labels);
        };
      };
      return options;
    };
    TowerTrainer straight(with_hook(1000), tiny_source(240, 8, 2)), trainer(with_hook(3), tiny_source(240, 8, 2));
    straight.train({.steps_per_epoch = 2});
    testing::internal::CaptureStderr();
    trainer.train({.steps_per_epoch = 3});
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(warning, "the loss of replica 1 is inf")) << warning;
    EXPECT_TRUE(contains(warning, "outputs and gradients are finite")) << warning;
    EXPECT_EQ(trainer.skipped_steps(), 1);
    expect_same(straight, trainer);
  }
}

// The third call makes an infinite loss, and the fourth one, in which the step is run again, throws.
TEST(NonFiniteTraining, ASecondRunThatFailsLeavesAllAsItWas) {
  const auto with_loss = [](int64_t bad_call) {
    TowerTrainerOptions options = tiny_options();
    options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
    options.on_nan = OnNan::kSkip;
    options.loss = [bad_call](TowerContext&) -> Loss {
      return [bad_call, calls = std::make_shared<int64_t>(0)](const LossInput& in) {
        const int64_t call = ++*calls;
        if (call == bad_call + 1) throw core::Error(core::ErrorCode::kIo, "no second run");
        const at::Tensor loss = nn::softmax_cross_entropy(in.outputs["logits"], in.batch["labels"]);
        return call == bad_call ? loss.add(kInfinity) : loss;
      };
    };
    return options;
  };
  TowerTrainer straight(with_loss(1000), changed(1, {.left_out = 2})), trainer(with_loss(3), changed(1, {}));
  straight.train({.steps_per_epoch = 2});
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 3});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(warnings, "the step that was not finite could not be run again: ")) << warnings;
  EXPECT_TRUE(contains(warnings, "no second run")) << warnings;
  EXPECT_FALSE(contains(warnings, "finite before they are added up")) << "of a run that did not end: " << warnings;
  EXPECT_TRUE(contains(warnings, "global step 3 is skipped: the loss is inf")) << warnings;
  EXPECT_EQ(trainer.skipped_steps(), 1);
  expect_same(straight, trainer);
  straight.train({.steps_per_epoch = 4, .starting_step = 2});
  trainer.train({.steps_per_epoch = 5, .starting_step = 3});
  expect_same(straight, trainer);
}

TEST(NonFiniteTraining, ARateThatIsTooHighStops) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    TowerTrainerOptions options = tiny_options({.batch_norm = false});
    options.devices.dtype = dtype;
    options.learning_rate = optim::constant(1e30);
    const std::string error = stopped_by(options);
    EXPECT_TRUE(contains(error, "lower the learning rate")) << error;
    EXPECT_TRUE(contains(error, "it began with ")) << error;
  }
}

TEST(NonFiniteTraining, AHundredSkipsInARowEndTheRun) {
  TowerTrainerOptions options = tiny_options();
  options.on_nan = OnNan::kSkip;
  TowerTrainer trainer(options, changed(1, {.bad_batch = ChangedSource::kAll}));
  const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 500}); });
  EXPECT_TRUE(core::says(error, "100 steps in a row were skipped")) << error.what();
  EXPECT_TRUE(core::says(error, "global step 100")) << error.what();
  EXPECT_TRUE(core::says(error, "first gradient that is not finite: ")) << error.what();
  EXPECT_EQ(trainer.global_step(), 99);
}

// The automatic scale meets infinite gradients on purpose; a loss that is not finite is no matter of its scale.
TEST(NonFiniteTraining, AnAutomaticLossScaleKeepsItsRuleForGradients) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 1e38, .automatic = true};
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
    return nn::softmax_cross_entropy(output, labels).mul(1e4F);
  });
  TowerTrainer trainer(options, tiny_source(240, 8));
  trainer.train({.steps_per_epoch = 3});
  EXPECT_LT(trainer.loss_scale()->scale, 1e38) << "steps were skipped by the scale's rule";
  EXPECT_EQ(trainer.loss_scale()->normal_steps, 0) << "none without overflow since";
  EXPECT_EQ(trainer.skipped_steps(), 0);

  options.devices.loss_scale->automatic = false;
  EXPECT_TRUE(contains(stopped_by(options), "the gradient of "));

  TowerTrainerOptions bad = tiny_options();
  bad.devices.loss_scale = optim::LossScalerOptions{.scale = 8, .automatic = true};
  TowerTrainer stopped(bad, changed(1, {.bad_batch = 1}));
  EXPECT_TRUE(core::says(core::thrown_by([&] { stopped.train({.steps_per_epoch = 3}); }), "the loss is NaN"));
}

TEST(NonFiniteTraining, GradientsThatAHookSpoilsAreFound) {
  TowerTrainerOptions options = tiny_options();
  options.hooks.update_pre = [](int, nn::ParameterSet& set) { set.gradient(*set.find("bn.bias"))[2] = kInfinity; };
  const std::string error = stopped_by(options);
  EXPECT_TRUE(contains(error, "the gradient of bn.bias (inf) is not finite; run again, the step's outputs")) << error;
}

// The loss is infinite from a step on; its gradients are finite.
TEST(NonFiniteTraining, OnAnAcceleratorTheLossOfEveryHundredthStepIsReadAlone) {
  const auto with_loss = [](int64_t good_steps, OnNan on_nan) {
    TowerTrainerOptions options = tiny_options();
    options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
    options.on_nan = on_nan;
    options.loss =
        loss_of([good_steps, calls = std::make_shared<int64_t>(0)](const at::Tensor& output, const at::Tensor& labels) {
          const at::Tensor loss = nn::softmax_cross_entropy(output, labels);
          return ++*calls > good_steps ? loss.add(kInfinity) : loss;
        });
    return options;
  };
  for (const int64_t good_steps : {0, 1, 100}) {
    TowerTrainer trainer(with_loss(good_steps, OnNan::kStop), tiny_source(240, 8));
    const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 300}); });
    const std::string step = good_steps == 0 ? "1" : "101";
    EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
    EXPECT_TRUE(core::says(error, "the loss is inf")) << error.what();
    EXPECT_TRUE(core::says(error, "global step " + step + " or up to 100 before")) << error.what();
    EXPECT_EQ(trainer.global_step(), good_steps == 0 ? 0 : 100);
  }
  TowerTrainer ignoring(with_loss(1, OnNan::kIgnore), tiny_source(240, 8));
  testing::internal::CaptureStderr();
  ignoring.train({.steps_per_epoch = 202});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(warnings, "global step 101 or up to 100 before: the loss is inf; the run goes on")) << warnings;
  EXPECT_EQ(warnings.find("the loss is inf"), warnings.rfind("the loss is inf")) << warnings;
}

TEST(NonFiniteTraining, AnEvaluationCountsSamplesWhoseLogitsAreNotFinite) {
  nn::ParameterSet set;
  const nn::Graph graph = tiny_graph({.batch_norm = false});
  const auto executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(1);
  Evaluator evaluator({.graph = graph, .devices = {.executor = "reference"}}, set);
  const Evaluation good = evaluator.run(*tiny_source(24, 8, 1, false));
  EXPECT_EQ(good.not_finite, 0);
  ChangedSource one_bad(tiny_source(24, 8, 1, false), {.bad_batch = 1});
  const Evaluation bad = evaluator.run(one_bad, 3);
  EXPECT_EQ(bad.not_finite, 1);
  EXPECT_TRUE(std::isnan(bad.loss));
  set.value(*set.find("fc.bias")).fill_(kNan);
  set.values_changed();
  const Evaluation all = evaluator.run(*tiny_source(24, 8, 1, false));
  EXPECT_EQ(all.not_finite, 24);
  EXPECT_EQ(all.top_1, 0) << "NaN is never right";
  EXPECT_EQ(all.top_5, 0);
}

TEST(NonFiniteTraining, AGoodStepEndsARowOfSkippedOnes) {
  TowerTrainerOptions options = tiny_options();
  options.on_nan = OnNan::kSkip;
  const auto steps = std::make_shared<int>(0);
  options.hooks.update_pre = [steps](int, nn::ParameterSet& set) {
    if ((*steps)++ != 60) set.gradient(*set.find("bn.bias"))[2] = kInfinity;
  };
  TowerTrainer trainer(options, tiny_source(240, 8));
  trainer.train({.steps_per_epoch = 130});
  EXPECT_EQ(*steps, 130);
  EXPECT_EQ(trainer.skipped_steps(), 129);
}

TEST(NonFiniteTraining, AGradientOfTheLastReplicaAloneIsNamedWithIt) {
  TowerTrainerOptions options = tiny_options({}, 3);
  options.exchange.variable_update = "independent";
  options.hooks.update_pre = [](int replica, nn::ParameterSet& set) {
    if (replica == 2) set.gradient(*set.find("bn.bias"))[2] = kInfinity;
  };
  const std::string error = stopped_by(options);
  EXPECT_TRUE(contains(error, "the gradient of bn.bias (inf) of replica 2 is not finite")) << error;
}

// What packs all weights belongs to no layer.
TEST(NonFiniteSearch, NamesAKernelWithoutALayer) {
  const nn::Graph graph = tiny_graph();
  nn::ParameterSet parameters;
  NonFiniteSearch search(graph, parameters);
  const std::array<at::Tensor, 2> values = {at::ones({2}), at::full({3}, kNan)};
  search.made({.phase = nn::NodeRun::Phase::kForward, .kernel = "packing"}, values);
  EXPECT_FALSE(search.found()) << "the images themselves";
  search.made({.phase = nn::NodeRun::Phase::kBackward, .kernel = "unpacking"}, std::span(values).first(1));
  EXPECT_FALSE(search.found()) << "all is finite";
  search.made({.phase = nn::NodeRun::Phase::kBackward, .kernel = "unpacking"}, values);
  EXPECT_EQ(search.found().value_or(""), "a unpacking (NaN)");
  search.made({.phase = nn::NodeRun::Phase::kBackward, .kernel = "later"}, values);
  EXPECT_EQ(search.found().value_or(""), "a unpacking (NaN)") << "the first one";
}

}  // namespace
}  // namespace trainyard::train::non_finite_test
