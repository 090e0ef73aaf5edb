// Runs programs (program.h): an executor that holds the parameters that they share by name, and the devices; and epochs
// over the batches of a loader, with a report.
//
//   Loader dataloader = build_dataloader(args, Mode::kTrain);
//   Executor exe(args.places);
//   exe.run(startup);
//   Report report(std::cout, args.report_file);
//   run(args, dataloader, exe, main, train.fetchs, epoch, Mode::kTrain, train.lr_scheduler.get(), report);
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/paddle/arguments.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::data {
class SwitchedSource;
}

namespace trainyard::train {
class LineFile;
class RankEvaluations;
}  // namespace trainyard::train

namespace trainyard::frontends::program {
struct LoadedData;  // frontends/paddle/loader.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

struct ExecutorOptions {
  at::ScalarType dtype = at::kFloat;               // kDouble for numerical tests: not with AMP
  uint64_t seed = 0;                               // seed of the parameters and of random layers
  int intra_op_threads = 0;                        // of all places together; 0: the cores that this process may use
  std::vector<core::ThreadPlacement> placement{};  // one a place; empty: anywhere
};

// Values by the names of a program's feeds.
using Feed = core::NamedTensors;

// One thread at a time.
class Executor {
 public:
  // `places` are devices as in options/device_names.h. Each trains on its own batches, and gradients are averaged.
  // Throws as read_device_names() and train::open_devices() do, and kInvalidArgument when mpirun or srun has started
  // several processes, which would not train together.
  explicit Executor(const std::vector<std::string>& places = {"cpu:0"}, ExecutorOptions options = {});
  // Runs on devices that were opened, with the processes that they name: each has its own executor, with the same
  // programs, and gradients are averaged over all places.
  explicit Executor(train::OpenDevices devices, ExecutorOptions options = {});
  ~Executor();

  // Initializes the parameters of all programs that were built with this startup program. Call it once: throws
  // kInvalidArgument for a second call, and for a program that initializes nothing.
  void run(const Program& startup);

  // Runs a step of `program` on the feed, and returns the values in fetch_list, in order: scalars, and "label" [N]. A
  // training program updates its parameters with the rate of its LrScheduler; several places share the feed's samples
  // evenly. Throws kInvalidArgument for a program whose startup program has not run, for a feed that is missing or of
  // another shape or type, with program, feed, and both forms, and kNotFound for an unknown fetch.
  std::vector<at::Tensor> run(const Program& program, const Feed& feed, const std::vector<std::string>& fetch_list);

  // Makes `stop` end each current and later epoch of run(args, ...) below after its current step.
  void set_stop(core::StopToken stop);
  bool stopping() const { return stop_ && stop_->stop_requested(); }

  // Returns the parameters. Throws kInvalidArgument before a startup program has run.
  nn::ParameterSet& scope();
  // Runs `steps` on the batches of `source`, and calls `on_step` after each. For run() of an epoch.
  using OnStep = std::function<void(const train::StepView& step)>;
  void train(const Program& program, std::shared_ptr<data::BatchSource> source, const train::LoopOptions& steps,
             const OnStep& on_step);
  // Collective: begins an evaluation over the batches of `source`, and returns the global step. For run() of an epoch.
  int64_t begin_evaluation(const data::BatchSource& source);
  // Returns the steps of the last epoch of train(), in this run or in the loaded one; 0: none.
  [[nodiscard]] int64_t steps_per_epoch() const;
  // Return the trainer and evaluator of the program, for saving, inspection and measurements. Throw as run() does.
  train::TowerTrainer& trainer(const Program& program);
  train::Evaluator& evaluator(const Program& program);
  const train::OpenDevices& device() const { return device_; }

 private:
  class StepHook;
  void require_ready(const Program& program) const;
  void make_trainer(const Program::Body& main);
  void train_steps(const train::LoopOptions& steps, const OnStep& on_step);
  std::vector<data::Batch> batches_of(const Program& program, const Feed& feed) const;

  ExecutorOptions options_;
  int places_ = 1;
  train::OpenDevices device_;
  nn::AcceleratorScope on_devices_;  // directs the thread's work to the devices
  std::optional<core::StopToken> stop_;
  std::shared_ptr<Program::Body> startup_;  // startup program that has run
  std::shared_ptr<data::SwitchedSource> source_;
  std::unique_ptr<train::TowerTrainer> trainer_;
  std::shared_ptr<StepHook> hook_;                // of trainer_
  std::unique_ptr<nn::ParameterSet> parameters_;  // when there is no trainer
  std::map<std::shared_ptr<Program::Body>, std::unique_ptr<train::Evaluator>> evaluators_;
  std::unique_ptr<train::RankEvaluations> evaluations_;
};

// Makes the weights of the training program 2:4 by `mask_algo` (optim::MaskAlgorithm), except for the layer
// of the logits; the masks are kept from then on. Existing masks, such as those of a loaded checkpoint, are kept
// instead. Throws what train::prune_training() throws.
std::vector<optim::LayerSparsity> prune_model(Executor& exe, const Program& program, const std::string& mask_algo);

// The batches of a training or an evaluation, and facts about their data.
class Loader {
 public:
  // Uses `steps` batches of the source as an epoch: "images" and "labels", one batch per place for a training, a single
  // one for an evaluation. Retries a batch that cannot be read once, with a warning.
  // `data` is build_dataloader()'s, for checkpoints; null: nothing is known of the data.
  Loader(std::shared_ptr<data::BatchSource> source, int64_t steps, std::shared_ptr<const LoadedData> data = nullptr);

