#include "trainyard/frontends/callback_loop/callback_loop.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <mutex>
#include <sstream>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::callback_loop::callback_loop_test {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kOne{"cpu:0"}, kTwo{"cpu:0", "cpu:1"}, kFour{"cpu:0", "cpu:1", "cpu:2", "cpu:3"};

auto optimizer_named(const std::string& name) {
  return [name](double, nn::ParameterSet& parameters) { return optim::optimizers().get(name)(parameters, {}); };
}

Loss summed_cross_entropy(train::TowerContext&) {
  return loss_of([](const at::Tensor& output, const at::Tensor& labels) {
    return nn::softmax_cross_entropy(output, labels).mul(output.size(0));
  });
}

// A small network that learns noisy images: the same data and weights each time.
Callbacks tiny_callbacks(std::ostream& out, double l2 = 0) {
  Callbacks callbacks = standard_callbacks(out);
  callbacks.create_dataset = [](int64_t batch_size) { return train::tiny_source(160, batch_size); };
  callbacks.create_model = [l2](train::TowerContext& context) {
    return graph_model(context, train::tiny_graph({.batch_norm = false}), {.l2 = l2});
  };
  callbacks.create_loss = summed_cross_entropy;
  callbacks.create_opt = optimizer_named("tf_momentum");
  return callbacks;
}

Options tiny_options() {
  return {.batch_size = 8, .learning_rate = 0.05};
}

at::Tensor values_of(train::TowerTrainer& trainer) {
  return trainer.parameters().values();
}

at::Tensor trained_on(const std::vector<std::string>& devices, const Callbacks& callbacks, int64_t steps = 20) {
  return values_of(*train(steps, devices, tiny_options(), callbacks)).clone();
}

// y = w * x with a single weight: what a step does can be said in closed form. The k-th batch of each epoch has the
// inputs 4 k + 1, ..., of as many samples as asked for.
Callbacks line_callbacks(std::ostream& out) {
  Callbacks callbacks = standard_callbacks(out);
  callbacks.create_dataset = [](int64_t batch_size) {
    return std::make_shared<data::FunctionSource>(
        [batch_size](const data::BatchPlace& place) -> core::NamedTensors {
          at::Tensor x = at::ones({batch_size});
          for (int64_t i = 0; i < batch_size; ++i) x[i] = static_cast<float>(place.batch * batch_size + i + 1);
          return {{"x", x}, {"unused", at::ones({batch_size})}};
        },
        data::FunctionSourceOptions{.batch_size = batch_size});
  };
  callbacks.create_model = [](train::TowerContext& context) -> Model {
    train::TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1)});
    return {
        .call = [&w](const Tensors& input, const train::TowerInput&) -> Tensors { return {w.value().mul(input[0])}; },
        .regularization = [&w] { return w.value().mul(3); }};
  };
  callbacks.create_loss = [](train::TowerContext&) -> Loss {
    return [](const Tensors& arguments, const train::TowerInput&) { return arguments[0]; };  // [N]
  };
  callbacks.create_opt = optimizer_named("sgd");
  callbacks.update_pre = [](const core::NamedTensors& gradients, const at::Tensor&, const Tensors&,
                            const core::NamedTensors&, const Model&, const Loss&, double,
                            const optim::Optimizer&) -> UpdatePreResult {
    return {.update_gradients = gradients, .display_gradients = gradients};
  };
  return callbacks;
}

double weight_of(train::TowerTrainer& trainer) {
  return trainer.parameters().value({0}).item<double>();
}

