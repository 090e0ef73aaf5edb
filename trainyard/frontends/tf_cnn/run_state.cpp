#include "trainyard/frontends/tf_cnn/run_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/frontends/tf_cnn/trainer_defaults.h"
#include "trainyard/optim/flags.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/evaluation/image_views.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {

train::CheckpointIdentity identity_of(const PreparedRun& run) {
  return {.model = run.model->name, .dataset = run.input.dataset, .num_classes = run.num_classes};
}

namespace {

std::optional<bool> weights_of(const PreparedRun& run) {
  const AverageOptions& average = run.options.average;
  if (!average.ema_decay && !average.swa_start_epoch && !run.options.update.is_schedule_free()) return std::nullopt;
  return average.averaged_weights.value_or(true);
}

std::optional<train::SavedFineTuning> fine_tuning_of(const PreparedRun& run) {
  if (!run.options.fine_tune) return std::nullopt;
  const FineTuneOptions& chosen = *run.options.fine_tune;
  return train::SavedFineTuning{
      .batch_size = chosen.batch_size, .num_epochs = chosen.num_epochs, .early_stop = chosen.early_stop};
}

}  // namespace

std::shared_ptr<SavedRun> make_saved_run(train::Trainer& trainer, const PreparedRun& run) {
  return std::make_shared<SavedRun>(
      trainer, SavedRunOptions{.identity = identity_of(run),
                               .input = run.input.transform,
                               .preprocessor = run.input.preprocessor,
                               .classes = run.classes,
                               .data_dir = run.input.data_dir,
                               .class_count = run.class_count,
                               .division = run.input.division,
                               .label_sets = run.label_sets(),
                               .trains = run.mode() != RunMode::kForwardOnly,
                               .tells_input = !run.own_dialect(),
                               .averaged_weights = weights_of(run),
                               .batch_size = run.options.batch_size == kLargestBatch ? run.batch_size : 0,
                               .fine_tuning = fine_tuning_of(run),
                               .optimizer = optim::optimizer_of_flag(run.options.update.optimizer)});
}

namespace {

void set_train_dir(PreparedRun& run, const std::string& directory) {
  run.options.saving.train_dir = directory;
  // The run's record says where it is.
  for (auto& [name, value] : run.options.flags.all) {
    if (name == "train_dir") value = directory;
  }
}

void settle_own_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  const std::optional<train::ExistingRun> wanted = run.options.saving.existing_run;
  SavingOptions& saving = run.options.saving;
  if (run.trains() && saving.train_dir.empty() && !saving.new_runs_in.empty()) {
    set_train_dir(run, train::make_new_run_directory(saving.new_runs_in, run.model->name));
    core::log::info("the run is in {} (--train_dir names another folder, --train_dir= saves nothing)", run.train_dir());
    return;
  }
  if (wanted == train::ExistingRun::kKeep || !run.trains() || run.train_dir().empty()) return;
  if (!train::holds_run(run.train_dir())) return;
  train::ExistingRun existing = wanted.value_or(train::ExistingRun::kKeep);
  if (!wanted && train::can_ask()) existing = train::ask_existing_run(run.train_dir(), out, stop);
  set_train_dir(run, train::settle_existing_run(run.train_dir(), existing, train::system_wall_clock()));
}

}  // namespace

void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  parallel::ProcessGroup* const processes = run.device.processes.get();
  if (processes == nullptr) return settle_own_train_dir(run, out, stop);
  parallel::on_first(*processes, "what becomes of an existing run", [&] {
    settle_own_train_dir(run, out, stop);
    return std::string();
  });
}

train::SessionOptions session_options(const PreparedRun& run, std::shared_ptr<SavedRun> state,
                                      const std::optional<train::EarlyStop>& early_stop) {
  train::SessionOptions session{.directory = run.train_dir(),
                                .identity = identity_of(run),
                                .ranks = run.device.processes,
                                .own_pace = run.own_pace(),
                                .max_to_keep = run.options.saving.max_ckpts_to_keep,
                                .early_stop = early_stop};
  session.resume =
      resume_options(*state, run.graph, "another --train_dir, with --weights=FILE to start from an export of this one");
  session.resume.damaged = damaged_checkpoints(run, run.device.is_chief());
  session.state = std::move(state);
  if (early_stop) {
    const std::string& metric = run.options.early_stop_metric;
    session.compare = read_best_by(metric.empty() ? run.options.saving.keep_best : metric,
                                   metric.empty() ? "keep_best" : "early_stop_metric")
                          .value_or(train::best_by(train::BestMetric::kTop1));
  }
  return session;
}

train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes) {
  if (!run.options.saving.ignore_damaged_checkpoints) return train::DamagedCheckpoints::kStop;
  return writes ? train::DamagedCheckpoints::kSetAside : train::DamagedCheckpoints::kPassOver;
}

