#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/loop/local_steps.h"
#include "trainyard/train/loop/time_shares.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {
namespace {

// Returns fp32 numbers in the host's memory. They are those of `held`, which is what the tensor needs to live.
std::span<const float> host_floats(const at::Tensor& tensor, at::Tensor& held) {
  held = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  return {held.const_data_ptr<float>(), static_cast<size_t>(held.numel())};
}

at::Tensor gradient_of(const ReplicaView& replica, nn::ParameterId id) {
  const at::Tensor gradient = replica.parameters->gradient(id);
  return replica.inverse_loss_scale.defined() ? gradient.mul(replica.inverse_loss_scale) : gradient;
}

}  // namespace

void SummaryOptions::validate() const {
  if (every_steps < 0 || batch_size <= 0 || examples_per_epoch < 0 || warmup_steps < 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "summaries need a positive batch size and no negative counts",
                       .actual = fmt::format("batch_size {}, every {} steps, {} examples, {} steps of warm-up",
                                             batch_size, every_steps, examples_per_epoch, warmup_steps)});
  }
}

SummaryCallback::SummaryCallback(SummaryOptions options)
    : options_(std::move(options)),
      local_steps_(std::make_shared<LocalSteps>(options_.warmup_steps)),
      times_(std::make_shared<TimeShares>()) {
  options_.validate();
  if (!options_.wall_clock) options_.wall_clock = system_wall_clock;
}

void SummaryCallback::before_train(Trainer& trainer) {
  local_steps_->begin(trainer);
  times_->reset();
}

void SummaryCallback::before_step(Trainer&) {
  step_began_ = core::steady_seconds();
}

// An accelerator is some steps behind, and the callback that reads a value first waits for them, be it this one or one
// before it.
void SummaryCallback::add_late_compute(const StepView& view) {
  if (!view.times.on_accelerator || !step_began_) return;
  times_->add_late_compute(std::max(0.0, core::steady_seconds() - *step_began_ - view.times.total));
}

void SummaryCallback::after_step(Trainer& trainer, const StepView& view) {
  times_->add(view.times);
  const bool due = options_.due ? options_.due(trainer.global_step())
                                : options_.every_steps > 0 && (local_steps_->of(view) + 1) % options_.every_steps == 0;
  if (!due) return add_late_compute(view);
  Scalars scalars{.global_step = trainer.global_step(),
                  .epoch = epoch_of(trainer, options_.batch_size, options_.examples_per_epoch),
                  .wall_time = options_.wall_clock(),
                  .phase = "train",
                  .values = {}};
  for (const auto& [name, read] : options_.values) scalars.values.emplace_back(name, read(view));
  add_late_compute(view);
  const double images = static_cast<double>(times_->steps() * options_.batch_size);
  const StepTimes shares = times_->shares();
  scalars.values.emplace_back("images_per_second", times_->sum().total > 0 ? images / times_->sum().total : 0);
  scalars.values.emplace_back("input_share", shares.input);
  scalars.values.emplace_back("compute_share", shares.compute);
  if (!shares.on_accelerator) {
    scalars.values.emplace_back("communication_share", shares.communication);
    scalars.values.emplace_back("waiting_share", shares.waiting);
    scalars.values.emplace_back("update_share", shares.update);
  }
  trainer.monitors().write(scalars);
  write_pictures(trainer, view, scalars.wall_time);
  if (options_.histograms != SummaryHistograms::kNone) write_histograms(trainer, view, scalars.wall_time);
  times_->reset();
}

void SummaryCallback::write_pictures(Trainer& trainer, const StepView& view, double wall_time) const {
  Images images{.global_step = trainer.global_step(), .wall_time = wall_time, .values = {}};
  for (const auto& [name, make] : options_.pictures) {
    if (at::Tensor picture = make(view); picture.defined()) images.values.emplace_back(name, std::move(picture));
  }
  if (!images.values.empty()) trainer.monitors().write_images(images);
}

void SummaryCallback::write_histograms(Trainer& trainer, const StepView& view, double wall_time) const {
  const ReplicaView& replica = view.replicas.at(0);
  const nn::ParameterSet& parameters = *replica.parameters;
  const bool all = options_.histograms == SummaryHistograms::kAll;
  Histograms histograms{.global_step = trainer.global_step(), .wall_time = wall_time, .values = {}};
  formats::HistogramCounter logarithms;
  at::Tensor held;
  for (const nn::Segment& segment : parameters.segments()) {
    const std::string& name = segment.spec.name;
    const nn::ParameterId id = *parameters.find(name);
    const std::span<const float> gradients = host_floats(gradient_of(replica, id), held);
    for (const float gradient : gradients) {
      if (gradient != 0) logarithms.add(std::log(std::abs(double{gradient})));
    }
    if (!all) continue;
    histograms.values.emplace_back(name + "/gradients", formats::make_histogram(gradients));
    histograms.values.emplace_back(name, formats::make_histogram(host_floats(parameters.value(id), held)));
  }
  histograms.values.emplace_back("log_gradients", logarithms.histogram());
  trainer.monitors().write_histograms(histograms);
}

void SummaryCallback::after_train(Trainer& trainer) {
  trainer.monitors().flush();
}

}  // namespace trainyard::train