TEST(CallbackLoop, OneDeviceAndManyGiveTheSame) {
  std::ostringstream out;
  Callbacks callbacks = tiny_callbacks(out, 0.01);
  const auto clip = callbacks.update_pre;
  std::atomic<int> clipped = 0;
  callbacks.update_pre = [&](const core::NamedTensors& gradients, auto&&... rest) {
    // As if the norm of 10 were one that these gradients reach.
    core::NamedTensors large;
    for (const auto& [name, gradient] : gradients) large.set(name, gradient.mul(20));
    UpdatePreResult result = clip(large, rest...);
    if (!result.update_gradients["fc.weight"].equal(result.display_gradients["fc.weight"])) ++clipped;
    return result;
  };
  const at::Tensor one = trained_on(kOne, callbacks);
  EXPECT_GT(clipped, 10);
  EXPECT_LT(one.sub(trained_on(kTwo, callbacks)).abs().max().item<double>(), 2e-5);
  EXPECT_LT(one.sub(trained_on(kFour, callbacks)).abs().max().item<double>(), 2e-5);
  EXPECT_GT(one.sub(trained_on(kOne, tiny_callbacks(out))).abs().max().item<double>(), 1e-3) << "regularization counts";
}

TEST(CallbackLoop, DividesByTheGlobalBatchAndCountsTheExtraLossOnce) {
  std::ostringstream out;
  for (const auto& devices : {kOne, kTwo, kFour}) {
    const auto trainer = train(1, devices, {.batch_size = 8, .learning_rate = 0.5}, line_callbacks(out));
    EXPECT_DOUBLE_EQ(weight_of(*trainer), 1 - 0.5 * (36.0 / 8 + 3)) << devices.size();
    EXPECT_DOUBLE_EQ(trainer->last_base_loss(), 36.0 / 8 + 3) << devices.size();
  }
}

TEST(CallbackLoop, InTheScopeOfAReplicaChangesEachOnesOwnGradient) {
  std::ostringstream out;
  Callbacks callbacks = line_callbacks(out);
  std::mutex mutex;
  std::vector<double> seen;
  callbacks.update_pre = [&](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
    const std::lock_guard<std::mutex> lock(mutex);
    seen.push_back(gradients["w"].item<double>());
    return {.update_gradients = clip_by_global_norm(gradients, 5), .display_gradients = gradients};
  };
  const Options options{.batch_size = 8, .learning_rate = 0.5, .update_scope = UpdateScope::kReplica};
  const auto trainer = train(1, kTwo, options, callbacks);
  EXPECT_THAT(seen, testing::UnorderedElementsAre(10.0 / 8 + 3, 26.0 / 8 + 3));
  EXPECT_NEAR(weight_of(*trainer), 1 - 0.5 * (4.25 + 5), 1e-6);
  EXPECT_DOUBLE_EQ(trainer->last_base_loss(), 36.0 / 8 + 2 * 3) << "the extra loss counts on each";
  seen.clear();
  train(1, kTwo, {.batch_size = 8}, callbacks);
  EXPECT_THAT(seen, ElementsAre(7.5, 7.5));
}

