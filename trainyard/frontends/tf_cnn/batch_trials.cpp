#include "trainyard/frontends/tf_cnn/batch_trials.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/train/devices/batch_search.h"
#include "trainyard/train/devices/run_memory.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kTrialSteps = 1;        // slots of the optimizer and gradients are there before it
constexpr double kBatchTolerance = 0.02;  // the rest of 5 % is for what differs between a trial and the run

// Keeps the allocator within a limit, and messages that are no warnings out of the log, as long as it lives.
class TrialScope {
 public:
  explicit TrialScope(uint64_t limit)
      : limit_(core::cpu_allocator_statistics().limit_bytes), level_(core::log::set_level(core::log::Level::kWarning)) {
    if (level_ > core::log::Level::kWarning) core::log::set_level(level_);
    core::install_cpu_allocator(limit_ == 0 ? limit : std::min(limit, limit_));
  }
  ~TrialScope() {
    core::trim_cpu_allocator();
    core::install_cpu_allocator(limit_);
    core::log::set_level(level_);
  }
  TrialScope(const TrialScope&) = delete;
  TrialScope& operator=(const TrialScope&) = delete;

 private:
  const uint64_t limit_;
  const core::log::Level level_;
};

// Returns batches that cost as much memory as those of the run: of classes, black images.
std::shared_ptr<data::BatchSource> trial_batches(const PreparedRun& run, int64_t batch) {
  const ImageSourceOptions wanted{.batch_size = batch, .replicas = run.replicas};
  if (auto source = task_of(run).synthetic_source(run, wanted)) return source;
  std::vector<int64_t> sizes = {batch};
  for (const int64_t extent : run.graph.input_shape()) sizes.push_back(extent);
  return std::make_shared<data::FunctionSource>(
      [sizes, batch](const data::BatchPlace&) {
        return core::NamedTensors{{"images", at::zeros(sizes)}, {"labels", at::zeros({batch}, at::kLong)}};
      },
      data::FunctionSourceOptions{.replicas = run.replicas, .batch_size = batch});
}

}  // namespace

bool can_try_batches(const PreparedRun& run) {
  return run.trains() && run.device.accelerators.empty() && core::cpu_allocator_installed() &&
         run.own.dataset == nullptr && run.own.model == nullptr;
}

TriedBatch try_batches(const PreparedRun& run, const BatchTrials& trials) {
  core::trim_cpu_allocator();
  // Memory that is no tensor: code, libraries, stacks.
  const int64_t others =
      std::max<int64_t>(0, train::resident_bytes() - static_cast<int64_t>(core::cpu_allocator_statistics().held_bytes));
  const TrialScope scope(static_cast<uint64_t>(std::max<int64_t>(1, trials.budget - others)));
  TriedBatch result;
  const auto fits = [&](int64_t batch) {
    ++result.trials;
    int64_t bytes = 0;
    try {
      const int64_t untouched = batch * trials.untouched_per_image;
      const at::Tensor reserved = at::empty({untouched}, at::kByte);
      train::TowerTrainerOptions options = trials.make_trainer();
      options.on_nan = train::OnNan::kIgnore;  // the images are black
      train::TowerTrainer trainer(std::move(options), trial_batches(run, batch));
      trainer.train({.steps_per_epoch = kTrialSteps});
      bytes = train::resident_bytes() + untouched;  // freed memory is still held
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNoSpace) throw;
      bytes = trials.budget + 1;
    }
    core::trim_cpu_allocator();
    if (bytes > trials.budget) return false;
    if (batch > result.batch) {
      result.batch = batch;
      result.bytes = bytes;
    }
    return true;
  };
  const train::MeasuredBatch found = train::search_measured_batch(fits, trials.first, trials.most, kBatchTolerance);
  result.beyond = found.beyond;
  return result;
}

}  // namespace trainyard::frontends
