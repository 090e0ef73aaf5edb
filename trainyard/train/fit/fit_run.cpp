#include "trainyard/train/fit/fit_run.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/evaluation/evaluation_report.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/model/input_size.h"
#include "trainyard/train/monitors/monitors.h"
#include "trainyard/train/session/evaluated_weights.h"
#include "trainyard/train/session/rank_batches.h"
#include "trainyard/train/session/rank_evaluation.h"

namespace trainyard::train {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int64_t kRecalibrationBatches = 200;  // fvcore's default

int64_t steps_in(const FitOptions& options) {
  if (options.steps_per_epoch > 0) return options.steps_per_epoch;
  if (const int64_t batches = data::batches_in_epoch(*options.train); batches > 0) return batches;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "the source does not say how many batches an epoch has",
                                            .where = "FitOptions::train",
                                            .remedy = "set steps_per_epoch"});
}

// Returns whether an earlier call has saved the training, which then continues, or does not begin at all.
bool was_saved(const FitOptions& options) {
  return !options.train_dir.empty() && !CheckpointStore(options.train_dir).list().empty();
}

ModelDescription description_of(const FitOptions& options) {
  ModelDescription description{.name = options.name.empty() ? options.graph.name : options.name,
                               .transform = options.transform,
                               .input = options.input,
                               .classes = options.classes};
  if (const auto said = data::description_of(*options.train)) {
    if (description.classes.empty()) description.classes = said->classes;
    if (!options.input && !options.transform.empty()) {
      description.transform = said->transform;
      description.input = said->input;
    }
  }
  const nn::Shape& output = options.graph.output_shape();
  description.num_classes = output.size() == 1 ? output[0] : 0;
  if (!description.classes.empty() && std::ssize(description.classes) != description.num_classes) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the graph has another number of outputs than the data have classes",
                 .where = options.graph.name,
                 .expected = std::to_string(description.classes.size()),
                 .actual = nn::to_string(output),
                 .remedy = "build the graph for as many classes, the size of FolderSource::classes()"});
  }
  if (description.input) {
    const int64_t before = description.input->eval_resize_size;
    set_input_size(options.graph, *description.input);
    if (const int64_t now = description.input->eval_resize_size; now != before) {
      core::log::info("eval_resize_size {} of FitOptions::input becomes {}, for images of {}", before, now,
                      nn::to_string(options.graph.input_shape()));
    }
  }
  const bool foreign = std::any_of(options.graph.nodes.begin(), options.graph.nodes.end(),
                                   [](const nn::Node& node) { return std::holds_alternative<nn::Foreign>(node.op); });
  if (!foreign) description.graph = options.graph;
  return description;
}

CheckpointIdentity identity_of(const ModelDescription& description) {
  return {.model = description.name, .dataset = description.transform, .num_classes = description.num_classes};
}

// Parameters in the host's memory.
nn::ParameterSet host_copy(const nn::ParameterSet& set) {
  if (set.values().device().is_cpu()) return set.clone();
  nn::ParameterSet copy({.dtype = set.dtype()});
  for (int i = 0; i < static_cast<int>(set.size()); ++i) copy.declare(set.segment({i}).spec);
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) copy.declare_buffer(set.buffer_spec(i));
  copy.allocate();
  copy.values().copy_(set.values());
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) copy.buffer(i).copy_(set.buffer(i));
  return copy;
}

bool has_batch_norms(const nn::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const nn::Node& node) { return std::holds_alternative<nn::BatchNorm>(node.op); });
}

// Returns the evaluation of the first set with the numbers of all others, under the names by which they are compared.
Evaluation with_all_names(Evaluation first, const std::vector<std::pair<std::string, Evaluation>>& others) {
  for (const auto& [set, evaluation] : others) {
    for (const std::string& name : names_of_values(evaluation)) {
      if (const auto value = value_of(evaluation, name)) first.more.emplace_back(full_name(set, name), *value);
    }
  }
  return first;
}

}  // namespace

// Ends an epoch when the callbacks before it have had their turn; the checkpoint behind it then holds what it counted.
class FitRun::EpochCallback : public Callback {
 public:
  explicit EpochCallback(FitRun& run) : run_(run) {}
  std::string name() const override { return "fit"; }
  void before_train(Trainer&) override { run_.repeat_evaluation(); }
  void trigger(Trainer&) override { run_.end_epoch(); }

 private:
  FitRun& run_;
};