// Every callback is overridden, and says when it is called.
TEST(CallbackLoop, CallsEachCallbackInItsPlace) {
  std::ostringstream out;
  std::mutex mutex;
  std::vector<std::string> calls;
  const auto note = [&](const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex);
    calls.push_back(call);
  };
  const Callbacks base = line_callbacks(out);
  Callbacks callbacks;
  callbacks.create_dataset = [&](int64_t batch_size) {
    note(fmt::format("dataset of {}", batch_size));
    return base.create_dataset(batch_size);
  };
  callbacks.make_batches = [&](Dataset dataset, int64_t batch_size) {
    note(fmt::format("batches of {}", batch_size));
    return dataset;
  };
  callbacks.create_model = [&](train::TowerContext& context) -> Model {
    note("model");
    const Model inner = base.create_model(context);
    return {.call = [&, inner](const Tensors& input, const train::TowerInput& step) -> Tensors {
      note("forward");
      return inner.call(input, step);
    }};
  };
  callbacks.create_loss = [&](train::TowerContext& context) -> Loss {
    note("loss");
    return [&, inner = base.create_loss(context)](const Tensors& arguments, const train::TowerInput& step) {
      note("loss of " + std::to_string(arguments.size()));
      return inner(arguments, step);
    };
  };
  callbacks.create_opt = [&](double lr, nn::ParameterSet& parameters) {
    note(fmt::format("opt {}", lr));
    return base.create_opt(lr, parameters);
  };
  callbacks.create_ckpt = [&](const CheckpointInput& in) {
    note(fmt::format("ckpt '{}' at {}, lr {}", in.ckpt_path, in.step, in.lr.value()));
    return base.create_ckpt(in);
  };
  callbacks.input_pre = [&](const core::NamedTensors& batch, double lr) -> Tensors {
    note(fmt::format("input_pre {}", lr));
    return {batch["x"].mul(2)};
  };
  callbacks.loss_pre = [&](const Tensors& output, const core::NamedTensors&, const Model&, double) -> Tensors {
    note("loss_pre");
    return {output[0].mul(10)};
  };
  callbacks.grad_pre = [&](const at::Tensor& loss, const Tensors& output, const core::NamedTensors& batch,
                           const Model& model, const Loss& train_loss, double) -> GradPreResult {
    note("grad_pre");
    EXPECT_EQ(output[0].size(0), batch["x"].size(0));
    EXPECT_TRUE(model.call && train_loss);
    return {.loss_per_batch = loss.mul(100)};
  };
  callbacks.update_pre = [&](const core::NamedTensors& gradients, const at::Tensor& loss, const Tensors& output,
                             const core::NamedTensors& batch, const Model&, const Loss&, double lr,
                             const optim::Optimizer& optimizer) -> UpdatePreResult {
    note(fmt::format("update_pre {}", lr));
    EXPECT_EQ(loss.size(0), batch["x"].size(0));
    EXPECT_FALSE(loss.requires_grad());
    EXPECT_FALSE(output[0].requires_grad());
    EXPECT_EQ(optimizer.parameters().size(), 1U);
    return {.update_gradients = {{"w", gradients["w"].div(1000)}}, .display_gradients = {{"w", gradients["w"].mul(7)}}};
  };
  const auto step_call = [&](const char* what) {
    return [&note, what](const StepInput& in) {
      note(fmt::format("{} dev {} step {}", what, in.dev, in.step));
      const double gradient = in.gradients["w"].item<double>();
      EXPECT_DOUBLE_EQ(in.update_gradients["w"].item<double>(), gradient / 1000);
      EXPECT_DOUBLE_EQ(in.display_gradients["w"].item<double>(), gradient * 7);
      EXPECT_EQ(in.batch["x"].size(0), 4 / in.trainer.options().devices.replicas);
      EXPECT_TRUE(in.loss.equal(in.output[0].mul(10)));
      ASSERT_EQ(std::ssize(in.losses), in.trainer.options().devices.replicas);
      EXPECT_TRUE(in.losses[static_cast<size_t>(in.dev)].equal(in.loss));
      EXPECT_EQ(&in.optimizer.parameters(), &in.parameters);
    };
  };
  callbacks.every_steps[2] = step_call("every 2");
  callbacks.every_steps[1] = step_call("every 1");
  callbacks.at_step[2] = step_call("at 2");
  const auto trainer = train(2, kOne, {.batch_size = 4, .learning_rate = 0.25}, callbacks);
  // d(1000 * 2 * sum x / 4) / dw / 1000, of x = 1..4 and 5..8.
  EXPECT_DOUBLE_EQ(weight_of(*trainer), 1 - 0.25 * (2 * 10 / 4.0) - 0.25 * (2 * 26 / 4.0));
  EXPECT_THAT(calls, ElementsAre("dataset of 4", "batches of 4", "model", "loss", "opt 0.25", "ckpt '' at 0, lr 0.25",
                                 "input_pre 0.25", "forward", "loss_pre", "loss of 1", "grad_pre", "update_pre 0.25",
                                 "every 1 dev 0 step 1",  //
                                 "input_pre 0.25", "forward", "loss_pre", "loss of 1", "grad_pre", "update_pre 0.25",
                                 "every 1 dev 0 step 2", "every 2 dev 0 step 2", "at 2 dev 0 step 2"));

  calls.clear();
  train(2, kTwo, {.batch_size = 4, .learning_rate = 0.25}, callbacks);
  calls.erase(calls.begin(), calls.end() - 6);
  EXPECT_THAT(calls, ElementsAre("every 1 dev 0 step 2", "every 2 dev 0 step 2", "at 2 dev 0 step 2",
                                 "every 1 dev 1 step 2", "every 2 dev 1 step 2", "at 2 dev 1 step 2"));
}

