#include "trainyard/frontends/tf_cnn/output/step_log.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"

namespace trainyard::frontends {

void print_to_stdout(std::string_view lines) {
  fmt::print("{}\n", lines);
  std::fflush(stdout);
}

void StepLogOptions::validate() const {
  const auto require = [](bool good, const char* what, const std::string& actual) {
    if (!good) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = what, .actual = actual});
  };
  require(batch_size > 0, "batch_size must be positive", fmt::format("{}", batch_size));
  require(num_workers > 0, "num_workers must be positive", fmt::format("{}", num_workers));
  require(display_every > 0, "display_every must be positive", fmt::format("{}", display_every));
  require(warmup_steps >= 0, "warmup_steps must not be negative", fmt::format("{}", warmup_steps));
  const double weight = display_perf_ewma.value_or(0);
  require(weight >= 0 && weight <= 1, "display_perf_ewma must be in [0, 1]", fmt::format("{}", weight));
}

bool StepLogOptions::shows(int64_t local_step, int64_t global_step) const {
  if (local_step <= 0) return local_step == 0;
  return displayed ? displayed->shows(global_step) : (local_step + 1) % display_every == 0;
}

StepLog::StepLog(StepLogOptions options) : options_(std::move(options)), local_steps_(options_.warmup_steps) {
  options_.validate();
  if (!options_.loss) options_.loss = train::mean_loss;
  if (!options_.clock) options_.clock = core::steady_seconds;
}

void StepLog::before_train(train::Trainer& trainer) {
  local_steps_.begin(trainer);
  step_seconds_.clear();
  started_at_.reset();
  ended_at_.reset();
  steps_ = 0;
  in_step_ = false;
  if (options_.print_warmup) options_.print("Running warm up");
}

void StepLog::before_step(train::Trainer& trainer) {
  in_step_ = true;
  if (local_steps_.next(trainer) != 0) return;
  if (options_.print_warmup) options_.print("Done warm up");
  if (options_.before_timed) options_.before_timed();
  options_.print(step_header(options_.loss_name, static_cast<bool>(options_.accuracies), options_.top_5) +
                 options_.more_columns);
  started_at_ = options_.clock();
}

void StepLog::after_step(train::Trainer& trainer, const train::StepView& view) {
  in_step_ = false;
  const int64_t local_step = local_steps_.of(view);
  if (local_step < 0) return;
  steps_ = local_step + 1;
  step_seconds_.push_back(view.times.total);
  if (!options_.shows(local_step, trainer.global_step())) return;
  StepReport report{.local_step = options_.displayed ? trainer.global_step() : steps_,
                    .global_step = trainer.global_step()};
  // An accelerator is some steps behind, and reading waits for them: that is their time, not the time between steps.
  const double before = view.times.on_accelerator ? options_.clock() : 0;
  report.loss = options_.loss(view);
  if (options_.accuracies) {
    report.accuracies = options_.accuracies(view);
    report.accuracies->shows_top_5 = options_.top_5;
  }
  if (view.times.on_accelerator) step_seconds_.back() += options_.clock() - before;
  report.speed = speed_statistics(static_cast<double>(options_.batch_size), step_seconds_, options_.display_perf_ewma);
  options_.print(step_line(report.local_step, report.speed, report.loss, report.accuracies) +
                 (options_.more_cells ? options_.more_cells() : ""));
  if (options_.on_line) options_.on_line(report);
}

void StepLog::after_train(train::Trainer&) {
  // Twice, or after a step that threw: nothing to say.
  if (ended_at_ || in_step_) return;
  ended_at_ = options_.clock();
  if (options_.print_total) options_.print(total_lines(images_per_second()));
  if (options_.on_total) options_.on_total(images_per_second());
}

double StepLog::elapsed_seconds() const {
  if (!started_at_) return 0;
  return (ended_at_ ? *ended_at_ : options_.clock()) - *started_at_;
}

double StepLog::images_per_second() const {
  if (options_.all_images_per_second) return options_.all_images_per_second();
  const double elapsed = elapsed_seconds();
  return elapsed <= 0 ? 0 : static_cast<double>(options_.num_workers * steps_ * options_.batch_size) / elapsed;
}

}  // namespace trainyard::frontends
