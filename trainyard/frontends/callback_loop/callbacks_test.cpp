#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/callback_loop/callback_loop.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::frontends::callback_loop::callbacks_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Callbacks complete_callbacks() {
  Callbacks callbacks = standard_callbacks();
  callbacks.create_dataset = [](int64_t) { return Dataset(); };
  callbacks.create_model = [](train::TowerContext&) { return Model(); };
  callbacks.create_loss = [](train::TowerContext&) { return Loss(); };
  return callbacks;
}

nn::ParameterSet one_parameter() {
  nn::ParameterSet set;
  set.declare({"w", {3}, nn::Initializer::constant(1)});
  set.allocate();
  set.initialize(1);
  return set;
}

TEST(StandardCallbacks, SayWhatIsMissing) {
  EXPECT_EQ(core::message_of([] { standard_callbacks().validate(); }),
            "the callback create_dataset must be given: callback_loop::Callbacks; set callbacks.create_dataset to a "
            "function Dataset(int64_t per_replica_batch_size)");
  Callbacks callbacks = complete_callbacks();
  EXPECT_EQ(core::message_of([&] { callbacks.validate(); }), "no error");
  callbacks.create_model = {};
  EXPECT_EQ(
      core::message_of([&] { callbacks.validate(); }),
      "the callback create_model must be given: callback_loop::Callbacks; set callbacks.create_model to a function "
      "Model(train::TowerContext& context)");
  const auto without = [](auto Callbacks::*member) {
    Callbacks some = complete_callbacks();
    (some.*member) = {};
    return core::problem_of([&] { some.validate(); });
  };
  EXPECT_EQ(without(&Callbacks::create_loss), "the callback create_loss must be given");
  EXPECT_EQ(without(&Callbacks::make_batches), "the callback make_batches must be given");
  EXPECT_EQ(without(&Callbacks::create_opt), "the callback create_opt must be given");
  EXPECT_EQ(without(&Callbacks::create_ckpt), "the callback create_ckpt must be given");
  EXPECT_EQ(without(&Callbacks::input_pre), "the callback input_pre must be given");
  EXPECT_EQ(without(&Callbacks::loss_pre), "the callback loss_pre must be given");
  EXPECT_EQ(without(&Callbacks::grad_pre), "the callback grad_pre must be given");
  EXPECT_EQ(without(&Callbacks::update_pre), "the callback update_pre must be given");

  callbacks = complete_callbacks();
  callbacks.every_steps[5] = {};
  EXPECT_EQ(core::problem_of([&] { callbacks.validate(); }), "the callback every_steps[5] must be given");
  callbacks = complete_callbacks();
  callbacks.at_step[0] = [](const StepInput&) {};
  EXPECT_EQ(core::message_of([&] { callbacks.validate(); }), "at_step counts steps from 1: got 0");
}

TEST(StandardCallbacks, LeaveTheDatasetAsItIsAndDoNothingAtAStep) {
  const Callbacks callbacks = standard_callbacks();
  const auto dataset = std::make_shared<data::FunctionSource>(
      [](const data::BatchPlace&) { return core::NamedTensors(); }, data::FunctionSourceOptions{});
  EXPECT_EQ(callbacks.make_batches(dataset, 4), dataset);
  EXPECT_TRUE(callbacks.at_step.empty());
  EXPECT_EQ(callbacks.every_steps.size(), 2U);
  const Options options;
  EXPECT_EQ(options.batch_size, 8);
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.update_scope, UpdateScope::kGlobal);
}

TEST(StandardCallbacks, TakeInputAndTargetOfABatchOfTwo) {
  const Callbacks callbacks = standard_callbacks();
  const at::Tensor x = at::ones({2}), y = at::ones({3}), output = at::ones({4});
  const core::NamedTensors two({{"x", x}, {"y", y}}), one({{"x", x}}), three({{"x", x}, {"y", y}, {"z", y}});
  ASSERT_EQ(callbacks.input_pre(two, 0.1).size(), 1U);
  EXPECT_TRUE(callbacks.input_pre(two, 0.1)[0].is_same(x));
  EXPECT_TRUE(callbacks.input_pre(one, 0.1)[0].is_same(x)) << "in inference";
  const Tensors arguments = callbacks.loss_pre({output}, two, {}, 0.1);
  ASSERT_EQ(arguments.size(), 2U);
  EXPECT_TRUE(arguments[0].is_same(output));
  EXPECT_TRUE(arguments[1].is_same(y));
  EXPECT_EQ(core::message_of([&] { callbacks.input_pre(three, 0.1); }),
            "the default input_pre does not know which tensor of a batch is the input: expected a batch of two, got 3; "
            "give a callback input_pre of your own");
  EXPECT_EQ(core::message_of([&] { callbacks.input_pre(core::NamedTensors(), 0.1); }),
            "the default input_pre does not know which tensor of a batch is the input: expected a batch of two, got 0; "
            "give a callback input_pre of your own");
  EXPECT_EQ(core::message_of([&] { callbacks.loss_pre({output}, one, {}, 0.1); }),
            "the default loss_pre does not know which tensor of a batch is the target: expected a batch of two, got 1; "
            "give a callback loss_pre of your own");
}