TEST(CallbackLoop, PrintsStepsAndWritesTheLossOfEveryTenth) {
  const core::TempDir directory;
  std::ostringstream out;
  Options options = tiny_options();
  options.summary_path = directory.file("summary");
  const auto trainer = train(20, kTwo, options, tiny_callbacks(out));
  const train::MonitorSet::History& history = trainer->monitors().history("loss");
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history[0].first, 10);
  EXPECT_EQ(history[1].first, 20);
  EXPECT_EQ(history[1].second, trainer->last_base_loss());
  std::string expected;
  for (int step = 1; step <= 20; ++step) {
    expected += fmt::format("step {}\n", step);
    if (step % 10 == 0) expected += fmt::format("step {}: loss {:.6g}\n", step, history[step / 10 - 1].second);
  }
  EXPECT_EQ(out.str(), expected) << "once, whatever the number of devices";
  EXPECT_FALSE(core::local_file_system().list(options.summary_path).empty());
}

// The trainer's own loss is the cost, with the extra loss in it.
TEST(CallbackLoop, PrintsTheLossWithoutTheExtraLoss) {
  for (const UpdateScope scope : {UpdateScope::kGlobal, UpdateScope::kReplica}) {
    for (const auto& devices : {kOne, kTwo, kFour}) {
      std::ostringstream out;
      const Options options{.batch_size = 8, .learning_rate = 0, .update_scope = scope};
      const auto trainer = train(10, devices, options, line_callbacks(out));
      constexpr double kMean = (73 + 80) / 2.0;  // of the tenth step's samples, whose weight is still 1
      EXPECT_THAT(out.str(), testing::HasSubstr(fmt::format("step 10: loss {}\n", kMean))) << devices.size();
      const double extra = scope == UpdateScope::kGlobal ? 3 : 3 * static_cast<double>(devices.size());
      EXPECT_DOUBLE_EQ(trainer->last_base_loss(), kMean + extra) << devices.size();
    }
  }
}

TEST(CallbackLoop, ReplacesNanGradientsByZero) {
  std::ostringstream out;
  Callbacks callbacks = line_callbacks(out);
  callbacks.create_model = [](train::TowerContext& context) -> Model {
    train::TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1)});
    train::TowerParameter& v = context.parameter({"v", {}, nn::Initializer::constant(1)});
    return {.call = [&w, &v](const Tensors& input, const train::TowerInput&) -> Tensors {
      const at::Tensor nan = at::full({}, std::numeric_limits<float>::quiet_NaN());
      return {w.value().mul(input[0]).add(v.value().mul(nan))};
    }};
  };
  callbacks.update_pre = standard_callbacks(out).update_pre;
  int seen = 0;
  callbacks.every_steps[1] = [&](const StepInput& in) {
    ++seen;
    EXPECT_TRUE(std::isnan(in.gradients["v"].item<float>()));
    EXPECT_EQ(in.display_gradients["v"].item<float>(), 0);
    EXPECT_FLOAT_EQ(in.display_gradients["w"].item<float>(), 36.0F / 8) << "not clipped";
    EXPECT_FLOAT_EQ(in.update_gradients["w"].item<float>(), 36.0F / 8);
  };
  const auto trainer = train(1, kTwo, {.batch_size = 8, .learning_rate = 0.5}, callbacks);
  EXPECT_EQ(seen, 2);
  const nn::ParameterSet& set = trainer->parameters();
  EXPECT_EQ(set.value(*set.find("v")).item<float>(), 1);
  EXPECT_FLOAT_EQ(set.value(*set.find("w")).item<float>(), 1 - 0.5F * 36 / 8);
}

