#include "trainyard/frontends/tf_cnn/auto_batch.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/tf_cnn/batch_trials.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/train/devices/batch_search.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/step/forward_trainer.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kMostImages = int64_t{1} << 20;      // as --batch_size
constexpr int64_t kLeastStepsOfAnEpoch = 16;           // of a training
constexpr int64_t kProgramBytes = int64_t{512} << 20;  // code, libraries, stacks, decoders

std::string mebibytes(int64_t bytes) {
  return fmt::format("{} MiB", bytes >> 20);
}

struct Budget {
  int64_t bytes = 0;
  std::string origin;  // for people
};

Budget budget_of(const PreparedRun& run) {
  if (run.options.batch_memory_bytes) return {*run.options.batch_memory_bytes, "of --batch_size_memory_mib"};
  train::MemoryBudget budget;
  std::string whose = "the machine's memory";
  if (const auto accelerator = run.device.accelerator()) {
    const nn::DeviceMemory memory = accelerator->memory();
    budget = train::usual_memory_budget(memory.total, memory.limit, memory.free + memory.held - memory.used);
    whose = "the GPU's memory";
  } else {
    std::optional<int64_t> allowed;
    if (const auto limit = core::cgroup_limits().memory_bytes) allowed = static_cast<int64_t>(*limit);
    budget = train::usual_memory_budget(static_cast<int64_t>(core::memory_info_bytes("MemTotal")), allowed,
                                        static_cast<int64_t>(core::memory_info_bytes("MemAvailable")));
    if (allowed) whose = "the memory that control groups allow";
  }
  return {budget.bytes, budget.free_only ? "that are free" : "of three quarters of " + whose};
}

nn::KernelOptions planned_kernels(nn::KernelOptions kernels) {
  // Measuring would run convolutions of each batch that is tried.
  if (kernels.convolutions == nn::ConvolutionPolicy::kAuto) kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  kernels.choices = nullptr;
  return kernels;
}

int64_t executor_bytes(const std::optional<nn::ExecutorMemory>& memory, const PreparedRun& run) {
  if (memory) return memory->activations + memory->packed_weights;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "--batch_size=auto needs an executor that plans its memory",
                     .where = run.model->name,
                     .actual = "the executor " + run.device.executor,
                     .remedy = "pass a number, or use --executor=cpu"});
}

// Returns the options of a trainer of this process alone.
train::TowerTrainerOptions planned_trainer(const PreparedRun& run) {
  train::TowerTrainerOptions options = make_trainer_options(run);
  options.devices.kernels = planned_kernels(options.devices.kernels);
  options.start = nullptr;
  if (run.device.processes != nullptr) {  // no process is contacted for a plan: the exchange needs no memory of its own
    options.devices.make_communicators = nullptr;
    options.devices.make_gradient_communicators = nullptr;
    options.devices.processes = nullptr;
    options.exchange.variable_update = "replicated";
    options.exchange.compression = {};
  }
  return options;
}

// The memory of batches of a size, in addition to what is the same for each size.
class BatchBytes {
 public:
  explicit BatchBytes(const PreparedRun& run) : run_(run) {
    if (run.trains()) make_trainer();
    if (run.mode() != RunMode::kTraining) make_forward();
  }

  // Returns what a trial of the training does not allocate: batches that wait, and the evaluations' activations.
  int64_t beyond_training(int64_t batch) {
    // Synthetic batches do not wait: they are made once.
    const int64_t held = run_.synthetic() ? 0 : run_.input.prefetch_batches + batches_in_work() - devices();
    return held * batch_bytes(batch) + (forward_ ? forward_bytes(batch) : 0);
  }

  int64_t of(int64_t batch) {
    int64_t bytes = run_.device.accelerators.empty() ? kProgramBytes : 0;
    bytes += input_bytes(batch);
    if (trainer_) bytes += training_bytes(batch);
    if (forward_) bytes += forward_bytes(batch);
    return bytes;
  }

 private:
  int devices() const { return run_.device.accelerators.empty() ? run_.replicas : 1; }  // that share one memory

  void make_trainer() {
    const auto no_batches = [](const data::BatchPlace&) { return core::NamedTensors(); };
    trainer_ = std::make_unique<train::TowerTrainer>(
        planned_trainer(run_),
        std::make_shared<data::FunctionSource>(
            no_batches, data::FunctionSourceOptions{.replicas = run_.replicas, .batch_size = 1}));
  }