void set_checkpoint_steps(const PreparedRun& run, train::SessionSteps& steps) {
  auto& options = steps.checkpoints.emplace();
  options.save_steps = run.options.saving.save_model_steps.value_or(0);
  options.save_seconds = static_cast<double>(run.options.saving.save_model_secs);
  // At their own pace, workers pass an epoch's end between two steps of the chief.
  if (run.options.saving.save_each_epoch && !run.own_pace()) {
    options.due_is_each_epoch = true;
    options.due = [images = run.examples_per_global_step(), epoch = run.train_examples](int64_t step) {
      return completes_epoch(step, images, epoch);
    };
  }
  options.warmup_steps = run.plan.num_warmup_batches;
  options.over_all_runs = run.own_dialect() && !run.own_pace() && run.mode() != RunMode::kForwardOnly;
  // A run that continues after a NaN ends normally, with the good checkpoints that it has.
  options.non_finite_is_error = run.options.update.on_nan == train::OnNan::kStop;
}

std::optional<train::BestBy> read_best_by(const std::string& keep_best, std::string_view flag) {
  if (keep_best == "none") return std::nullopt;
  if (keep_best == "loss") return train::best_by(train::BestMetric::kLoss);
  for (const char* accuracy : {"top_1", "top_5"}) {
    const std::string whole = std::string(accuracy) + "_accuracy";
    if (keep_best == accuracy || keep_best == whole) return train::BestBy{.name = whole, .lowest = false};
  }
  const bool of_coco = keep_best.starts_with("COCO/") && keep_best.find(':') == std::string::npos;
  if (keep_best == "mean_class_accuracy" || keep_best == "mean_average_precision" || of_coco) {
    return train::BestBy{.name = keep_best, .lowest = false};
  }
  const size_t colon = keep_best.rfind(':');
  const std::string way = colon == std::string::npos ? "" : keep_best.substr(colon + 1);
  if (colon != 0 && (way == "highest" || way == "lowest")) {
    return train::BestBy{.name = keep_best.substr(0, colon), .lowest = way == "lowest"};
  }
  const std::vector<std::string> known{"top_1", "top_5", "loss", "mean_class_accuracy", "none"};
  const std::string nearest = core::nearest_name(keep_best, known);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "evaluations have no number of this name to compare them by",
                     .where = fmt::format("--{}", flag),
                     .expected = fmt::format("{}; NAME:highest or NAME:lowest for a number of a model of your own",
                                             fmt::join(known, ", ")),
                     .actual = keep_best,
                     .remedy = nearest.empty() ? "" : fmt::format("did you mean {}?", nearest)});
}

namespace {

// Returns whether a best checkpoint was asked for. `trainyard train` keeps one by default, where it evaluates.
bool asks_for_best(const TfCnnOptions& options) {
  if (options.saving.keep_best == "none") return false;
  const FlagRecord& flags = options.flags;
  if (options.dialect == Dialect::kTfCnnBenchmarks || flags.all.empty()) return true;
  return std::any_of(flags.given.begin(), flags.given.end(),
                     [](const auto& flag) { return flag.first == "keep_best"; });
}

// Throws where a training without evaluations was asked for what needs some.
void require_evaluations(const PreparedRun& run) {
  if (run.mode() == RunMode::kTrainingAndEvaluation) return;
  const auto refuse = [](bool asked, const char* problem, const std::string& where, const char* flags) {
    if (!asked) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = problem,
                       .where = where,
                       .remedy = fmt::format("add --eval_during_training_every_n_epochs=1, or leave {} out", flags)});
  };
  const TfCnnOptions& options = run.options;
  refuse(options.explains_on_request(), "nothing is evaluated that could be explained",
         "--top_k, --calibration_bins or --most_wrong", "them");
  refuse(options.early_stop.has_value(), "nothing is evaluated that could end the training",
         fmt::format("--early_stop={}", options.early_stop.value_or(0)), "--early_stop");
  refuse(options.tta != train::TestTimeAugmentation::kNone, "--tta is for evaluations, and this run has none",
         fmt::format("--tta={}", train::name_of(options.tta)), "--tta");
  refuse(asks_for_best(options), "nothing is evaluated whose best checkpoint could be kept",
         "--keep_best=" + options.saving.keep_best, "--keep_best");
}

}  // namespace

std::optional<train::EarlyStop> read_early_stop(const PreparedRun& run) {
  require_evaluations(run);
  if (!run.options.early_stop) return std::nullopt;
  return train::EarlyStop{.patience = *run.options.early_stop, .min_delta = run.options.early_stop_min_delta};
}

int64_t remaining_steps(const PreparedRun& run, int64_t first_step) {
  const int64_t steps =
      train::end_local_step(run.plan.num_batches, first_step, run.counts_all_workers() ? run.device.ranks() : 1);
  if (steps > 0) return steps;
  std::string wanted = "without --num_batches or --num_epochs";
  if (run.options.steps.num_batches.value_or(0) != 0) {
    wanted = fmt::format("--num_batches={}", *run.options.steps.num_batches);
  } else if (run.options.steps.num_epochs.value_or(0) != 0) {
    wanted = fmt::format("--num_epochs={} of {} examples, {} a step", *run.options.steps.num_epochs, run.train_examples,
                         run.examples_per_step());
  }
  core::log::info(
      "nothing is left to do: {} has done {} steps, and this run wants {} ({}); ask for more, or use another "
      "--train_dir",
      run.train_dir(), first_step, run.plan.num_batches, wanted);
  return 0;
}

}  // namespace trainyard::frontends
