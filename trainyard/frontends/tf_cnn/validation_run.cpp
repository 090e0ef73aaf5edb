#include "trainyard/frontends/tf_cnn/validation_run.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/output/step_lines.h"
#include "trainyard/train/session/rank_evaluation.h"

namespace trainyard::frontends {

ValidationRun::ValidationRun(const PreparedRun& run, nn::ParameterSet& parameters, int64_t display_every, Print print,
                             std::function<void(int64_t, int64_t)> progress, const core::StopToken& stop)
    : batches_(run.plan.num_eval_batches),
      display_every_(std::max<int64_t>(1, display_every)),
      shows_top_5_(run.shows_top_5()),
      ranks_(run.device.processes),
      shares_(run.shares_evaluation()),
      print_(std::move(print)),
      progress_(std::move(progress)),
      measure_(task_of(run).make_measure(run)),
      source_(make_source(run, data::Subset::kValidation)),
      evaluator_({.graph = run.graph,
                  .devices = run.device,
                  .loss = measure_->loss(),
                  .labels = measure_->has_labels(),
                  .stops = [stop] { return stop.stop_requested(); },
                  .on_output = [measure = measure_.get()](const data::Batch& batch,
                                                          const at::Tensor& output) { measure->add(batch, output); },
                  .replicas = train::replica_thread_options(run.eval_replicas(), run.threads.intra_op_threads,
                                                            run.threads.replica),
                  .views = run.options.tta,
                  .quantization = run.quantization},
                 parameters) {}

train::Evaluation ValidationRun::run_part(int64_t batches) {
  return train::evaluate_over_ranks(
      ranks_.get(), [&] { return evaluator_.run(*source_, batches, /*may_be_empty=*/ranks_ != nullptr); }, shares_);
}

train::Evaluation ValidationRun::run() {
  core::apply_team_affinity();
  source_->seek({});
  measure_->begin();
  train::Evaluation all{.shows_top_5 = shows_top_5_};
  for (int64_t done = 0; done < batches_;) {
    if (progress_) progress_(done, batches_);
    const int64_t count = std::min(display_every_, batches_ - done);
    const train::Evaluation part = run_part(count);
    train::add_samples(part, all);
    all.seconds += part.seconds;
    all.input_seconds += part.input_seconds;
    done += count;
    if (count == display_every_) {
      print_(evaluation_step_line(done, static_cast<double>(part.samples) / part.seconds));
    }
  }
  const std::string lines = measure_->finish(all, shares_ ? ranks_.get() : nullptr);
  if (!lines.empty()) print_(lines);
  if (source_->bad_samples() > 0) {
    core::log::warning("{} bad samples in the evaluation's data; {} images were evaluated", source_->bad_samples(),
                       all.samples);
  }
  if (all.not_finite > 0 && !all.has_loss) {
    core::log::warning("the model's outputs for {} of {} images are not finite, and find nothing there", all.not_finite,
                       all.samples);
  } else if (all.not_finite > 0 || !std::isfinite(all.loss)) {
    core::log::warning(
        "the evaluation's loss is {}: the model's outputs for {} of {} images are not finite, which counts "
        "as wrong",
        std::isnan(all.loss) ? "NaN" : fmt::format("{}", all.loss), all.not_finite, all.samples);
  }
  return all;
}

}  // namespace trainyard::frontends