  void make_forward() {
    train::OpenDevices devices = run_.device;
    devices.kernels = planned_kernels(devices.kernels);
    forward_ = std::make_unique<train::ForwardTrainer>(
        train::ForwardOptions{.graph = run_.graph,
                              .devices = std::move(devices),
                              .frozen = run_.mode() == RunMode::kForwardOnly && run_.options.freeze_when_forward_only,
                              .seed = run_.input.seed},
        nullptr);
  }

  int64_t batch_bytes(int64_t batch) const {
    const nn::Shape& shape = run_.graph.input_shape();
    int64_t image = sizeof(float);
    for (const int64_t extent : shape) image *= extent;
    return batch * image;
  }

  // All micro-steps of a step are taken from the input before it begins. Synthetic ones are the same batch, and a GPU
  // has one after the other.
  int64_t batches_in_work() const {
    const bool at_once = !run_.synthetic() && run_.device.accelerators.empty();
    return int64_t{devices()} * (at_once ? run_.micro_steps() : 1);
  }

  // The batches in work and those that wait; on a GPU, those that are there.
  int64_t input_bytes(int64_t batch) const {
    const int64_t waiting = run_.device.accelerators.empty() ? run_.input.prefetch_batches : 1;
    return batch_bytes(batch) * (batches_in_work() + waiting);
  }

  int64_t estimate(int64_t batch, bool training) const {
    const auto element = static_cast<int64_t>(c10::elementSize(run_.device.dtype));
    return batch * nn::activation_bytes_per_image(run_.graph, element, training);
  }

  int64_t training_bytes(int64_t batch) {
    if (!run_.device.accelerators.empty()) {
      if (!fixed_) {
        train::RunMemory memory = train::plan_memory(*trainer_, 1);
        memory.executor = nn::ExecutorMemory{};
        fixed_ = memory.total() / run_.replicas;
      }
      return *fixed_ + estimate(batch, true);
    }
    train::RunMemory memory = train::plan_memory(*trainer_, batch);
    const int64_t executors = executor_bytes(memory.executor, run_);
    memory.executor = nn::ExecutorMemory{};
    return memory.total() + executors;
  }

  int64_t forward_bytes(int64_t batch) {
    const int64_t images =
        run_.options.eval_batch_size > 0 && run_.mode() != RunMode::kForwardOnly ? run_.options.eval_batch_size : batch;
    train::RunMemory memory;
    if (!trainer_) memory.add_constant(forward_->parameters(), false);
    if (!run_.device.accelerators.empty()) return memory.total() + estimate(images, false);
    return memory.total() + devices() * executor_bytes(forward_->prepare(images), run_);
  }

  const PreparedRun& run_;
  std::unique_ptr<train::TowerTrainer> trainer_;
  std::unique_ptr<train::ForwardTrainer> forward_;  // evaluations, or forward passes alone
  std::optional<int64_t> fixed_;
};

// The most images a device that make sense for the data, whatever there is memory for: so few that an epoch still has
// some steps, and of evaluations and forward passes, all at once. Synthetic images have no end.
int64_t most_images(const PreparedRun& run) {
  if (run.synthetic()) return kMostImages;
  const int64_t devices = static_cast<int64_t>(run.micro_steps()) * run.total_replicas();
  const int64_t images = run.trains()                         ? run.train_examples / kLeastStepsOfAnEpoch
                         : run.mode() == RunMode::kEvaluation ? run.validation_examples
                                                              : run.train_examples;
  return std::clamp<int64_t>(images / devices, 1, kMostImages);
}

