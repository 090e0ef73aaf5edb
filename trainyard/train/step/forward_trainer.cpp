#include "trainyard/train/step/forward_trainer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/clone.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/process_group/state_broadcast.h"
#include "trainyard/train/devices/device_room.h"

namespace trainyard::train {

namespace {
constexpr std::string_view kSavedModel = "model/";
constexpr std::string_view kSavedKernels = "kernels/";
// What this trainer saves itself, or drops: an evaluation that a training lacks is not one of these steps'.
constexpr std::string_view kSavedHere[] = {kSavedModel, kSavedKernels, "trainer/", "callback/cut_evaluation/"};
}  // namespace

ForwardTrainer::ForwardTrainer(ForwardOptions options, std::shared_ptr<data::BatchSource> source)
    : options_(std::move(options)), source_(std::move(source)) {
  if (options_.devices.kernels.choices == nullptr)
    options_.devices.kernels.choices = std::make_shared<nn::KernelChoices>();
  const at::Device device = options_.devices.device();
  parameters_ = nn::ParameterSet({.device = device});
  const size_t devices = std::max<size_t>(1, options_.replicas.size());
  if (devices > 1 && options_.devices.accelerator() != nullptr) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "forward passes on accelerators have one device", .actual = std::to_string(devices)});
  }
  const auto make_executor = [&](size_t r) {
    executors_.push_back(nn::make_executor(options_.devices.executor, nn::main_output_graph(options_.graph),
                                           {.device = device,
                                            .dtype = options_.devices.dtype,
                                            .mode = nn::Mode::kInference,
                                            .frozen = options_.frozen,
                                            .kernels = options_.devices.kernels,
                                            .replica = static_cast<int>(r),
                                            .parameters = &parameters_,
                                            .quantization = options_.quantization}));
  };
  make_executor(0);  // which says what parameters there are
  if (!options_.replicas.empty()) {
    threads_ = std::make_unique<ReplicaThreads>(options_.replicas, [](const core::Error&) {});
  }
  parameters_.allocate();
  parameters_.initialize(options_.seed);
  for (size_t r = 1; r < devices; ++r) make_executor(r);
  if (options_.start) options_.start(parameters_);
  take_parameters_of_first();
}

void ForwardTrainer::take_parameters_of_first() {
  parallel::ProcessGroup* const ranks = options_.devices.processes.get();
  if (ranks == nullptr) return;
  core::MemoryState own;
  if (ranks->rank() == 0) parameters_.save(own);
  const auto first = parallel::broadcast_state(*ranks, ranks->rank() == 0 ? &own : nullptr);
  if (first != nullptr) parameters_.load(*first);
}

std::optional<nn::ExecutorMemory> ForwardTrainer::prepare(int64_t batch) {
  return executors_.front()->prepare(batch);
}

void ForwardTrainer::record(StepRecorder* recorder) {
  recorder_ = recorder;
  for (size_t r = 0; r < executors_.size(); ++r) {
    executors_[r]->set_observer(recorder == nullptr ? nullptr : &recorder->node_observer(static_cast<int>(r)));
  }
}

void ForwardTrainer::save(core::StateWriter& writer) const {
  Trainer::save(writer);
  core::ScopedWriter model(writer, std::string(kSavedModel));
  parameters_.save(model);
  core::ScopedWriter kernels(writer, std::string(kSavedKernels));
  options_.devices.kernels.choices->save(kernels);
  for (const std::string& name : of_training_.names()) of_training_.copy(name, writer, name);
}

void ForwardTrainer::load(const core::StateReader& reader) {
  Trainer::load(reader);
  parameters_.load(core::ScopedReader(reader, std::string(kSavedModel)));
  options_.devices.kernels.choices->load(core::ScopedReader(reader, std::string(kSavedKernels)));
  for (const std::string& name : reader.names()) {
    const auto begins_name = [&](std::string_view prefix) { return name.starts_with(prefix); };
    const bool own = std::any_of(std::begin(kSavedHere), std::end(kSavedHere), begins_name) ||
                     std::any_of(options_.saved_by_caller.begin(), options_.saved_by_caller.end(), begins_name);
    if (!own) reader.copy(name, of_training_, name);
  }
}

at::Tensor ForwardTrainer::run_forward(const data::Batch& batch, nn::Executor& executor) {
  at::Tensor output;
  const auto work = [&] {
    output = executor.forward(batch.images(),
                              {.seed = options_.seed, .step = global_step(), .first_sample = batch.first_sample});
  };
  if (options_.devices.accelerator() == nullptr) {
    work();
    return output;
  }
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(options_.devices.dtype));
  run_or_explain(*options_.devices.accelerator(),
                 {.batch = batch.images().size(0),
                  .fixed_bytes = static_cast<int64_t>(parameters_.values().nbytes()),
                  .bytes_per_image = nn::activation_bytes_per_image(options_.graph, element_bytes, /*training=*/false)},
                 work);
  options_.devices.accelerator()->wait();
  return output;
}

void ForwardTrainer::run_step(StepView& view) {
  core::apply_team_affinity();
  using Clock = std::chrono::steady_clock;
  if (recorder_ != nullptr) recorder_->begin_step(view.global_step);
  ThreadRecord* const own = recorder_ == nullptr ? nullptr : &recorder_->trainer();
  const RecordedPart step(own, StepPart::kStep);
  const auto begin = Clock::now();
  std::vector<data::Batch> batches;
  {
    const RecordedPart input(own, StepPart::kInput);
    batches = source_->next();
  }
  const auto read = Clock::now();
  batch_seconds_.assign(batches.size(), 0);
  if (options_.keep_outputs) view.replicas.resize(batches.size());
  const auto run_batch = [&](size_t i, size_t device) {
    const data::Batch& batch = batches[i];
    ThreadRecord* const replica = recorder_ == nullptr ? nullptr : &recorder_->replica(static_cast<int>(device));
    const RecordedPart forward(replica, StepPart::kForward);
    const auto begin_batch = Clock::now();
    const at::Tensor output = run_forward(batch, *executors_[device]);
    batch_seconds_[i] = core::seconds_since(begin_batch);
    if (!options_.keep_outputs) return;
    // The next batch is computed in the same memory.
    view.replicas[i] = {.batch = batch, .outputs = {{"logits", output.clone()}}};
    view.replicas[i].batch.tensors.set("labels", batch.labels().to(output.device()));
  };
  if (threads_ == nullptr) {
    for (size_t i = 0; i < batches.size(); ++i) run_batch(i, 0);
  } else {
    threads_->run([&](int device) {
      const auto first = static_cast<size_t>(device);
      for (size_t i = first; i < batches.size(); i += executors_.size()) run_batch(i, first);
    });
  }
  const auto end = Clock::now();
  view.times.total = core::seconds_between(begin, end);
  view.times.input = core::seconds_between(begin, read);
  view.times.compute = view.times.total - view.times.input;
}

}  // namespace trainyard::train