FitRun::FitRun(const FitOptions& options)
    : options_(options), steps_per_epoch_(steps_in(options)), description_(description_of(options)) {
  trainer_ = std::make_unique<TowerTrainer>(trainer_options(), batches_of_rank(options_.train, options_.devices));
  if (options_.stop) trainer_->set_stop_token(*options_.stop);
  state_ = std::make_shared<FitState>(*trainer_, description_, steps_per_epoch_);
  session_.emplace(*trainer_, session_options());
  session_->open();
  if (options_.validation != nullptr) make_evaluator();
  if (const auto& exchange = options_.devices.exchange) {
    communicator_ = parallel::make_communicator_of_processes(exchange, options_.devices.processes->deadlines().step);
  }
  for (const auto& callback : options_.callbacks) session_->print(callback);
  session_->print(std::make_shared<EpochCallback>(*this));
  const bool resumed = session_->resume().has_value();
  session_->prepare(session_steps());
  if (resumed) return;
  for (const std::string& pattern : options_.freeze) trainer_->set_trainable(pattern, false);
}

void FitRun::make_evaluator() {
  EvaluatorOptions evaluation{
      .graph = nn::main_output_graph(options_.graph),
      .devices = {.executor = options_.devices.executor, .dtype = trainer_->options().devices.dtype},
      .loss = options_.loss};
  if (options_.stop) {
    evaluation.stops = [stop = *options_.stop] { return stop.stop_requested(); };
  }
  // What cross-entropy compares are logits and one class an image.
  if (!options_.train_dir.empty() && !options_.loss && description_.num_classes > 1) {
    counts_ = std::make_unique<PredictionCounts>(
        PredictionCountsOptions{.classes = description_.num_classes, .most_wrong = 0});
  }
  evaluation.on_output = [this](const data::Batch& batch, const at::Tensor& output) {
    if (counting_ != nullptr && output.dim() == 2 && batch.labels().dim() == 1) counting_->add(output, batch.labels());
    for (const auto& metric : *measured_) {
      metric->update(
          {.outputs = {{options_.graph.outputs.front().name, output}}, .labels = batch.labels().to(output.device())});
    }
  };
  evaluator_ = std::make_unique<Evaluator>(std::move(evaluation), evaluated_weights(*trainer_));
}

TowerTrainerOptions FitRun::trainer_options() const {
  TowerTrainerOptions options{.graph = options_.graph,
                              .devices = options_.devices,
                              .threads = {.intra_op_threads = options_.intra_op_threads},
                              .exchange = {.variable_update = options_.variable_update},
                              .seed = options_.seed,
                              .make_optimizer = options_.optimizer};
  if (options_.devices.ranks() > 1) {
    options.exchange.variable_update = options_.devices.replicas > 1 ? "collective_all_reduce" : "horovod";
  }
  // Some updates sum gradients unless they are told otherwise, as tf_cnn_benchmarks does. This one exchanges none.
  if (options_.variable_update != "asynchronous") options.exchange.reduction = parallel::GradientReduction::kMean;
  if (options_.loss) options.loss = loss_of(options_.loss);
  options.average = options_.average;
  options.learning_rate = options_.schedule ? options_.schedule(options_.epochs * steps_per_epoch_)
                                            : optim::constant(options_.learning_rate);
  if (!options_.weights.empty() && !was_saved(options_)) {
    options.start = [path = options_.weights, classes = description_.num_classes,
                     graph = options_.graph](nn::ParameterSet& parameters) {
      const formats::TensorFile file = named_for_graph(formats::open_tensor_file(path), graph);
      const LoadedWeights loaded = load_weights(file, parameters, classes);
      if (loaded.head.empty()) return;
      core::log::warning("{} is for {} classes: the head is new, for {}", path, loaded.file_classes, classes);
    };
  }
  if (options_.adjust) options_.adjust(options);
  if (options.tower || options.graph.nodes.size() != options_.graph.nodes.size()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "adjust() gave the training another network",
                                              .where = "FitOptions::adjust",
                                              .remedy = "set FitOptions::graph, or use a TowerTrainer for towers"});
  }
  return options;
}

SessionOptions FitRun::session_options() const {
  SessionOptions session{.directory = options_.train_dir,
                         .identity = identity_of(description_),
                         .state = state_,
                         .ranks = options_.devices.processes,
                         .compare = options_.best,
                         .early_stop = options_.early_stop};
  if (session.ranks != nullptr) {
    StartFacts& facts = session.start.emplace();
    add_graph_facts(options_.graph, facts);
    add_class_facts(description_.classes, facts);
    facts.push_back({"epochs", std::to_string(options_.epochs)});
    facts.push_back({"steps of an epoch", std::to_string(steps_per_epoch_)});
    facts.push_back({"seed", std::to_string(options_.seed)});
    add_trainer_facts(*trainer_, options_.epochs * steps_per_epoch_, facts);
  }
  if (options_.resume) return session;
  session.resume.check = [](const CheckpointInfo& newest, const CheckpointFacts&) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is a training already",
                                              .where = newest.path,
                                              .expected = "a train_dir without checkpoints",
                                              .remedy = "set FitOptions::resume, or choose another train_dir"});
  };
  return session;
}