// Tries batches around the planned one. The plan is of tensors, and estimates what else a process takes. Ends `bytes`,
// whose parameters would take a part of the memory.
int64_t measured_batch(const PreparedRun& run, std::optional<BatchBytes>& bytes, const Budget& budget, int64_t planned,
                       int64_t most) {
  constexpr double kPlanBound = 1.25;  // a plan that is too high by more than this has a mistake
  const auto bound = static_cast<int64_t>(kPlanBound * static_cast<double>(budget.bytes)) + kProgramBytes;
  const train::FoundBatch bounded =
      train::search_largest_batch([&](int64_t batch) { return bytes->of(batch); }, bound, most);
  const int64_t untouched = (bytes->beyond_training(planned) + planned - 1) / planned;
  bytes.reset();
  core::log::info("batch_size=auto: trying sizes around {} on real memory", planned);
  const TriedBatch tried = try_batches(run, {.make_trainer = [&run] { return planned_trainer(run); },
                                             .untouched_per_image = untouched,
                                             .first = std::max<int64_t>(1, planned / 2),
                                             .most = bounded.batch,
                                             .budget = budget.bytes});
  core::log::info("batch_size=auto: {} images a device took {} of {} in a step{} ({} sizes were tried)", tried.batch,
                  mebibytes(tried.bytes), mebibytes(budget.bytes),
                  tried.beyond == 0 ? "" : fmt::format("; {} do not fit", tried.beyond), tried.trials);
  return tried.batch;
}

}  // namespace

int64_t find_batch_size(const PreparedRun& run) {
  const nn::AcceleratorScope on_device = run.device.use();
  const Budget budget = budget_of(run);
  std::optional<BatchBytes> bytes(run);
  const int64_t most = most_images(run);
  const train::FoundBatch found =
      train::search_largest_batch([&](int64_t batch) { return bytes->of(batch); }, budget.bytes, most);
  std::string beyond = fmt::format("no more than {} are tried", most);
  if (found.bytes_beyond) {
    beyond = fmt::format("{} would need {}", found.batch + 1, mebibytes(*found.bytes_beyond));
  } else if (most < kMostImages) {
    beyond = fmt::format("more would be too few steps of {} images",
                         run.mode() == RunMode::kEvaluation ? run.validation_examples : run.train_examples);
  }
  core::log::info("batch_size=auto: {} images a device need {} of {} {}; {} ({} sizes were planned)", found.batch,
                  mebibytes(found.bytes), mebibytes(budget.bytes), budget.origin, beyond, found.asked);
  if (!can_try_batches(run)) return found.batch;
  return measured_batch(run, bytes, budget, found.batch, most);
}

void require_memory(const PreparedRun& run) {
  if (!run.device.accelerators.empty() || run.options.batch_size == kLargestBatch) return;
  int64_t limit = static_cast<int64_t>(core::memory_info_bytes("MemTotal"));
  std::string whose = "the machine has";
  if (const auto allowed = core::cgroup_limits().memory_bytes; allowed && static_cast<int64_t>(*allowed) < limit) {
    limit = static_cast<int64_t>(*allowed);
    whose = "control groups allow";
  }
  // The estimate, which costs nothing, counts all activations as if none could be freed. Few runs need the plan.
  const auto element = static_cast<int64_t>(c10::elementSize(run.device.dtype));
  const int64_t image = nn::activation_bytes_per_image(run.graph, element, true);
  if (limit <= 0 || image <= limit / (2 * run.batch_size * run.replicas)) return;
  std::optional<train::FoundBatch> fits;
  int64_t needed = 0;
  try {
    BatchBytes bytes(run);
    // Maps beyond all memory may be beyond what oneDNN can prepare, too: AVX-512 of a million images, for one.
    const auto planned = [&](int64_t batch) {
      if (batch == run.batch_size && needed > 0) return needed;  // a plan takes seconds
      try {
        return bytes.of(batch);
      } catch (const core::Error& error) {
        if (error.code() != core::ErrorCode::kInternal || image <= limit / (batch * run.replicas)) throw;
        return std::numeric_limits<int64_t>::max();
      }
    };
    needed = planned(run.batch_size);
    if (needed <= limit) return;
    fits = train::search_largest_batch(planned, limit / 4 * 3, run.batch_size);
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kUnsupported) return;  // an executor without a plan
    if (error.code() != core::ErrorCode::kNoSpace) throw;
  }
  throw core::Error(core::ErrorCode::kNoSpace,
                    {.problem = fmt::format("a batch of {} images does not fit into memory", run.batch_size),
                     .where = run.model->name,
                     .expected = fmt::format("at most {}, which {}", mebibytes(limit), whose),
                     .actual = needed > 0 && needed < std::numeric_limits<int64_t>::max()
                                   ? fmt::format("{} by plan", mebibytes(needed))
                                   : "more",
                     .remedy = fits ? fmt::format("pass --batch_size={} or less", fits->batch)
                                    : "use a smaller model or smaller images"});
}

}  // namespace trainyard::frontends
