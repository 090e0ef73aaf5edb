#include "trainyard/frontends/paddle/executor.h"

#include <utility>

#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/switched_source.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/train/evaluation/metrics.h"
#include "trainyard/train/session/rank_evaluation.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends::program {

using core::Error;
using core::ErrorCode;

// Lets others see the steps of a trainer, which takes its callbacks once.
class Executor::StepHook : public train::Callback {
 public:
  std::string name() const override { return "program"; }
  void after_step(train::Trainer&, const train::StepView& view) override {
    if (on_step) on_step(view);
  }
  void save(core::StateWriter& writer) const override { writer.integer("steps_per_epoch", steps_per_epoch); }
  void load(const core::StateReader& reader) override { steps_per_epoch = reader.integer("steps_per_epoch"); }

  OnStep on_step;
  int64_t steps_per_epoch = 0;
};

namespace {

// Keeps what the model gave for the one batch that it sees.
class LastOutput : public train::Metric {
 public:
  void begin() override {}
  void update(const train::MetricBatch& batch) override { output = batch.output(), labels = batch.labels; }
  void reduce(core::Communicator&, at::Device) override {}
  std::vector<std::pair<std::string, double>> results() const override { return {}; }

  at::Tensor output, labels;
};

at::Tensor fetched(const std::string& name, const at::Tensor& logits, const at::Tensor& labels,
                   const at::Tensor& loss) {
  if (name == "loss") return loss;
  if (name == "label") return logits.argmax(1);
  const auto count = static_cast<double>(labels.size(0));
  return nn::top_k_correct(logits, labels, name == "top1" ? 1 : 5).to(at::kDouble).div(count).to(logits.scalar_type());
}

// What AMP computes with. The loss scale is the same with all of them.
at::ScalarType amp_type(at::Device device) {
  if (!device.is_cpu()) return at::kHalf;
  if (core::cpu_has_avx512_bf16()) {
    core::log::info("amp: bfloat16, the 16-bit floats of this processor");
    return at::kBFloat16;
  }
  core::log::info("amp: this processor has no 16-bit floats: float32, with the loss scaled all the same");
  return at::kFloat;
}

}  // namespace

namespace {

train::OpenDevices open_places(const std::vector<std::string>& places) {
  parallel::refuse_copies("train alone");
  return open_named_devices(read_device_names(places));
}

}  // namespace

Executor::Executor(const std::vector<std::string>& places, ExecutorOptions options)
    : Executor(open_places(places), std::move(options)) {}

Executor::Executor(train::OpenDevices devices, ExecutorOptions options)
    : options_(std::move(options)),
      device_(std::move(devices)),
      evaluations_(std::make_unique<train::RankEvaluations>()) {
  places_ = device_.replicas;
  on_devices_ = device_.use();
  device_.dtype = options_.dtype;
  device_.kernels.choices = std::make_shared<nn::KernelChoices>();
}

Executor::~Executor() = default;

void Executor::run(const Program& startup) {
  const auto refuse = [&](const char* problem, const char* remedy) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = problem, .where = fmt::format("program '{}'", startup.name()), .remedy = remedy});
  };
  if (startup.built()) refuse("it is no startup program", "run it with a feed and a list of what to fetch");
  if (!startup.is_startup()) refuse("a startup program that initializes nothing", "call build() with it first");
  if (startup_ == startup.body()) refuse("a startup program runs once", "leave the second run out");
  if (startup_) refuse("another startup program has run here", "make an Executor for each");
  const Program::Body* training = nullptr;
  bool amp = false;
  for (const auto& main : startup.body()->mains) {
    if (main->is_train) training = main.get();
    amp = amp || main->amp;
  }
  if (amp && options_.dtype == at::kFloat) device_.dtype = amp_type(device_.device());
  if (training != nullptr) {
    make_trainer(*training);
  } else {
    parameters_ = std::make_unique<nn::ParameterSet>(nn::ParameterSetOptions{
        .dtype = options_.dtype == at::kDouble ? at::kDouble : at::kFloat, .device = device_.device()});
    for (const auto& main : startup.body()->mains) {
      nn::make_executor("reference", main->graph,
                        {.device = device_.device(), .mode = nn::Mode::kInference, .parameters = parameters_.get()});
    }
    parameters_->allocate();
    parameters_->initialize(options_.seed);
  }
  startup_ = startup.body();
}

