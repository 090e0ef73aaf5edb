#include "trainyard/train/step/tower_trainer.h"

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/core/testing/sanitizer.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::tower_trainer_test {
namespace {

// Calls a function after each step, and one after each epoch.
class Observer : public Callback {
 public:
  std::function<void(const StepView&)> on_step;
  std::function<void()> on_epoch;
  std::string name() const override { return "observer"; }
  void after_step(Trainer&, const StepView& view) override {
    if (on_step) on_step(view);
  }
  void after_epoch(Trainer&) override {
    if (on_epoch) on_epoch();
  }
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return std::string(core::error_code_name(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}

at::Tensor trained_values(const TowerTrainerOptions& options, int64_t batch_size, int64_t steps = 10) {
  TowerTrainer trainer(options, tiny_source(240, batch_size, options.devices.replicas));
  trainer.train({.steps_per_epoch = steps});
  return trainer.parameters().values().clone();
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

TEST(TowerTrainer, Learns) {
  TowerTrainer trainer(tiny_options(), tiny_source(240, 24));
  EXPECT_TRUE(std::isnan(trainer.last_base_loss()));
  std::vector<double> losses;
  auto observer = std::make_shared<Observer>();
  observer->on_step = [&](const StepView&) { losses.push_back(trainer.last_base_loss()); };
  trainer.add(observer);
  trainer.train({.steps_per_epoch = 10, .max_epoch = 8});
  EXPECT_NEAR(losses.front(), std::log(6.0), 0.4);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_GT(trainer.last_total_loss(), trainer.last_base_loss());
}

TEST(TowerTrainer, TheSameSeedGivesTheSameBits) {
  for (const std::string mode : {"parameter_server", "replicated", "independent"}) {
    for (const int replicas : {1, 2}) {
      TowerTrainerOptions options = tiny_options({.dropout = 0.3}, replicas);
      if (!core::kThreadSanitizer)
        options.threads.intra_op_threads = 2 * replicas;  // it does not understand OpenMP's teams
      options.exchange.variable_update = mode;
      const at::Tensor first = trained_values(options, 8), again = trained_values(options, 8);
      EXPECT_TRUE(first.equal(again)) << mode << " " << replicas;
      options.seed = 8;
      EXPECT_FALSE(first.equal(trained_values(options, 8)));
    }
  }
}

// Dropout included: its mask belongs to the sample's place in the global batch, whichever replica has it.
TEST(TowerTrainer, TwoReplicasEqualOneOfDoubleBatch) {
  const TinyModel model{.batch_norm = false, .dropout = 0.4};
  const at::Tensor one = trained_values(tiny_options(model), 16);
  for (const std::string mode : {"parameter_server", "replicated"}) {
    TowerTrainerOptions options = tiny_options(model, 2);
    options.exchange.variable_update = mode;
    options.exchange.reduction = parallel::GradientReduction::kMean;
    EXPECT_LT(largest_difference(one, trained_values(options, 8)), 1e-6) << mode;
  }
}

TEST(TowerTrainer, MicroStepsEqualOneLargeBatch) {
  const TinyModel model{.batch_norm = false};
  const at::Tensor one = trained_values(tiny_options(model), 24);
  TowerTrainerOptions options = tiny_options(model);
  options.micro_steps = 3;
  EXPECT_LT(largest_difference(one, trained_values(options, 8)), 1e-6);
  options = tiny_options(model, 2);
  options.micro_steps = 3;
  EXPECT_LT(largest_difference(one, trained_values(options, 4)), 1e-6) << "two replicas and three micro-steps";
}

// The masks of dropout in each micro-step are those of an executor that is given the micro-step's number by hand.
TEST(TowerTrainer, EachMicroStepHasRandomNumbersOfItsOwn) {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "dropped"});
  const nn::Graph graph = b.build(b.flatten("flat", b.dropout("dropout", b.input(), 0.5)));
  TowerTrainerOptions options = tiny_options();
  options.graph = {};
  options.micro_steps = 2;
  std::vector<at::Tensor> inputs, outputs;
  std::vector<nn::StepRandom> randoms;
  options.tower = [&](TowerContext& context) -> TowerStep {
    nn::Executor& net = context.graph(graph);
    nn::Executor& head = context.graph(tiny_graph(), {.prefix = "head/"});
    return [&](const TowerInput& in) -> TowerOutput {
      inputs.push_back(in.batch["images"].clone());
      randoms.push_back(in.random);
      outputs.push_back(net.forward(in.batch["images"], in.random).detach().clone());
      return {.losses = {{"cost",
                          nn::softmax_cross_entropy(head.forward(in.batch["images"], in.random), in.batch["labels"])}}};
    };
  };
  TowerTrainer trainer(options, tiny_source(240, 8));
  trainer.train({.steps_per_epoch = 2});
  ASSERT_EQ(outputs.size(), 4U);
  nn::ParameterSet none;
  none.allocate();
  const auto executor = nn::make_executor("reference", graph, {.parameters = &none});
  for (size_t i = 0; i < 4; ++i) {
    const nn::StepRandom random{.seed = 7,
                                .step = static_cast<int64_t>(i) / 2,
                                .micro_step = static_cast<int64_t>(i) % 2,
                                .first_sample = randoms[i].first_sample};
    EXPECT_TRUE(outputs[i].equal(executor->forward(inputs[i], random))) << i;
  }
}

TEST(TowerTrainer, TenStepsAreFiveAndSavedAndFive) {
  for (const std::string mode : {"parameter_server", "replicated", "independent"}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(mode + " " + std::to_string(replicas));
      TowerTrainerOptions options = tiny_options({.dropout = 0.2}, replicas);
      options.exchange.variable_update = mode;
      // 80 samples: the input's second epoch begins within the ten steps.
      const auto source = [&] { return tiny_source(80, 8, replicas); };
      TowerTrainer straight(options, source());
      straight.train({.steps_per_epoch = 10});

      core::MemoryState saved;
      {
        TowerTrainer first(options, source());
        first.train({.steps_per_epoch = 5});
        first.save(saved);
      }
      TowerTrainer second(options, source());
      second.load(saved);
      EXPECT_EQ(second.global_step(), 5);
      second.train({.steps_per_epoch = 10, .starting_step = second.step_in_epoch()});
      core::MemoryState ends[2];
      straight.save(ends[0]);
      second.save(ends[1]);
      ASSERT_EQ(ends[0].names(), ends[1].names());
      const core::StateReader &expected = ends[0], &actual = ends[1];
      for (const std::string& name : expected.names("model/")) {
        EXPECT_TRUE(expected.tensor(name).equal(actual.tensor(name))) << name;
      }
      for (const std::string& name : expected.names("optimizer/")) {
        EXPECT_TRUE(expected.tensor(name).equal(actual.tensor(name))) << name;
      }
      EXPECT_EQ(expected.integer("input/epoch"), actual.integer("input/epoch"));
      EXPECT_EQ(expected.integer("input/offset"), actual.integer("input/offset"));
      EXPECT_EQ(second.last_total_loss(), straight.last_total_loss());
    }
  }
}

TEST(TowerTrainer, SavedNamesAreStable) {
  TowerTrainer trainer(tiny_options({}, 2), tiny_source(80, 8, 2));
  core::MemoryState saved;
  trainer.save(saved);
  EXPECT_EQ(
      saved.names(),
      (std::vector<std::string>{
          "input/epoch", "input/offset", "model/bn.bias", "model/bn.running_mean", "model/bn.running_var",
          "model/bn.weight", "model/conv.weight", "model/fc.bias", "model/fc.weight", "optimizer/bn.bias.momentum",
          "optimizer/bn.weight.momentum", "optimizer/conv.weight.momentum", "optimizer/fc.bias.momentum",
          "optimizer/fc.weight.momentum", "trainer/epoch", "trainer/global_step", "trainer/step_in_epoch"}));
}

TEST(TowerTrainer, ShowsWhatAStepDid) {
  TowerTrainer trainer(tiny_options({}, 2), tiny_source(80, 8, 2));
  auto observer = std::make_shared<Observer>();
  observer->on_step = [&](const StepView& view) {
    ASSERT_EQ(view.replicas.size(), 2U);
    for (const ReplicaView& replica : view.replicas) {
      EXPECT_EQ(replica.output().sizes(), (at::IntArrayRef{8, kTinyClasses}));
      EXPECT_FALSE(replica.output().requires_grad());
      EXPECT_EQ(replica.batch.labels().size(0), 8);
      EXPECT_FALSE(replica.loss().requires_grad());
      EXPECT_GT(replica.parameters->gradients().abs().max().item<double>(), 0.0);
    }
    EXPECT_FALSE(view.replicas[0].batch.images().equal(view.replicas[1].batch.images()));
    EXPECT_TRUE(view.replicas[0].parameters->gradients().equal(view.replicas[1].parameters->gradients()));
    EXPECT_EQ(view.replicas[1].batch.first_sample, 8);
    const StepTimes& times = view.times;
    EXPECT_NEAR(times.input + times.compute + times.communication + times.update, times.total, 1e-9);
    for (const double part : {times.input, times.compute, times.communication, times.update}) EXPECT_GE(part, 0.0);
    EXPECT_LE(times.waiting, times.communication);
    EXPECT_EQ(trainer.current_learning_rate(), 0.05);
  };
  trainer.add(observer);
  trainer.train({.steps_per_epoch = 3});
}

TEST(TowerTrainer, TimesSayWhatHeldTheStep) {
  class SlowSource : public MemorySource {
   public:
    using MemorySource::MemorySource;
    std::vector<data::Batch> next() override {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return MemorySource::next();
    }
  };
  const auto images = at::empty({8, 3, 5, 5}).zero_();
  const auto labels = at::empty({8}, at::kLong).zero_();
  StepTimes times;
  auto observer = std::make_shared<Observer>();
  observer->on_step = [&](const StepView& view) { times = view.times; };
  {
    TowerTrainer trainer(tiny_options(), std::make_shared<SlowSource>(images, labels, 8));
    trainer.add(observer);
    trainer.train({.steps_per_epoch = 2});
    EXPECT_GE(times.input, 0.03);
    EXPECT_EQ(times.communication, 0.0) << "one replica has nobody to wait for";
  }
  TowerTrainerOptions options = tiny_options({}, 2);
  options.hooks.input_pre = [](int replica, data::Batch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(replica == 1 ? 60 : 0));
  };
  TowerTrainer trainer(options, tiny_source(80, 8, 2));
  trainer.add(observer);
  trainer.train({.steps_per_epoch = 2});
  EXPECT_GE(times.communication, 0.03) << "replica 0 waits for replica 1";
  EXPECT_GE(times.waiting, 0.03) << "and moves little";
}

TEST(TowerTrainer, HooksChangeTheStep) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false}, 2);
  const at::Tensor plain = trained_values(options, 8, 1);
  const at::Tensor start = TowerTrainer(options, tiny_source(80, 8, 2)).parameters().values().clone();

  std::atomic<int> inputs = 0;
  options.hooks.input_pre = [&](int replica, data::Batch& batch) {
    EXPECT_EQ(batch.first_sample, 8 * replica);
    batch.tensors.set("images", batch.images().mul(2.0));
    ++inputs;
  };
  EXPECT_GT(largest_difference(trained_values(options, 8, 1), plain), 1e-5);
  EXPECT_EQ(inputs, 2);

  options = tiny_options({.batch_norm = false}, 2);
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
    return nn::softmax_cross_entropy(output.narrow(0, 0, 4), labels.narrow(0, 0, 4));
  });
  EXPECT_GT(largest_difference(trained_values(options, 8, 1), plain), 1e-5);

  options = tiny_options({.batch_norm = false}, 2);
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  const at::Tensor once = trained_values(options, 8, 1).sub(start);
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
    return nn::softmax_cross_entropy(output, labels).mul(2.0);
  });
  EXPECT_LT(largest_difference(trained_values(options, 8, 1).sub(start), once.mul(2.0)), 1e-6);

  options.hooks.update_pre = [](int, nn::ParameterSet& parameters) { parameters.gradients().zero_(); };
  EXPECT_TRUE(trained_values(options, 8, 1).equal(start));
}

