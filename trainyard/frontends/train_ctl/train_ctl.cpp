#include "trainyard/frontends/train_ctl/train_ctl.h"

#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/frontends/input/data_digest.h"
#include "trainyard/frontends/session/finished_model.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/frontends/train_ctl/ctl_epochs.h"
#include "trainyard/frontends/train_ctl/ctl_input.h"
#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/nn/export/keras_model.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/devices/device_room.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/monitors/monitors.h"
#include "trainyard/train/profile/step_trace.h"
#include "trainyard/train/session/start_facts.h"
#include "trainyard/train/session/training_session.h"

namespace trainyard::frontends {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kCheckpointsKept = 3;

train::OpenDevices open_ctl_device(const TrainCtlParams& params) {
  DeviceOptions options;
  options.replicas = params.devices;
  options.use_bf16 = params.precision == "bf16";
  options.use_fp16 = params.precision == "fp16";
  if (options.use_fp16) options.fp16_loss_scale = params.loss_scale;
  options.xla = *params.use_xla;
  if (params.horovod) options.variable_update = "horovod";
  return open_device(options, {.decodes_on_gpu = params.dali_mode == "GPU"});
}

CtlModel make_model(const CtlModelFunction& function, const TrainCtlParams& params) {
  if (!function) throw Error(ErrorCode::kInvalidArgument, "train_ctl needs a model function");
  CtlModel model = function(kCtlClasses, *params.batch_size);
  const auto require = [](const char* what, const nn::Shape& expected, const nn::Shape& actual) {
    if (expected == actual) return;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("the model function gave a model of other {}", what),
                 .where = "train_ctl",
                 .expected = nn::to_string(expected),
                 .actual = nn::to_string(actual)});
  };
  if (model.graph.nodes.empty()) throw Error(ErrorCode::kInvalidArgument, "the model function gave an empty graph");
  require("images than image_height and image_width say", {3, *params.image_height, *params.image_width},
          model.graph.input_shape());
  require("classes than it was asked for", {kCtlClasses}, model.graph.output_shape());
  return model;
}

// Throws what an export would throw: before a training instead of behind it.
void require_exportable(const nn::Graph& graph) {
  static_cast<void>(formats::encode_hdf5({}));  // libhdf5 is there
  nn::ParameterSet set;
  const auto executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
  set.allocate();
  static_cast<void>(nn::to_keras_model(graph, set, {.softmax = true}));
}

// Collective.
void require_same_start(parallel::ProcessGroup& ranks, const TrainCtlParams& params, const nn::Graph& graph,
                        const CtlInput& input) {
  train::StartFacts facts;
  train::add_program_facts(facts);
  const auto add = [&facts](const char* name, const auto& value) { facts.push_back({name, fmt::format("{}", value)}); };
  add("batch_size", *params.batch_size);
  add("num_iter", *params.num_iter);
  add("iter_unit", *params.iter_unit);
  add("momentum", *params.momentum);
  add("precision", *params.precision);
  add("loss_scale", *params.loss_scale);
  add("dali_mode", params.dali_mode);
  add("distort_color", params.distort_color);
  add("use_xla", *params.use_xla);
  add("seed", params.seed);
  add("training images", input.train_samples);
  add("validation images", input.validation_samples);
  train::add_class_facts(input.classes.names, facts);
  if (!params.data_dir.empty()) {
    add("files of data_dir (names, sizes)", data_digest(input.settings.file_system(), params.data_dir));
  }
  train::add_graph_facts(graph, facts);
  parallel::require_same_facts(ranks, facts);
}

class CtlTraining {
 public:
  CtlTraining(CtlModel model, const TrainCtlParams& params, train::OpenDevices device, CtlInput input,
              const CtlConsole& console)
      : params_(params),
        model_(std::move(model)),
        device_(std::move(device)),
        input_(std::move(input)),
        plan_(make_ctl_plan(params, input_.train_samples, input_.validation_samples, device_.ranks())),
        threads_(place_threads({}, static_cast<int>(params.devices), input_.settings.input_threads)),
        out_(!device_.is_chief()      ? nowhere_
             : console.out == nullptr ? std::cout
                                      : *console.out),
        stop_(console.stop),
        trainer_(ctl_trainer_options(model_, params, plan_, device_, threads_),
                 input_.training_source(device_, params)),
        state_(std::make_shared<SavedRun>(
            trainer_,
            SavedRunOptions{.identity = {.model = model_.graph.name, .dataset = "imagenet", .num_classes = kCtlClasses},
                            .input = input_.settings.transform,
                            .preprocessor = input_.settings.preprocessor,
                            .classes = input_.classes,
                            .data_dir = params.data_dir,
                            .class_count = input_.class_count,
                            .tells_input = false})),  // settle_input() has
        session_(trainer_, session_options()) {}