TEST(CallbackLoop, TrainsOnlyTheVariablesThatGradPreNames) {
  std::ostringstream out;
  for (const auto& devices : {kOne, kTwo}) {
    Callbacks callbacks = tiny_callbacks(out);
    std::atomic<int> calls = 0;
    const int replicas = static_cast<int>(devices.size());
    // Steps 4 to 6 train the head alone: all others keep their bits, and so does their momentum.
    callbacks.grad_pre = [&calls, replicas](const at::Tensor& loss, auto&&...) -> GradPreResult {
      const int step = calls++ / replicas + 1;
      GradPreResult result{.loss_per_batch = loss};
      if (step >= 4 && step <= 6) result.trainable_vars = {"fc.*"};
      return result;
    };
    at::Tensor conv, fc;
    int checked = 0;
    callbacks.every_steps[1] = [&](const StepInput& in) {
      const at::Tensor now = in.parameters.value(*in.parameters.find("conv.weight"));
      const at::Tensor head = in.parameters.value(*in.parameters.find("fc.weight"));
      const bool part = in.step >= 4 && in.step <= 6;
      EXPECT_EQ(in.gradients.has("conv.weight"), !part) << in.step;
      EXPECT_TRUE(in.trainer.frozen_parameters().empty()) << in.step;
      if (in.dev == 0 && in.step > 1) {
        EXPECT_EQ(now.equal(conv), part) << in.step;
        EXPECT_FALSE(head.equal(fc)) << in.step;
        ++checked;
      }
      if (in.dev == replicas - 1) {
        conv = now.clone();
        fc = head.clone();
      }
    };
    train(9, devices, tiny_options(), callbacks);
    EXPECT_EQ(checked, 8);
  }
}

TEST(CallbackLoop, AGradientThatUpdatePreLeavesOutIsNoUpdate) {
  std::ostringstream out;
  Callbacks callbacks = tiny_callbacks(out);
  callbacks.update_pre = [](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
    return {.update_gradients = {{"fc.bias", gradients["fc.bias"]}}};
  };
  at::Tensor first;
  callbacks.at_step[1] = [&](const StepInput& in) { first = in.parameters.values().clone(); };
  const auto trainer = train(5, kTwo, tiny_options(), callbacks);
  const nn::Segment bias = trainer->parameters().segment(*trainer->parameters().find("fc.bias"));
  const at::Tensor moved = values_of(*trainer).ne(first);
  EXPECT_EQ(moved.sum().item<int64_t>(), moved.narrow(0, bias.offset, bias.count).sum().item<int64_t>());
  EXPECT_GT(moved.sum().item<int64_t>(), 0);
}

TEST(CallbackLoop, FreezesAndInitializesAtAStep) {
  std::ostringstream out;
  Callbacks callbacks = tiny_callbacks(out);
  callbacks.at_step[3] = [](const StepInput& in) {
    in.parameters.value(*in.parameters.find("conv.weight")).fill_(0.125);
    in.parameters.values_changed();
    if (in.dev == 0) in.trainer.set_trainable("conv.*", false);
  };
  const auto trainer = train(6, kTwo, tiny_options(), callbacks);
  const nn::ParameterSet& set = trainer->parameters();
  EXPECT_TRUE(set.value(*set.find("conv.weight")).eq(0.125).all().item<bool>());
  EXPECT_FALSE(trainer->frozen_parameters().empty());
}