  int64_t steps() const { return steps_; }
  const std::shared_ptr<data::BatchSource>& source() const { return source_; }
  const LoadedData& data() const { return *data_; }

 private:
  std::shared_ptr<data::BatchSource> source_;
  int64_t steps_;
  std::shared_ptr<const LoadedData> data_;
};

// Returns the images of args.image_root/train or val, a folder for each class, made as the example makes them; or
// synthetic images, as many as in ImageNet, without an image_root. An epoch of training has as many whole batches as
// needed for every image to be in one; the last one is filled with images of the next epoch. An evaluation uses every
// image once, and its last batch is shorter. Throws what opening the data throws.
[[nodiscard]] Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device = {});
// Does the same for an evaluation whose labels are numbered by the classes of `training`, the loader of its training.
[[nodiscard]] Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device,
                                      const Loader& training);

// Writes the report of a run: lines on the console, and the same as JSON objects, one per line, in the report file,
// both in the form of DLLogger, which NVIDIA's examples use (docs/howto/paddle_program.md).

using Metrics = std::vector<std::pair<std::string, double>>;
// {epoch, iteration}, {epoch}, or {} for the summary.
using Step = std::vector<int64_t>;

class Report {
 public:
  // Prints to `out`, and writes into the file if `path` is not empty. With `append` adds to the existing lines, else
  // replaces them when the first line is written. Throws kIo, kNoSpace and so on when it cannot be opened.
  Report(std::ostream& out, const std::string& path, bool append = false);

  // Writes the options, as text in JSON by name.
  void parameters(const std::vector<std::pair<std::string, std::string>>& options);
  // Writes numbers; those that are not finite are texts in JSON: "nan", "inf", "-inf". Throws kIo, kNoSpace.
  void log(const Step& step, const Metrics& metrics);

  // Sets the clock, which returns seconds since the Unix epoch; for tests.
  void set_clock(std::function<double()> clock) {
    clock_ = std::move(clock);
    start_ = clock_();
  }

 private:
  void write(const std::string& shown_step, const std::string& json_step,
             const std::vector<std::pair<std::string, std::string>>& shown, const std::string& json);

  std::ostream& out_;
  std::string path_;
  std::shared_ptr<train::LineFile> file_;
  bool truncates_ = false;
  std::function<double()> clock_;
  double start_ = 0;
};

// Writes metrics with the prefix "train." or "val." before each name.
void log_info(Report& report, const Step& step, const Metrics& metrics, Mode mode);

// The best of each metric over epochs: the largest of top1, top5 and ips, the smallest of all others.
class MetricSummary {
 public:
  void update(const Metrics& metrics);
  bool is_updated() const { return !best_.empty(); }
  const Metrics& metrics() const { return best_; }

 private:
  Metrics best_;
};

// The position in an epoch that an earlier run has not completed.
struct EpochStart {
  int64_t step = 0;  // steps of the epoch that are done
};

// Runs `program` for an epoch (from 0), or for benchmark_warmup_steps and benchmark_steps with args.benchmark; fewer
// steps when the executor's stop was requested. Advances the scheduler after each step. Batches go from the loader's
// source to the places as in any training, made ahead and without a copy.
//
// Resets the meters of `fetchs`, and reports every args.print_interval steps: loss, top1, top5, data_time,
// compute_time, batch_time (seconds), ips (images a second, of all places) and, in a training, lr. Reports and returns
// at the end: loss, epoch_time (seconds), ips, and in an evaluation top1 and top5. A benchmark reports nothing at its
// end and returns ips, over the steps after its warm-up, and in an evaluation latency_avg, latency_p90, latency_p95 and
// latency_p99 (milliseconds a batch, percentiles as numpy.quantile() has them); data that end before it are restarted.
// Returns nothing when it was stopped.
//
// Throws kInvalidArgument for a training without a scheduler, and what steps, reading and the report throw.
Metrics run(const Arguments& args, const Loader& loader, Executor& exe, const Program& program, Fetchs& fetchs,
            int64_t epoch, Mode mode, LrScheduler* lr_scheduler, Report& report, const EpochStart& start = {});

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
