#include <algorithm>
#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "trainyard/core/memory_state.h"
#include "trainyard/core/scoped_state.h"
#include "trainyard/core/thread.h"
#include "trainyard/nn/executor.h"
#include "trainyard/recipes/benchmark_evaluation.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/train/step_log.h"

namespace trainyard::recipes {
namespace {

constexpr std::string_view kModel = "model/";
// What this trainer and BenchmarkState save themselves; a training saved all else.
constexpr std::string_view kOwn[] = {kModel, "trainer/", "data/"};

// Steps that run the model forward on the next batch of each device, one device after the other.
class ForwardTrainer : public train::Trainer {
 public:
  explicit ForwardTrainer(const BenchmarkSettings& settings)
      : source_(make_source(settings, data::Subset::kTrain)), seed_(settings.seed) {
    executor_ =
        nn::make_executor("reference", settings.graph, {.mode = nn::Mode::kInference, .parameters = &parameters_});
    parameters_.allocate();
    parameters_.initialize(seed_);
  }

  void save(core::StateWriter& writer) const override {
    Trainer::save(writer);
    core::ScopedWriter model(writer, std::string(kModel));
    parameters_.save(model);
    for (const std::string& name : of_training_.names()) of_training_.copy(name, writer, name);
  }
  void load(const core::StateReader& reader) override {
    Trainer::load(reader);
    parameters_.load(core::ScopedReader(reader, std::string(kModel)));
    for (const std::string& name : reader.names()) {
      const bool own =
          std::any_of(std::begin(kOwn), std::end(kOwn), [&](auto prefix) { return name.starts_with(prefix); });
      if (!own) reader.copy(name, of_training_, name);
    }
  }

 protected:
  void run_step(train::StepView& view) override {
    using Clock = std::chrono::steady_clock;
    core::settle_team();
    const auto begin = Clock::now();
    const auto batches = source_->next();
    const auto read = Clock::now();
    for (const data::Batch& batch : batches) {
      executor_->forward(batch.images, {.seed = seed_, .step = global_step(), .first_sample = batch.first_sample});
    }
    const auto end = Clock::now();
    view.times.total = std::chrono::duration<double>(end - begin).count();
    view.times.input = std::chrono::duration<double>(read - begin).count();
    view.times.compute = view.times.total - view.times.input;
  }
  void end_training() override { source_->stop(); }

 private:
  std::shared_ptr<data::BatchSource> source_;
  uint64_t seed_;
  nn::ParameterSet parameters_;
  std::unique_ptr<nn::Executor> executor_;
  core::MemoryState of_training_;
};

std::shared_ptr<train::StepLog> make_step_log(const core::FlagValues& values, const BenchmarkSettings& settings,
                                              std::ostream& out) {
  train::StepLogOptions log;
  log.batch_size = settings.batch_size * settings.replicas;  // there are no micro-steps without an update
  log.display_every = values.integer("display_every");
  log.display_perf_ewma = values.optional_real("display_perf_ewma");
  log.warmup_steps = settings.plan.num_warmup_batches;
  log.loss_name = values.text("loss_type_to_report");
  log.loss = [](const train::StepView&) { return 0.0; };  // there is none, and upstream prints zero
  log.print = [&out](std::string_view lines) { out << lines << std::endl; };
  return std::make_shared<train::StepLog>(log);
}

}  // namespace

BenchmarkOutcome run_forward_only(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                  const core::StopToken& stop) {
  out << "Generating training model\n";
  ForwardTrainer trainer(settings);
  trainer.set_stop_token(stop);
  trainer.add(make_step_log(values, settings, out));
  if (!settings.train_dir.empty()) {
    const auto state = std::make_shared<BenchmarkState>(trainer, settings.label_names());
    resume(settings, *state);
    trainer.add(make_checkpoint_callback(values, settings, state));
  }
  const int64_t first_step = trainer.global_step();
  const int64_t steps = remaining_steps(settings, first_step);
  out << "Initializing graph\n";
  if (steps == 0) return BenchmarkOutcome::kFinished;
  trainer.train(
      {.steps_per_epoch = first_step + settings.plan.num_warmup_batches + steps, .starting_step = first_step});
  return stop.stop_requested() ? BenchmarkOutcome::kStoppedBySignal : BenchmarkOutcome::kFinished;
}

}  // namespace trainyard::recipes
