#include "trainyard/frontends/paddle/train.h"

#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/frontends/input/data_digest.h"
#include "trainyard/frontends/model/sparsity_report.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/flags.h"
#include "trainyard/frontends/paddle/loader.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/parallel/process_group/start_agreement.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/session/start_facts.h"
#include "trainyard/train/session/training_session.h"

namespace trainyard::frontends::program {
namespace {

ExecutorOptions executor_options(const Arguments& args) {
  ThreadOptions threads;
  // Without nodes there is nothing to do, and nothing to be said.
  threads.use_numa_affinity =
      args.enable_cpu_affinity && core::numa_nodes(core::allowed_cpus(), core::read_system_file).size() > 1;
  const ThreadSettings placed =
      place_threads(threads, static_cast<int>(std::ssize(args.places)), static_cast<int>(args.dali_num_threads));
  return {.seed = static_cast<uint64_t>(args.dali_random_seed),
          .intra_op_threads = placed.intra_op_threads,
          .placement = placed.replica};
}

// One run of the program, in the order of the example's main().
class Run {
 public:
  Run(Arguments args, std::ostream& out, const core::StopToken& stop)
      : args_(std::move(args)),
        devices_(open_named_devices_together(read_device_names(args_.places))),
        report_(devices_.is_chief() ? out : nowhere_, devices_.is_chief() ? args_.report_file : "",
                /*append=*/args_.trains() && !args_.checkpoint_dir.empty()),
        exe_(devices_, executor_options(args_)) {
    args_.processes = devices_.ranks();
    exe_.set_stop(stop);
  }

  // Collective: also leaves the other processes.
  ProgramResult run_with_others();

 private:
  ProgramResult run();
  void require_same_start();
  void require_same_data();
  parallel::ProcessGroup* ranks() const { return devices_.processes.get(); }  // null: this process is alone
  // Returns whether the run ends early. Ranks agree on it in each step and each evaluation.
  bool stopping() const { return ranks() == nullptr ? exe_.stopping() : agreed_to_stop_; }
  void make_programs();
  void open_session();
  void begin_from_checkpoint();
  void begin_from_weights();
  void save(int64_t epoch);
  void train(int64_t epoch);
  void evaluate(int64_t epoch);
  void repeat_evaluation();
  bool evaluates_after(int64_t epoch) const { return args_.evaluates() && epoch % args_.eval_interval == 0; }
  std::optional<OpenedModel> open_evaluated() const;
  train::CheckpointIdentity identity() const {
    return {.model = args_.model_name(), .dataset = "imagenet", .num_classes = args_.num_of_class};
  }