void Executor::make_trainer(const Program::Body& main) {
  const Optimizer& optimizer = *main.optimizer;
  train::TowerTrainerOptions options;
  options.graph = main.graph;
  options.loss = train::classifier_loss({.label_smoothing = main.fetchs.label_smoothing});
  options.devices = device_;
  options.devices.executor = optimizer.strategy.executor();
  if (optimizer.amp && (optimizer.loss_scale.automatic || optimizer.loss_scale.first_scale() != 1)) {
    options.devices.loss_scale = optimizer.loss_scale;
  }
  options.threads.intra_op_threads = options_.intra_op_threads;
  options.threads.placement = options_.placement;
  options.seed = options_.seed;
  options.exchange.variable_update = variable_update_of(device_, places_ > 1 ? "replicated" : "parameter_server");
  options.exchange.reduction = parallel::GradientReduction::kMean;
  options.learning_rate = [rate = optimizer.learning_rate](int64_t) { return rate->get_lr(); };
  options.make_optimizer = [name = optimizer.name, update = optimizer.options](nn::ParameterSet& parameters) {
    return optim::optimizers().get(name)(parameters, update);
  };
  source_ = std::make_shared<data::SwitchedSource>(main.batch_size, places_);
  trainer_ = std::make_unique<train::TowerTrainer>(std::move(options), source_);
  hook_ = std::make_shared<StepHook>();
  trainer_->add(hook_);
  if (stop_) trainer_->set_stop_token(*stop_);
}

void Executor::set_stop(core::StopToken stop) {
  stop_ = std::move(stop);
  if (trainer_) trainer_->set_stop_token(*stop_);
}

void Executor::require_ready(const Program& program) const {
  const auto refuse = [&](std::string problem, std::string remedy) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                              .where = fmt::format("program '{}'", program.name()),
                                              .remedy = std::move(remedy)});
  };
  if (!program.built()) refuse("a program runs after it was built", "call build() first");
  if (startup_ == nullptr || startup_ != program.body()->startup.lock()) {
    refuse(fmt::format("its startup program '{}' has not run", program.body()->startup_name),
           "run that with this Executor first");
  }
}

nn::ParameterSet& Executor::scope() {
  if (trainer_) return trainer_->parameters();
  if (parameters_) return *parameters_;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "there are no parameters yet", .remedy = "run a startup program first"});
}

train::TowerTrainer& Executor::trainer(const Program& program) {
  require_ready(program);
  if (trainer_ && program.body()->optimizer) return *trainer_;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "it does not train", .where = fmt::format("program '{}'", program.name())});
}

train::Evaluator& Executor::evaluator(const Program& program) {
  require_ready(program);
  if (trainer_) trainer_->wait();
  std::unique_ptr<train::Evaluator>& evaluator = evaluators_[program.body()];
  if (evaluator == nullptr) {
    const double smoothing = program.body()->fetchs.label_smoothing;
    train::OpenDevices devices = device_;
    devices.executor = program.body()->strategy.value_or(Strategy{}).executor();
    evaluator = std::make_unique<train::Evaluator>(
        train::EvaluatorOptions{.graph = program.body()->graph,
                                .devices = std::move(devices),
                                .loss =
                                    [smoothing](const at::Tensor& output, const at::Tensor& labels) {
                                      return nn::softmax_cross_entropy(output, labels, {.label_smoothing = smoothing});
                                    },
                                .accuracies = true},
        scope());
  }
  return *evaluator;
}