SessionSteps FitRun::session_steps() {
  SessionSteps steps;
  auto& summary = steps.summary.emplace();
  summary.every_steps = std::max<int64_t>(1, steps_per_epoch_ / 10);
  summary.batch_size = options_.train->batch_size() * options_.train->replicas() * trainer_->options().micro_steps;
  summary.values = {{"learning_rate", [this](const StepView&) { return trainer_->current_learning_rate(); }},
                    {"total_loss", [this](const StepView&) { return trainer_->last_total_loss(); }}};
  if (options_.train_dir.empty()) return steps;
  if (options_.validation != nullptr) steps.keep_best = options_.best;
  steps.checkpoints.emplace().each_epoch = true;
  steps.monitors = [this](int64_t first_step) {
    std::vector<std::unique_ptr<Monitor>> monitors;
    monitors.push_back(std::make_unique<JsonLinesMonitor>(core::join_path(options_.train_dir, "metrics.jsonl"),
                                                          core::local_file_system(), first_step, lacks_evaluation()));
    return monitors;
  };
  return steps;
}

nn::ParameterSet& FitRun::served_parameters() {
  trainer_->wait();
  nn::ParameterSet& weights = evaluated_weights(*trainer_);
  if (has_stale_statistics(*trainer_) && recalibrated_at_ != trainer_->global_step() &&
      has_batch_norms(options_.graph)) {
    recalibrate(weights);
  }
  return weights;
}

// Statistics of an equal average are those of the last weights, which do not fit it. The training continues after it
// with the batches that it would have had.
void FitRun::recalibrate(nn::ParameterSet& weights) {
  const TowerTrainerOptions& trained = trainer_->options();
  const RecalibrationOptions options{
      .graph = options_.graph, .devices = trained.devices, .seed = options_.seed, .stops = [this] {
        return options_.stop && options_.stop->stop_requested();
      }};
  core::MemoryState place;
  options_.train->save(place);
  options_.train->seek({});
  std::exception_ptr failure;
  try {
    recalibrate_batch_norms(options, weights, *options_.train, std::min(kRecalibrationBatches, steps_per_epoch_));
    recalibrated_at_ = trainer_->global_step();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) {
      core::log::warning("{}: the batch norms of the averaged weights keep the statistics that they had", error.what());
    } else {
      failure = std::current_exception();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  options_.train->load(place);  // also after an error: the training is saved behind it
  if (failure) std::rethrow_exception(failure);
}

Evaluation FitRun::evaluate(data::BatchSource& source, const std::vector<std::shared_ptr<Metric>>& metrics,
                            PredictionCounts* counts) {
  for (const auto& metric : metrics) metric->begin();
  measured_ = &metrics;
  counting_ = counts;
  if (counts != nullptr) counts->clear();
  // Processes on GPUs have no communicator for metrics: each one evaluates all samples for them.
  const bool shared = metrics.empty() || communicator_ != nullptr;
  nn::ParameterSet& weights = evaluated_weights(*trainer_);
  Evaluation evaluation = session_->evaluate(weights, *evaluator_, source, shared);
  const bool reduces = communicator_ != nullptr && shares_batches(session_->ranks(), source);
  if (counts != nullptr && shared && shares_batches(session_->ranks(), source)) {
    counts->add_other_ranks(*session_->ranks());
  }
  for (const auto& metric : metrics) {
    if (reduces) metric->reduce(*communicator_, weights.values().device());
    for (auto& result : metric->results()) evaluation.more.push_back(std::move(result));
  }
  return evaluation;
}

void FitRun::evaluate_all() {
  served_parameters();
  counted_at_.reset();
  Evaluation evaluation = evaluate(*options_.validation, options_.metrics, counts_.get());
  std::vector<std::pair<std::string, Evaluation>> more;
  for (const FitValidation& set : options_.more_validations) {
    try {
      more.emplace_back(set.name, evaluate(*set.source, set.metrics));
    } catch (const Error& error) {
      throw error.in(fmt::format("validation set '{}'", set.name));
    }
  }
  last_ = std::move(evaluation);
  last_of_more_ = std::move(more);
  counted_at_ = trainer_->global_step();
}

void FitRun::evaluate_again() {
  if (options_.validation == nullptr) return;
  try {
    evaluate_all();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
    core::log::warning("{}: the training has ended before, and is not evaluated again", error.what());
  }
}

void FitRun::end_epoch() {
  FitEpoch epoch{.epoch = trainer_->epoch(),
                 .global_step = trainer_->global_step(),
                 .loss = trainer_->last_total_loss(),
                 .learning_rate = trainer_->current_learning_rate()};
  const core::ScopedIntraOpThreads threads(options_.intra_op_threads);
  if (options_.validation == nullptr) {
    served_parameters();  // as they are saved behind this epoch
  } else {
    try {
      evaluate_all();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCancelled) throw;
      session_->cut_evaluation().cut_off(*trainer_);
      return;  // a part of an evaluation is none; the training ends and is saved behind this epoch
    }
    epoch.validation = last_;
    epoch.more_validations = last_of_more_;
    const Evaluation compared = with_all_names(*last_, last_of_more_);
    const auto write = [&](const Evaluation& evaluation, const std::string& phase) {
      Scalars scalars =
          evaluation_scalars(evaluation, epoch.global_step, static_cast<double>(epoch.epoch), system_wall_clock());
      if (!phase.empty()) scalars.phase = phase;
      trainer_->monitors().write(scalars);
    };
    write(*last_, "");
    for (const auto& [name, evaluation] : last_of_more_) write(evaluation, name);
    trainer_->monitors().flush();
    session_->note(compared, epoch.global_step);
  }
  if (options_.on_epoch) options_.on_epoch(epoch);
  const bool more = epoch.epoch < options_.epochs;
  if (const auto reason = session_->early_end(); reason && more) trainer_->stop(*reason);
}