  Arguments args_;
  train::OpenDevices devices_;
  std::ostream nowhere_{nullptr};  // what ranks behind the first say
  Report report_;
  Executor exe_;
  Program startup_{"startup"}, train_{"train"}, eval_{"eval"};
  std::optional<Loader> train_data_, eval_data_;
  Built training_, evaluation_;
  std::optional<OpenedModel> evaluated_;  // of eval_only
  // Of a training.
  std::shared_ptr<SavedRun> state_;
  std::optional<train::TrainingSession> session_;
  bool agreed_to_stop_ = false;
  bool trained_whole_ = false;       // all steps of the epoch that was trained last are done
  bool saved_ = false;               // that epoch
  bool repeats_evaluation_ = false;  // of the epoch before the first, which a stop has cut off
  EpochStart first_;                 // where the first epoch begins
  MetricSummary train_summary_, eval_summary_;
};

// Gives `to`, which holds the weights of `from`, their masks, too: sparse weights stay sparse. A head of another shape
// has none, and sets on a device have none either, as in ParameterSet::copy_from().
void copy_masks(const nn::ParameterSet& from, nn::ParameterSet& to) {
  if (!to.values().is_cpu()) return;
  for (int i = 0; i < static_cast<int>(to.size()); ++i) {
    const at::Tensor kept = from.mask({i});
    if (kept.defined() && kept.sizes() == to.value({i}).sizes()) to.set_mask({i}, kept);
  }
}

// What an evaluation alone is of: its classes number those of the images.
std::optional<OpenedModel> Run::open_evaluated() const {
  const std::string& path = args_.checkpoint_dir.empty() ? args_.pretrained_weights : args_.checkpoint_dir;
  if (args_.trains() || path.empty()) return std::nullopt;
  return open_model({.path = path, .model = args_.model_name(), .dataset = "imagenet"});
}

void Run::make_programs() {
  ClassNames known;
  if (args_.trains()) {
    train_data_ = build_dataloader(args_, Mode::kTrain, exe_.device());
    training_ = build(args_, train_, startup_, train_data_->steps(), /*is_train=*/true);
    known = train_data_->data().classes;
  }
  evaluated_ = open_evaluated();
  if (evaluated_) known = evaluated_->classes;
  if (args_.evaluates()) {
    eval_data_ = build_dataloader(args_, Mode::kEval, exe_.device(), known);
    const LoadedData& data = eval_data_->data();
    if (!known.names.empty() && data.class_count > 0) {
      check_same_classes(
          {known, evaluated_ ? evaluated_->checkpoint.path : "the training images", std::ssize(known.names)},
          {data.classes, "the validation images of " + data.folder, data.class_count},
          "use validation images of the training's classes");
    }
    evaluation_ = build(args_, eval_, startup_, eval_data_->steps(), /*is_train=*/false);
  }
  if (ranks() != nullptr) require_same_data();
  exe_.run(startup_);
  if (args_.evaluates()) eval_ = compile_prog(args_, eval_, "loss", /*is_train=*/false);
}

void Run::open_session() {
  const LoadedData& data = train_data_->data();
  train::TowerTrainer& trainer = exe_.trainer(train_);
  state_ = std::make_shared<SavedRun>(trainer, SavedRunOptions{.identity = identity(),
                                                               .input = data.input,
                                                               .preprocessor = "paddle",
                                                               .classes = data.classes,
                                                               .data_dir = data.folder,
                                                               .class_count = data.class_count,
                                                               .tells_input = !args_.trained});
  // The steps of a benchmark are no epoch, for which a checkpoint would be taken: nothing is saved.
  const std::string directory = args_.benchmark ? "" : core::join_path(args_.output_dir, args_.model_arch_name);
  train::SessionOptions options{.directory = directory,
                                .identity = identity(),
                                .state = state_,
                                .ranks = devices_.processes,
                                .resume = resume_options(*state_, train_.body()->graph)};
  options.resume.directory = args_.checkpoint_dir;
  session_.emplace(trainer, std::move(options));
  session_->open();
}

// The epoch that the options call the last one of the checkpoint counts, and where it is the one that was saved, so do
// the steps that it lacks and the place in the data. A benchmark has steps of its own.
void Run::begin_from_checkpoint() {
  train::TowerTrainer& trainer = exe_.trainer(train_);
  session_->resume();
  const int64_t saved_epoch = trainer.epoch() - 1, steps = train_data_->steps();
  const int64_t saved_steps = exe_.steps_per_epoch();
  if (args_.start_epoch != saved_epoch + 1) {
    trainer.source().seek({.epoch = args_.start_epoch});
  } else if (!args_.benchmark && trainer.step_in_epoch() < saved_steps) {
    args_.start_epoch = saved_epoch;
    // Another batch size makes another number of steps of an epoch.
    first_.step = trainer.step_in_epoch() * steps / saved_steps;
    training_.lr_scheduler->seek(saved_epoch * steps + first_.step);
    core::log::info("epoch {} was left after {} of {} steps", saved_epoch, trainer.step_in_epoch(), saved_steps);
  } else {
    repeats_evaluation_ =
        !args_.benchmark && session_->cut_evaluation().missing() && evaluates_after(args_.start_epoch - 1);
  }
  core::log::info("Training will start at the {}-th epoch", args_.start_epoch);
}

void Run::begin_from_weights() {
  const std::string& path = args_.pretrained_weights;
  std::optional<TrainedModel> model;
  if (core::local_file_system().info(path).is_directory) {
    model.emplace(
        load_trained_model({.path = path, .model = args_.model_name(), .dataset = "imagenet", .tells_input = false}));
  }
  if (model && model->identity.num_classes == args_.num_of_class) {
    exe_.trainer(train_).change_parameters([&](nn::ParameterSet& set) { set.copy_from(*model->parameters); });
  } else {
    const formats::TensorFile file =
        model ? train::tensor_file_of(*model->parameters, path)
              : train::named_for_graph(formats::open_tensor_file(path), train_.body()->graph);
    train::LoadedWeights loaded;
    exe_.trainer(train_).change_parameters([&](nn::ParameterSet& set) {
      loaded = train::load_weights(file, set, args_.num_of_class);
      if (model) copy_masks(*model->parameters, set);
    });
    if (!loaded.head.empty()) {
      core::log::warning("{} is for {} classes: the head is new, for {} ({})", path, loaded.file_classes,
                         args_.num_of_class, fmt::join(loaded.head, ", "));
    }
  }
  core::log::info("Finish initalizing pretrained parameters from {}", path);
}

void Run::save(int64_t epoch) {
  const std::string directory = checkpoint_directory(args_, epoch);
  // Checkpoints of this epoch, but of an earlier run, are removed.
  if (session_->save_alone_in(directory)) core::log::info("Already save model in {}", directory);
}

void Run::train(int64_t epoch) {
  const EpochStart start = std::exchange(first_, {});
  const Metrics metrics = program::run(args_, *train_data_, exe_, train_, training_.fetchs, epoch, Mode::kTrain,
                                       training_.lr_scheduler.get(), report_, start);
  train_summary_.update(metrics);
  agreed_to_stop_ = !exe_.trainer(train_).stop_reason().empty();
  trained_whole_ = !metrics.empty();
  // A stop in the last step leaves no time for the evaluation.
  session_->cut_evaluation().set_missing(stopping() && trained_whole_ && evaluates_after(epoch));
  saved_ = stopping() || epoch % args_.save_interval == 0 || epoch + 1 == args_.epochs;
  if (saved_) save(epoch);
}

void Run::evaluate(int64_t epoch) {
  const Metrics metrics =
      program::run(args_, *eval_data_, exe_, eval_, evaluation_.fetchs, epoch, Mode::kEval, nullptr, report_);
  eval_summary_.update(metrics);
  agreed_to_stop_ = agreed_to_stop_ || metrics.empty();
  if (session_) session_->cut_evaluation().set_missing(metrics.empty());
}

void Run::repeat_evaluation() {
  const int64_t epoch = args_.start_epoch - 1;
  evaluate(epoch);
  if (session_->cut_evaluation().changed()) save(epoch);
  session_->cut_evaluation().expect_first_step();
}

// Options that may differ between ranks are left out: where things lie, and what rank 0 alone says and writes.
void Run::require_same_start() {
  const std::set<std::string> may_differ{"output_dir", "report_file",      "image_root",         "show_config",
                                         "places",     "dali_num_threads", "enable_cpu_affinity"};
  train::StartFacts facts;
  train::add_program_facts(facts);
  // A missing one is a warning, and a rank without it would evaluate, or begin with, weights of its own. These come
  // before the options, some of which are taken from it.
  const auto found = [](const std::string& path) { return path.empty() ? "not found" : "found"; };
  facts.push_back({"the checkpoint of --from_checkpoint", found(args_.checkpoint_dir)});
  facts.push_back({"the weights of --from_pretrained_params", found(args_.pretrained_weights)});
  facts.push_back({"places of a process", std::to_string(args_.places.size())});
  for (const auto& [name, value] : options_as_json(args_)) {
    if (!may_differ.contains(name)) facts.push_back({"--" + name, value});
  }
  parallel::require_same_facts(*ranks(), facts);
}

// Throws where --image_root, which may be another folder on each rank, holds other images: their labels would mean
// other classes, and epochs would end after other steps. Collective.
void Run::require_same_data() {
  train::StartFacts facts;
  parallel::together(*ranks(), "looking at the data", [&] {
    for (const auto& [subset, loader] : {std::pair{"training", &train_data_}, {"validation", &eval_data_}}) {
      if (!*loader) continue;
      facts.push_back({fmt::format("steps of an epoch of {} images", subset), std::to_string((*loader)->steps())});
    }
    train::add_class_facts((train_data_ ? *train_data_ : *eval_data_).data().classes.names, facts);
    facts.push_back({"files of --image_root (names, sizes)",
                     args_.image_root.empty() ? "none: synthetic images"
                                              : data_digest(core::local_file_system(), args_.image_root)});
  });
  parallel::require_same_facts(*ranks(), facts);
}

ProgramResult Run::run_with_others() {
  if (ranks() == nullptr) return run();
  ProgramResult result;
  parallel::report_what_fails(*ranks(), [&] {
    require_same_start();
    result = run();
    devices_.leave();
  });
  return result;
}

ProgramResult Run::run() {
  make_programs();
  if (args_.trains()) open_session();
  if (args_.show_config) report_.parameters(options_as_json(args_));
  if (args_.trains()) {
    if (!args_.checkpoint_dir.empty()) begin_from_checkpoint();
    if (!args_.pretrained_weights.empty()) begin_from_weights();
    if (args_.asp && args_.prune_model) {
      log_pruning(prune_model(exe_, train_, args_.mask_algo), optim::mask_algorithm_from_name(args_.mask_algo));
    }
    session_->prepare({});
    if (repeats_evaluation_) repeat_evaluation();
  } else if (evaluated_) {
    const TrainedModel model = load_trained_model(*evaluated_, {.path = evaluated_->checkpoint.path,
                                                                .model = args_.model_name(),
                                                                .dataset = "imagenet",
                                                                .num_classes = args_.num_of_class,
                                                                .image_size = args_.crop_size,
                                                                .tells_input = false});
    exe_.scope().copy_from(*model.parameters);
    core::log::info("evaluating {}", evaluated_->checkpoint.path);
  }
  if (args_.start_epoch >= args_.epochs) {
    core::log::info("nothing is left to do: {} epochs are done of --epochs={}", args_.start_epoch, args_.epochs);
  }
  for (int64_t epoch = args_.start_epoch; epoch < args_.epochs && !stopping(); ++epoch) {
    if (args_.trains()) train(epoch);
    if (evaluates_after(epoch)) {
      if (!stopping()) {
        evaluate(epoch);
      } else if (trained_whole_) {
        session_->cut_evaluation().set_missing(true);  // also where the stop came while the epoch was saved
      }
    }
    // The stop came in front of the evaluation or in it: the next run repeats it.
    if (args_.trains() && stopping() && (!saved_ || session_->cut_evaluation().changed())) save(epoch);
  }
  if (train_summary_.is_updated()) log_info(report_, {}, train_summary_.metrics(), Mode::kTrain);
  if (eval_summary_.is_updated()) log_info(report_, {}, eval_summary_.metrics(), Mode::kEval);
  return {train_summary_.metrics(), eval_summary_.metrics(), stopping()};
}

}  // namespace

ProgramResult train_and_evaluate(Arguments args, std::ostream& out, const core::StopToken& stop) {
  settle(args);
  if (args.data_layout != Arguments().data_layout) {
    core::log::warning(
        "--data_layout has no effect: nothing is fed by hand, and the computation has a layout of its own");
  }
  return Run(std::move(args), out, stop).run_with_others();
}

}  // namespace trainyard::frontends::program