// What the wake-up is for: without it the other replica sits until its deadline.
class DeafUpdate : public parallel::VariableUpdate {
 public:
  optim::Optimizer* optimizer(int replica, int index) const override { return update_->optimizer(replica, index); }
  int64_t optimizer_bytes() const override { return 0; }
  explicit DeafUpdate(const parallel::VariableUpdateOptions& options)
      : update_(parallel::variable_updates().get("parameter_server")(options)) {}
  nn::ParameterSet& parameters(int replica) override { return update_->parameters(replica); }
  void allocate() override { update_->allocate(); }
  void reduce(int replica) override { update_->reduce(replica); }
  void update(int replica, const optim::StepState& state, int optimizer) override {
    update_->update(replica, state, optimizer);
  }
  parallel::GradientReduction reduction() const override { return update_->reduction(); }
  void abort(const core::Error&) override {}
  void change_values(const std::function<void(nn::ParameterSet&)>& change) override { update_->change_values(change); }
  void broadcast() override { update_->broadcast(); }
  double communication_seconds(int replica) const override { return update_->communication_seconds(replica); }
  double waiting_seconds(int replica) const override { return update_->waiting_seconds(replica); }
  void save(core::StateWriter& writer) const override { update_->save(writer); }
  void load(const core::StateReader& reader) override { update_->load(reader); }