  TrainedCtl run();

 private:
  train::SessionOptions session_options() const;
  void add_callbacks();
  void add_trace();
  void resume();
  train::SessionSteps session_steps() const;
  void train();
  std::optional<train::Evaluation> validate();
  void repeat_validation();
  TrainedCtl result();
  parallel::ProcessGroup* ranks() const { return device_.processes.get(); }  // null: this process is alone
  bool stopped() const {
    if (ranks() == nullptr) return stop_.stop_requested();
    // The validation that is repeated comes before the trainer's loop, which could say why it ends.
    return !trainer_.stop_reason().empty() || session_.cut_evaluation().end();
  }

  const TrainCtlParams& params_;
  CtlModel model_;
  train::OpenDevices device_;
  CtlInput input_;
  CtlPlan plan_;
  ThreadSettings threads_;
  std::ostream nowhere_{nullptr};
  std::ostream& out_;
  core::StopToken stop_;
  train::TowerTrainer trainer_;
  std::shared_ptr<SavedRun> state_;
  train::TrainingSession session_;
  std::shared_ptr<data::BatchSource> validation_source_;
  std::unique_ptr<train::Evaluator> evaluator_;
  std::shared_ptr<CtlEpochs> epochs_;
};

void CtlTraining::add_callbacks() {
  CtlEpochsOptions epochs{.plan = plan_, .display_every = *params_.display_every, .out = &out_};
  if (plan_.validation_steps == 0 && input_.validation_samples > 0) {
    core::log::warning("nothing is validated: there are {} images for it, fewer than the {} of a step",
                       input_.validation_samples, plan_.global_batch_size);
  }
  if (plan_.validation_steps > 0) {
    epochs.validate = [this] { return validate(); };
  }
  if (session_.saves()) {
    epochs.save = [this] { return session_.save().value(); };
  }
  epochs_ = std::make_shared<CtlEpochs>(trainer_, std::move(epochs));
  session_.print(epochs_);
  if (!params_.tensorboard_dir.empty() && device_.is_chief()) add_trace();
  trainer_.set_stop_token(stop_);
}

train::SessionOptions CtlTraining::session_options() const {
  return {.directory = params_.log_dir,
          .identity = state_->options().identity,
          .state = state_,
          .ranks = device_.processes,
          .resume = resume_options(*state_, model_.graph, "another log_dir"),
          .max_to_keep = kCheckpointsKept};
}

train::SessionSteps CtlTraining::session_steps() const {
  train::SessionSteps steps;
  if (params_.tensorboard_dir.empty()) return steps;
  steps.monitors = [this](int64_t first_step) {
    std::vector<std::unique_ptr<train::Monitor>> monitors;
    monitors.push_back(std::make_unique<train::TensorBoardMonitor>(
        params_.tensorboard_dir, first_step, core::local_file_system(), formats::EventFileOptions{.flush_seconds = 0}));
    return monitors;
  };
  return steps;
}

// Numbers of the first step of this run.
void CtlTraining::add_trace() {
  const auto traced = std::make_shared<bool>(false);
  train::RecordingOptions options;
  options.replicas = static_cast<int>(params_.devices);
  options.accelerator = device_.accelerator();
  options.record = [this](train::StepRecorder* recorder) { trainer_.record(recorder); };
  options.recordings.push_back({0, 1, [this, traced](std::span<const train::StepRecord> steps) {
                                  *traced = true;
                                  core::local_file_system().write_file_atomically(
                                      core::join_path(params_.tensorboard_dir, "train_step.trace.json"),
                                      formats::chrome_trace(train::step_trace(steps, model_.graph)));
                                }});
  session_.print(std::make_shared<train::EnableCallbackIf>(std::make_shared<train::RecordingCallback>(options),
                                                           [traced](train::Trainer&) { return !*traced; }));
}

std::optional<train::Evaluation> CtlTraining::validate() {
  trainer_.wait();
  if (evaluator_ == nullptr) {
    validation_source_ = input_.validation_source(device_, params_);
    evaluator_ = std::make_unique<train::Evaluator>(
        train::EvaluatorOptions{.graph = model_.graph,
                                .devices = trainer_.options().devices,
                                .stops = [stop = stop_] { return stop.stop_requested(); }},
        trainer_.parameters());
  }
  core::apply_team_affinity();
  validation_source_->seek({});
  try {
    train::Evaluation validation = session_.evaluate(trainer_.parameters(), [this] {
      return evaluator_->run(*validation_source_, plan_.validation_steps, /*may_be_empty=*/ranks() != nullptr);
    });
    session_.cut_evaluation().set_missing(false);
    return validation;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
    session_.cut_evaluation().cut_off(trainer_);  // the next run repeats it
    return std::nullopt;
  }
}