std::vector<data::Batch> Executor::batches_of(const Program& program, const Feed& feed) const {
  const Program::Body& body = *program.body();
  const std::string where = fmt::format("program '{}'", body.name);
  data::BatchForm form;
  for (const Variable& variable : body.feeds) form.push_back({variable.name, variable.dtype, variable.shape});
  data::check_batch({.tensors = feed}, form, where);
  const auto refuse = [&](const char* name, std::string problem, std::string expected, std::string actual) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                              .where = fmt::format("{}, tensor '{}'", where, name),
                                              .expected = std::move(expected),
                                              .actual = std::move(actual)});
  };
  at::Tensor images = feed["data"];
  const at::Tensor labels = feed["label"].squeeze(1);
  if (body.nhwc) images = images.permute({0, 3, 1, 2});
  if (images.size(0) != labels.size(0)) {
    refuse("label", "the feeds have different numbers of samples", std::to_string(images.size(0)),
           std::to_string(labels.size(0)));
  }
  if (images.size(0) == 0 || (body.optimizer && images.size(0) % places_ != 0)) {
    refuse("data", "the places cannot share its samples", fmt::format("a multiple of {}", places_),
           std::to_string(images.size(0)));
  }
  if (body.zeros > 0) {
    const int64_t channels = images.size(1) - body.zeros;
    if (images.narrow(1, channels, body.zeros).any().item<bool>()) {
      refuse("data", "its last channel pads, and is not zero", "zeros", "other numbers");
    }
    images = images.narrow(1, 0, channels);
  }
  const int64_t count = body.optimizer ? places_ : 1, each = images.size(0) / count;
  std::vector<data::Batch> batches;
  for (int64_t r = 0; r < count; ++r) {
    batches.push_back({.tensors = {{"images", images.narrow(0, r * each, each).contiguous()},
                                   {"labels", labels.narrow(0, r * each, each).contiguous()}},
                       .first_sample = r * each,
                       .after = source_ == nullptr ? data::Position{} : source_->position()});
  }
  return batches;
}

std::vector<at::Tensor> Executor::run(const Program& program, const Feed& feed,
                                      const std::vector<std::string>& fetch_list) {
  require_ready(program);
  for (const std::string& name : fetch_list) program.body()->fetchs[name];
  std::vector<data::Batch> batches = batches_of(program, feed);
  std::vector<at::Tensor> results;
  if (!program.body()->optimizer) {
    const auto last = std::make_shared<LastOutput>();
    data::SwitchedSource source(batches.front().samples(), 1);
    source.hand(std::move(batches));
    evaluator(program).measure(source, std::vector<std::shared_ptr<train::Metric>>{last}, 1);
    const double smoothing = program.body()->fetchs.label_smoothing;
    const at::Tensor loss = nn::softmax_cross_entropy(last->output, last->labels, {.label_smoothing = smoothing});
    for (const std::string& name : fetch_list) results.push_back(fetched(name, last->output, last->labels, loss));
    return results;
  }
  source_->hand(std::move(batches));
  const OnStep fetch = [&](const train::StepView& view) {
    for (const std::string& name : fetch_list) {
      std::vector<at::Tensor> parts;
      for (const train::ReplicaView& replica : view.replicas) {
        const at::Tensor output = replica.output();
        parts.push_back(fetched(name, output, replica.batch.labels().to(output.device()), replica.loss()).cpu());
      }
      results.push_back(at::stack(parts).mean(0));
    }
  };
  train_steps({.steps_per_epoch = 1}, fetch);
  if (results.size() != fetch_list.size()) throw Error(ErrorCode::kCancelled, "a stop was asked for");
  return results;
}

void Executor::train(const Program& program, std::shared_ptr<data::BatchSource> source, const train::LoopOptions& steps,
                     const OnStep& on_step) {
  trainer(program);
  source_->attach(std::move(source));
  hook_->steps_per_epoch = steps.steps_per_epoch;
  train_steps(steps, on_step);
}

int64_t Executor::begin_evaluation(const data::BatchSource& source) {
  const int64_t step = trainer_ ? trainer_->global_step() : 0;
  evaluations_->begin(device_.processes.get(), &source, step, scope());
  return step;
}

int64_t Executor::steps_per_epoch() const {
  return hook_ == nullptr ? 0 : hook_->steps_per_epoch;
}

void Executor::train_steps(const train::LoopOptions& steps, const OnStep& on_step) {
  struct Hooked {  // the trainer keeps the hook, which must not call a function of the caller's later
    ~Hooked() { on_step = {}; }
    OnStep& on_step;
  };
  const Hooked hooked{hook_->on_step = on_step};
  trainer_->train(steps);
}

std::vector<optim::LayerSparsity> prune_model(Executor& exe, const Program& program, const std::string& mask_algo) {
  const std::string& excluded = program.body()->excluded;
  return train::prune_training(
      exe.trainer(program),
      {.algorithm = optim::mask_algorithm_from_name(mask_algo),
       .exclude = excluded.empty() ? std::vector<std::string>{} : std::vector<std::string>{excluded}});
}

}  // namespace trainyard::frontends::program