 private:
  std::unique_ptr<parallel::VariableUpdate> update_;
};

const core::Registration kDeaf(parallel::variable_updates(), "deaf",
                               [](const parallel::VariableUpdateOptions& options) {
                                 return std::make_unique<DeafUpdate>(options);
                               });

TEST(TowerTrainer, AFailedReplicaEndsTheStepForAll) {
  for (const std::string mode : {"parameter_server", "replicated", "independent", "deaf"}) {
    for (const int failing : {0, 1}) {
      if (mode == "deaf" && failing == 0) continue;  // one long wait is enough
      TowerTrainerOptions options = tiny_options({}, 2);
      options.exchange.variable_update = mode;
      options.exchange.deadline = std::chrono::milliseconds(2500);
      options.loss = [failing](TowerContext& context) -> Loss {
        return [fails = context.index() == failing, calls = std::make_shared<std::atomic<int>>()](const LossInput& in) {
          if (fails && ++*calls == 2) throw core::Error(core::ErrorCode::kIo, "the cable was pulled");
          return nn::softmax_cross_entropy(in.outputs["logits"], in.batch["labels"]);
        };
      };
      TowerTrainer trainer(options, tiny_source(80, 8, 2));
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(error_of([&] { trainer.train({.steps_per_epoch = 5}); }),
                "io: the cable was pulled: epoch 1, step 2: replica " + std::to_string(failing));
      const bool waited = std::chrono::steady_clock::now() - begin >= options.exchange.deadline;
      EXPECT_EQ(waited, mode == "deaf") << mode;
      EXPECT_EQ(trainer.global_step(), 1);
    }
  }
}