TEST(StandardCallbacks, TakeTheLossAndTheModelsRegularization) {
  const Callbacks callbacks = standard_callbacks();
  const at::Tensor loss = at::ones({});
  const Model plain, regularized{.regularization = [] { return at::full({}, 3.0); }};
  const GradPreResult without = callbacks.grad_pre(loss, {}, {}, plain, {}, 0.1),
                      with = callbacks.grad_pre(loss, {}, {}, regularized, {}, 0.1);
  EXPECT_TRUE(without.loss_per_batch.is_same(loss));
  EXPECT_FALSE(without.extra_loss.defined());
  EXPECT_EQ(with.extra_loss.item<double>(), 3);
  EXPECT_FALSE(with.trainable_vars) << "all";
}

TEST(StandardCallbacks, ReplaceNanAndClipByGlobalNorm) {
  const Callbacks callbacks = standard_callbacks();
  const core::NamedTensors gradients({{"a", at::tensor({30.0F, kNan, -5.0F})}, {"b", at::full({2, 2}, 7.0F)}});
  nn::ParameterSet set = one_parameter();
  const std::unique_ptr<optim::Optimizer> optimizer = optim::optimizers().get("sgd")(set, {});
  const UpdatePreResult result = callbacks.update_pre(gradients, {}, {}, {}, {}, {}, 0.1, *optimizer);
  EXPECT_TRUE(result.display_gradients["a"].equal(at::tensor({30.0F, 0.0F, -5.0F})));
  EXPECT_TRUE(result.display_gradients["b"].is_same(gradients["b"]));
  const double norm = std::sqrt(30.0 * 30 + 5.0 * 5 + 4 * 7.0 * 7);
  EXPECT_NEAR(result.update_gradients["a"][0].item<double>(), 30 * 10 / norm, 1e-6);
  EXPECT_EQ(result.update_gradients["a"][1].item<double>(), 0);
  EXPECT_NEAR(result.update_gradients["b"][1][1].item<double>(), 7 * 10 / norm, 1e-6);
  EXPECT_TRUE(std::isnan(gradients["a"][1].item<float>())) << "what was given stays as it is";
}

TEST(GlobalNorm, LeavesWhatIsNotLonger) {
  const core::NamedTensors gradients({{"a", at::tensor({6.0F})}, {"b", at::tensor({8.0F})}});
  EXPECT_TRUE(clip_by_global_norm(gradients, 10)["a"].is_same(gradients["a"]));
  EXPECT_NEAR(clip_by_global_norm(gradients, 5)["b"].item<double>(), 4, 1e-6);
}

TEST(GlobalNorm, DoesNotMakeInfiniteGradientsFinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  const core::NamedTensors gradients({{"a", at::tensor({infinite, kNan})}});
  const core::NamedTensors clean = without_nan(gradients);
  EXPECT_EQ(clean["a"][0].item<float>(), infinite);
  EXPECT_EQ(clean["a"][1].item<float>(), 0);
  EXPECT_FALSE(std::isfinite(clip_by_global_norm(clean, 10)["a"][0].item<float>()));
}

TEST(StandardCallbacks, CreateNadamWithAnEpsilonOfAThousandth) {
  nn::ParameterSet set = one_parameter();
  const std::unique_ptr<optim::Optimizer> optimizer = standard_callbacks().create_opt(0.01, set);
  EXPECT_EQ(optimizer->hyperparameter("epsilon"), 0.001);
  EXPECT_EQ(optimizer->hyperparameter("beta1"), 0.9);
  EXPECT_EQ(optimizer->hyperparameter("beta2"), 0.999);
}

class Nothing : public core::Stateful {
 public:
  void save(core::StateWriter& writer) const override { writer.integer("nothing", 0); }
  void load(const core::StateReader& reader) override { reader.integer("nothing"); }
};

TEST(CheckpointManager, KeepsFifty) {
  const core::TempDir directory;
  CheckpointManager manager(directory.path(), std::make_shared<Nothing>());
  EXPECT_FALSE(manager.restore());
  for (int64_t step = 1; step <= 52; ++step) manager.save(step);
  const std::vector<train::CheckpointInfo> kept = train::CheckpointStore(directory.path()).list();
  ASSERT_EQ(kept.size(), 50U);
  EXPECT_EQ(kept.front().global_step, 3);
  EXPECT_EQ(manager.latest()->global_step, 52);
  EXPECT_EQ(manager.restore()->global_step, 52);
}

TEST(CheckpointManager, NeedsAFolderToSave) {
  CheckpointManager manager("", std::make_shared<Nothing>());
  EXPECT_FALSE(manager.restore());
  EXPECT_FALSE(manager.latest());
  EXPECT_EQ(core::message_of([&] { manager.save(1); }),
            "there is no folder to save checkpoints in: manager.save(); give callback_loop::Options a ckpt_path");
}

}  // namespace
}  // namespace trainyard::frontends::callback_loop::callbacks_test