bool FitRun::lacks_evaluation() const {
  return options_.validation != nullptr && session_->cut_evaluation().missing();
}

void FitRun::repeat_evaluation() {
  if (!lacks_evaluation() || trainer_->step_in_epoch() != steps_per_epoch_) return;
  end_epoch();
  session_->cut_evaluation().end_repetition(*trainer_);
}

void FitRun::write_explanation() const {
  // An evaluation that was stopped is not the last one, and one whose labels are no classes has counted no images.
  if (counts_ == nullptr || !counted_at_ || counts_->images() != last_->samples || !session_->is_chief()) return;
  const EvaluationReport report{.counts = *counts_,
                                .names = description_.classes,
                                .global_step = *counted_at_,
                                .loss = last_->loss,
                                .top_1 = last_->top_1,
                                .top_5 = last_->top_5};
  try {
    core::local_file_system().write_file_atomically(core::join_path(options_.train_dir, "evaluation.json"),
                                                    evaluation_json(report));
  } catch (const Error& error) {
    core::log::warning("the evaluation is not explained: {}", error.what());  // the training is complete without it
  }
}

int64_t FitRun::complete_epochs() const {
  return trainer_->epoch() - (trainer_->step_in_epoch() < steps_per_epoch_ ? 1 : 0);
}

bool FitRun::complete() const {
  return trainer_->global_step() > 0 && complete_epochs() >= options_.epochs;
}

std::shared_ptr<const Model> FitRun::model() {
  const core::ScopedIntraOpThreads threads(options_.intra_op_threads);
  ModelDescription description = description_;
  description.graph = options_.graph;
  return std::make_shared<const Model>(
      std::move(description), host_copy(served_parameters()),
      LoadModelOptions{.executor = options_.devices.executor, .dtype = trainer_->options().devices.dtype});
}

FitResult FitRun::run() {
  FitResult result{.first_step = session_->first_step(), .loss = std::numeric_limits<double>::quiet_NaN()};
  const std::optional<std::string> ended = session_->first_step() > 0 ? session_->early_end() : std::nullopt;
  if (ended || (complete() && !lacks_evaluation())) {
    result.stop_reason = complete() ? "" : *ended;
    const core::ScopedIntraOpThreads threads(options_.intra_op_threads);
    evaluate_again();
  } else {
    session_->train({.steps_per_epoch = steps_per_epoch_,
                     .starting_epoch = trainer_->epoch(),
                     .max_epoch = options_.epochs,
                     .starting_step = trainer_->step_in_epoch()});
    result.stop_reason = trainer_->stop_reason();
    result.loss = trainer_->last_total_loss();
  }
  trainer_->monitors().close();
  write_explanation();
  result.epochs = complete_epochs();
  result.global_step = trainer_->global_step();
  result.last = last_;
  result.last_of_more = last_of_more_;
  result.best = session_->best_value();
  result.model = model();
  return result;
}

}  // namespace trainyard::train