TEST(CallbackLoop, GoesOnFromACheckpointWithTheBitsOfAStraightRun) {
  std::ostringstream out;
  Callbacks callbacks = tiny_callbacks(out, 0.001);
  callbacks.create_loss = [](train::TowerContext& context) -> Loss {
    train::TowerParameter& scale = context.parameter({"loss.scale", {}, nn::Initializer::constant(1)});
    return [&scale](const Tensors& arguments, const train::TowerInput&) {
      return nn::softmax_cross_entropy(arguments[0], arguments[1]).mul(8).mul(scale.value().square().add(0.5));
    };
  };
  callbacks.at_step[5] = [](const StepInput& in) {
    if (in.dev == 0) in.lr.set(in.lr.value() / 2);
  };
  const auto straight = train(12, kTwo, tiny_options(), callbacks);
  EXPECT_EQ(straight->current_learning_rate(), 0.025);
  const nn::ParameterSet& set = straight->parameters();
  EXPECT_NE(set.value(*set.find("loss.scale")).item<float>(), 1) << "a loss may have parameters";

  const core::TempDir directory;
  Options options = tiny_options();
  options.ckpt_path = directory.path();
  callbacks.every_steps[7] = [](const StepInput& in) {
    if (in.dev == 1) in.manager.save(in.step);
  };
  callbacks.at_step[9] = [](const StepInput&) { throw std::runtime_error("the machine stops"); };
  EXPECT_THAT(core::message_of([&] { train(12, kTwo, options, callbacks); }, core::ErrorCode::kInternal),
              testing::HasSubstr("at_step[9], replica 0"));
  callbacks.at_step.erase(9);
  std::vector<int64_t> steps;
  callbacks.every_steps[1] = [&](const StepInput& in) {
    if (in.dev == 0) steps.push_back(in.step);
  };
  options.learning_rate = 3;  // the saved one counts
  const auto resumed = train(12, kTwo, options, callbacks);
  EXPECT_THAT(steps, ElementsAre(8, 9, 10, 11, 12));
  EXPECT_TRUE(values_of(*resumed).equal(values_of(*straight)));
  EXPECT_EQ(resumed->current_learning_rate(), 0.025);
  steps.clear();
  EXPECT_EQ(train(7, kTwo, options, callbacks)->global_step(), 7) << "which the checkpoint has already";
  EXPECT_TRUE(steps.empty());
}

TEST(CallbackLoop, ACallbackThatThrowsOnEachReplicaEndsAll) {
  std::ostringstream out;
  Callbacks callbacks = line_callbacks(out);
  std::atomic<int> thrown = 0;
  callbacks.grad_pre = [&](const at::Tensor&, auto&&...) -> GradPreResult {
    throw core::Error(core::ErrorCode::kCorruptData, fmt::format("bad luck {}", ++thrown));
  };
  const std::string message =
      core::message_of([&] { train(3, kFour, {.batch_size = 8}, callbacks); }, core::ErrorCode::kCorruptData);
  EXPECT_THAT(message, testing::ContainsRegex("bad luck [1-4]: epoch 1, step 1: replica [0-3]: grad_pre"));
  EXPECT_LE(thrown, 4);

  callbacks = line_callbacks(out);
  callbacks.every_steps[2] = [](const StepInput& in) {
    throw core::Error(core::ErrorCode::kCorruptData, fmt::format("bad luck on {}", in.dev));
  };
  EXPECT_EQ(core::message_of([&] { train(3, kTwo, {.batch_size = 8}, callbacks); }, core::ErrorCode::kCorruptData),
            "bad luck on 0: epoch 1, step 2: callback 'callback_loop', after_step: every_steps[2], replica 0");
}

TEST(CallbackLoop, ADatasetWithoutABatchDimensionIsBatchedByMakeBatches) {
  std::ostringstream out;
  Callbacks callbacks = line_callbacks(out);
  callbacks.create_dataset = [](int64_t) {
    return std::make_shared<data::FunctionSource>(
        [](const data::BatchPlace& place) -> core::NamedTensors {
          return {{"x", at::full({}, static_cast<double>(place.batch + 1))}, {"unused", at::ones({})}};
        },
        data::FunctionSourceOptions{.batch_size = 1});
  };
  EXPECT_EQ(
      core::message_of([&] { train(1, kTwo, {.batch_size = 8}, callbacks); }),
      "the batches of a replica are of another size: expected 4 samples, got 1; take the size that create_dataset "
      "gets, or make such batches in make_batches");
  callbacks.make_batches = [](const Dataset& samples, int64_t batch_size) {
    return std::make_shared<data::FunctionSource>(
        [samples, batch_size](const data::BatchPlace&) -> core::NamedTensors {
          Tensors all;
          for (int64_t i = 0; i < batch_size; ++i) all.push_back(samples->next()[0].tensors["x"]);
          return {{"x", at::stack(all).to(at::kFloat)}, {"unused", at::ones({batch_size})}};
        },
        data::FunctionSourceOptions{.batch_size = batch_size});
  };
  const auto trainer = train(1, kTwo, {.batch_size = 8, .learning_rate = 0.5}, callbacks);
  EXPECT_DOUBLE_EQ(weight_of(*trainer), 1 - 0.5 * (36.0 / 8 + 3));
}