void CtlTraining::repeat_validation() {
  if (!session_.cut_evaluation().missing() || !epochs_->validates_now()) return;
  epochs_->repeat_validation();
  session_.cut_evaluation().expect_first_step();
}

void CtlTraining::resume() {
  session_.open();
  const auto restored = session_.resume();
  if (params_.log_dir.empty()) return;
  if (restored) {
    fmt::print(out_, "Restored from {}\n", restored->path);
  } else {
    out_ << "Initializing from scratch.\n";
  }
}

// Whole epochs, then what is left of one.
void CtlTraining::train() {
  if (trainer_.global_step() >= plan_.end_step) {
    core::log::info("nothing is left to do: {} has done {} of {} steps", params_.log_dir, trainer_.global_step(),
                    plan_.end_step);
  }
  const int64_t whole_epochs = plan_.end_step / plan_.steps_per_epoch, rest = plan_.end_step % plan_.steps_per_epoch;
  while (trainer_.global_step() < plan_.end_step && !stopped()) {
    const bool complete = trainer_.step_in_epoch() == plan_.steps_per_epoch;
    const int64_t epoch = trainer_.epoch() + (complete ? 1 : 0), step = complete ? 0 : trainer_.step_in_epoch();
    const bool last = epoch > whole_epochs;
    session_.train({.steps_per_epoch = last ? rest : plan_.steps_per_epoch,
                    .starting_epoch = epoch,
                    .max_epoch = last ? epoch : whole_epochs,
                    .starting_step = step});
  }
}

TrainedCtl CtlTraining::result() {
  TrainedModel model = finished_model(trainer_, model_.graph, state_->options());
  TrainedCtl trained{.parameters = std::move(model.parameters),
                     .executor = std::move(model.executor),
                     .input = std::move(model.input),
                     .label_names = std::move(model.label_names)};
  trained.global_step = trainer_.global_step();
  trained.means = epochs_->means();
  trained.validation = epochs_->validation();
  trained.stopped = stopped();
  return trained;
}

TrainedCtl CtlTraining::run() {
  core::apply_thread_options(
      {.name = "train_ctl", .intra_op_threads = threads_.intra_op_threads, .placement = threads_.main});
  add_callbacks();
  resume();
  session_.prepare(session_steps());
  repeat_validation();
  train();
  epochs_->save_rest();
  trainer_.monitors().close();
  if (stopped()) out_ << "Keyboard interrupt\n";
  TrainedCtl trained = result();
  if (ranks() != nullptr) device_.leave();
  if (params_.export_dir.empty() || !device_.is_chief()) return trained;
  trained.export_path = params_.export_path();
  formats::write_hdf5(trained.export_path,
                      nn::to_keras_model(trained.executor->graph(), *trained.parameters, {.softmax = true}));
  fmt::print(out_, "The model is saved to {}\n", trained.export_path);
  return trained;
}

}  // namespace

at::Tensor TrainedCtl::predict(const at::Tensor& images) {
  const at::NoGradGuard without_gradients;
  return at::softmax(executor->forward(images, {}), 1);
}

TrainedCtl train_ctl(const CtlModelFunction& model_function, const TrainCtlParams& params, const CtlConsole& console) {
  params.validate(train::gpu_count());
  CtlModel model = make_model(model_function, params);
  if (!params.export_dir.empty()) require_exportable(model.graph);
  CtlInput input;
  train::OpenDevices device;
  if (params.horovod) {
    device = open_ctl_device(params);
    parallel::report_what_fails(*device.processes, [&] {
      const std::optional<TrainedInput> trained = saved_ctl_input(params, device.processes.get());
      parallel::together(*device.processes, "opening the data", [&] {
        if (device.is_chief()) params.validate_directories();
        input = open_ctl_input(params, trained);
      });
      require_same_start(*device.processes, params, model.graph, input);
    });
  } else {
    input = open_ctl_input(params, saved_ctl_input(params));
    device = open_ctl_device(params);
  }
  const std::shared_ptr<parallel::ProcessGroup> ranks = device.processes;
  const std::shared_ptr<nn::Accelerator> accelerator = device.accelerator();
  const nn::AcceleratorScope on_device = device.use();
  TrainedCtl trained;
  const auto run = [&] {
    trained = CtlTraining(std::move(model), params, std::move(device), std::move(input), console).run();
  };
  const auto run_on_device = [&] { accelerator == nullptr ? run() : train::run_or_explain(*accelerator, {}, run); };
  ranks == nullptr ? run_on_device() : parallel::report_what_fails(*ranks, run_on_device);
  return trained;
}

}  // namespace trainyard::frontends