TEST(TowerTrainer, AnInputThatEndsIsAnError) {
  TowerTrainer trainer(tiny_options(), tiny_source(16, 8, 1, false));
  EXPECT_EQ(error_of([&] { trainer.train({.steps_per_epoch = 5}); }),
            "invalid_argument: the input ended in the middle of the training: epoch 1, step 3: expected 1 batches, got "
            "0; let it repeat, or train fewer steps");
}

TEST(TowerTrainer, ReplicasRunWhereTheyArePlacedAndGiveTheSameNumbers) {
  TowerTrainerOptions options = tiny_options({}, 2);
  TowerTrainer anywhere(options, tiny_source(80, 8, 2));
  anywhere.train({.steps_per_epoch = 3});

  const core::CpuList all = core::allowed_cpus();
  const int node = core::numa_nodes(all).front().number;
  options.threads.placement = {{.cpus = {all.back()}, .memory_node = node},
                               {.places = {{all.front()}}, .memory_node = node}};
  std::array<core::CpuList, 2> seen;
  options.hooks.input_pre = [&](int r, data::Batch&) { seen[static_cast<size_t>(r)] = core::allowed_cpus(); };
  TowerTrainer placed(options, tiny_source(80, 8, 2));
  placed.train({.steps_per_epoch = 3});
  EXPECT_EQ(seen[0], core::CpuList{all.back()});
  EXPECT_EQ(seen[1], core::CpuList{all.front()});
  EXPECT_EQ(core::allowed_cpus(), all);
  EXPECT_TRUE(placed.parameters().values().equal(anywhere.parameters().values()));
}