TEST(CallbackLoop, GivesTheModelForInference) {
  std::ostringstream out;
  const auto trainer = train(1, kTwo, {.batch_size = 8, .learning_rate = 0.5}, line_callbacks(out));
  const core::NamedTensors batch({{"x", at::full({3}, 2.0F)}});
  const train::TowerOutput output = trainer->inference_tower()({.batch = batch});
  EXPECT_FLOAT_EQ(output.outputs["output"][2].item<float>(), static_cast<float>(2 * weight_of(*trainer)));
}

TEST(CallbackLoop, OutputsBehindTheFirstHaveNumbers) {
  std::ostringstream out;
  Callbacks callbacks = line_callbacks(out);
  callbacks.create_model = [](train::TowerContext& context) -> Model {
    train::TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1)});
    return {.call = [&w](const Tensors& input, const train::TowerInput&) -> Tensors {
      const at::Tensor y = w.value().mul(input[0]);
      return {y, y.mul(2), y.mul(3)};
    }};
  };
  const auto trainer = train(1, kOne, {.batch_size = 4, .learning_rate = 0}, callbacks);
  const core::NamedTensors batch({{"x", at::full({2}, 5.0F)}});
  const train::TowerOutput output = trainer->inference_tower()({.batch = batch});
  EXPECT_THAT(output.outputs.names(), ElementsAre("output", "output_1", "output_2"));
  EXPECT_FLOAT_EQ(output.outputs["output"][1].item<float>(), 5);
  EXPECT_FLOAT_EQ(output.outputs["output_1"][1].item<float>(), 10);
  EXPECT_FLOAT_EQ(output.outputs["output_2"][1].item<float>(), 15);
}

TEST(CallbackLoop, RefusedGradientsAreToldWithTheirSizes) {
  std::ostringstream out;
  const auto detail = [&](auto update_pre) {
    Callbacks callbacks = line_callbacks(out);
    callbacks.update_pre = update_pre;
    return core::thrown_by([&] { train(1, kTwo, {}, callbacks); }).detail();
  };
  const core::ErrorDetail shape = detail([](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
    return {.update_gradients = {{"w", gradients["w"].reshape({1})}}};
  });
  EXPECT_EQ(shape.problem, "update_pre gave a gradient that it did not get");
  EXPECT_EQ(shape.expected, "1 elements");
  EXPECT_EQ(shape.actual, "1, in another shape");
  const core::ErrorDetail name = detail([](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
    return {.update_gradients = {{"ww", gradients["w"]}}};
  });
  EXPECT_EQ(name.expected, "a name of its gradients");
  // The inputs of replica 0 are 1 to 4, those of replica 1 are 5 to 8.
  const core::ErrorDetail differ = detail([](const core::NamedTensors& gradients, const at::Tensor&, const Tensors&,
                                             const core::NamedTensors& batch, auto&&...) -> UpdatePreResult {
    if (batch["x"][0].item<float>() < 4) return {.update_gradients = gradients};
    return {};
  });
  EXPECT_EQ(differ.problem, "replicas have updated different parameters");
  EXPECT_EQ(differ.actual, "1 left out on replica 1, 0 on replica 0");
}

TEST(CallbackLoop, SaysWhatIsWrong) {
  std::ostringstream out;
  const Callbacks good = line_callbacks(out);
  EXPECT_EQ(core::message_of([&] { train(1, kTwo, {.batch_size = 9}, good); }),
            "the training cannot be begun: expected at least 1 step, and a batch_size that is a multiple of the number "
            "of devices, got 1 steps, 9 on 2");
  EXPECT_EQ(core::problem_of([&] { train(0, kOne, {}, good); }), "the training cannot be begun");
  EXPECT_EQ(core::problem_of([&] { train(1, kOne, {.batch_size = 0}, good); }), "batch_size cannot be used");
  const auto problem = [&](const std::function<void(Callbacks&)>& change) {
    Callbacks callbacks = good;
    change(callbacks);
    const std::optional<core::Error> error = core::error_of([&] { train(1, kTwo, {}, callbacks); });
    return error ? error->detail().problem : "";
  };
  EXPECT_EQ(problem([](Callbacks& c) { c.create_dataset = [](int64_t) { return Dataset(); }; }),
            "create_dataset gave no dataset");
  EXPECT_EQ(problem([](Callbacks& c) { c.make_batches = [](const Dataset&, int64_t) { return Dataset(); }; }),
            "make_batches gave no batches");
  EXPECT_EQ(problem([](Callbacks& c) { c.create_model = [](train::TowerContext&) { return Model(); }; }),
            "create_model gave a model that cannot be called");
  EXPECT_EQ(problem([](Callbacks& c) { c.create_loss = [](train::TowerContext&) { return Loss(); }; }),
            "create_loss gave no loss");
  EXPECT_EQ(problem([](Callbacks& c) {
              c.create_opt = [](double, nn::ParameterSet&) { return std::unique_ptr<optim::Optimizer>(); };
            }),
            "create_opt gave no optimizer");
  EXPECT_EQ(problem([](Callbacks& c) { c.create_ckpt = [](const CheckpointInput&) { return Checkpoints(); }; }),
            "create_ckpt must give both");
  EXPECT_EQ(problem([](Callbacks& c) { c.grad_pre = [](auto&&...) { return GradPreResult(); }; }),
            "grad_pre gave no loss_per_batch");
  EXPECT_EQ(problem([](Callbacks& c) {
              c.grad_pre = [](const at::Tensor& loss, auto&&...) -> GradPreResult {
                return {.loss_per_batch = loss, .trainable_vars = {{"v*"}}};
              };
            }),
            "no parameter is named as 'v*'");
  EXPECT_EQ(problem([](Callbacks& c) {
              c.update_pre = [](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
                return {.update_gradients = {{"W", gradients["w"]}}};
              };
            }),
            "update_pre gave a gradient that it did not get");
  std::atomic<int> calls = 0;
  EXPECT_EQ(problem([&](Callbacks& c) {
              c.update_pre = [&](const core::NamedTensors& gradients, auto&&...) -> UpdatePreResult {
                if (calls++ == 0) return {.update_gradients = gradients};
                return {};
              };
            }),
            "replicas have updated different parameters");
}

// What each process does that mpirun has started (tests/processes/ranks_test.py), twice: it begins, then it continues
// from what it has saved. Its part is that of a device in what two devices of one process do, bit for bit. The first
// process says what those say, with the loss of all devices.
void train_with_the_others(const std::string& directory) {
  constexpr int64_t kFirst = 12, kLast = 20;
  std::ostringstream out, out_alone;
  Options options = tiny_options();
  options.ckpt_path = core::join_path(directory, "ckpt");
  const bool continues = core::local_file_system().exists(core::join_path(options.ckpt_path, "model.ckpt-12"));
  const int64_t steps = continues ? kLast : kFirst;
  Callbacks callbacks = tiny_callbacks(out);
  callbacks.at_step[kFirst] = [](const StepInput& in) {
    if (in.dev == 0) in.manager.save(in.step);
  };
  const auto together = train(steps, kOne, options, callbacks);
  EXPECT_EQ(together->global_step(), steps);
  const auto alone = train(steps, kTwo, tiny_options(), tiny_callbacks(out_alone));
  EXPECT_TRUE(at::equal(values_of(*together), values_of(*alone)));
  const std::string said = out_alone.str();
  const size_t first_line = said.find(continues ? "step 13\n" : "step 1\n");
  ASSERT_NE(first_line, std::string::npos) << said;
  EXPECT_NE(said.find(": loss ", first_line), std::string::npos) << said;
  EXPECT_EQ(out.str(), together->is_chief() ? said.substr(first_line) : "");
  std::printf("SAYS %s\n", together->is_chief() ? "chief" : "another");
}
const bool kTrainsWithTheOthers =
    core::add_helper_task("TRAINYARD_CALLBACK_LOOP_TASK", "CallbackLoopTask.InAProcess", train_with_the_others);

}  // namespace
}  // namespace trainyard::frontends::callback_loop::callback_loop_test