TEST(TowerTrainer, EvaluationBesideTrainingChangesNothing) {
  const TowerTrainerOptions options = tiny_options({.dropout = 0.2});
  TowerTrainer alone(options, tiny_source(80, 8));
  alone.train({.steps_per_epoch = 5, .max_epoch = 3});

  TowerTrainer trainer(options, tiny_source(80, 8));
  Evaluator evaluator({.graph = options.graph}, trainer.parameters());
  std::vector<Evaluation> results;
  auto observer = std::make_shared<Observer>();
  observer->on_epoch = [&] { results.push_back(evaluator.run(*tiny_source(50, 8, 1, false))); };
  trainer.add(observer);
  trainer.train({.steps_per_epoch = 5, .max_epoch = 3});

  ASSERT_EQ(results.size(), 3U);
  EXPECT_LT(results.back().loss, results.front().loss) << "it sees the new values without being told";
  core::MemoryState expected, actual;
  alone.save(expected);
  trainer.save(actual);
  for (const std::string& name : expected.names("model/")) {
    EXPECT_TRUE(std::as_const(expected).tensor(name).equal(std::as_const(actual).tensor(name))) << name;
  }
}

TEST(TowerTrainer, RefusesWhatCannotBe) {
  const auto refuses = [](const std::function<void(TowerTrainerOptions&)>& change) {
    TowerTrainerOptions options = tiny_options();
    change(options);
    return error_of([&] { TowerTrainer(options, tiny_source(80, 8)); });
  };
  EXPECT_EQ(refuses([](auto&) {}), "nothing was thrown");
  EXPECT_TRUE(refuses([](auto& o) { o.devices.replicas = 0; }).starts_with("invalid_argument"));
  EXPECT_EQ(refuses([](auto& o) { o.devices.replicas = 2; }),
            "invalid_argument: the input must give one batch a replica: expected 2 batches, got 1");
  EXPECT_EQ(error_of([] { TowerTrainer(tiny_options(), nullptr); }),
            "invalid_argument: the input must give one batch a replica: expected 1 batches, got no input");
  EXPECT_TRUE(refuses([](auto& o) { o.micro_steps = 0; }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.threads.placement.resize(5); }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.threads.intra_op_threads = -1; }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.learning_rate = nullptr; }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.make_optimizer = nullptr; }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.graph = {}; }).starts_with("invalid_argument"));
  EXPECT_TRUE(refuses([](auto& o) { o.devices.executor = "referense"; }).starts_with("not_found"));
  EXPECT_TRUE(refuses([](auto& o) { o.exchange.variable_update = "paramter_server"; }).starts_with("not_found"));

  TowerTrainerOptions options = tiny_options();
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor&) { return output; });
  TowerTrainer trainer(options, tiny_source(80, 8));
  EXPECT_NE(error_of([&] { trainer.train({.steps_per_epoch = 1}); }).find("the loss 'cost' cannot be differentiated"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::train::tower_trainer_test
