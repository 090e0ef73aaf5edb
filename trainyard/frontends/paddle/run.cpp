#include <numeric>
#include <string>
#include <vector>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/profile/percentile.h"
#include "trainyard/train/session/rank_evaluation.h"

namespace trainyard::frontends::program {
namespace {

// What one step gave.
struct StepResult {
  double loss = 0, top1 = 0, top5 = 0;
  int64_t samples = 0;   // of all places
  double data_time = 0;  // seconds of waiting for the batch
};

StepResult result_of(const train::StepView& view) {
  StepResult result{.data_time = view.times.input};
  double top1 = 0, top5 = 0;
  for (const train::ReplicaView& replica : view.replicas) {
    const at::Tensor output = replica.output(), labels = replica.batch.labels().to(output.device());
    const int64_t samples = labels.size(0);
    result.samples += samples;
    result.loss += replica.loss().item<double>() * static_cast<double>(samples);
    top1 += nn::top_k_correct(output, labels, 1).item<double>();
    top5 += nn::top_k_correct(output, labels, 5).item<double>();
  }
  const auto samples = static_cast<double>(result.samples);
  result.loss /= samples;
  result.top1 = top1 / samples;
  result.top5 = top5 / samples;
  return result;
}

// Collective: returns what the steps of all ranks gave, the same on all of them. Null `ranks`: this process is alone.
StepResult over_ranks(parallel::ProcessGroup* ranks, const StepResult& own) {
  if (ranks == nullptr) return own;
  core::BodyWriter body;
  body.real(own.loss).real(own.top1).real(own.top5);
  StepResult all{.data_time = own.data_time};
  for (const std::string& text : ranks->gather("the results of a step", body.number(own.samples).take())) {
    core::BodyReader part(text);
    double values[3];
    for (double& value : values) value = part.real();
    const int64_t count = part.number();
    const auto samples = static_cast<double>(count);
    all.loss += values[0] * samples;
    all.top1 += values[1] * samples;
    all.top5 += values[2] * samples;
    all.samples += count;
  }
  const auto samples = static_cast<double>(all.samples);
  all.loss /= samples;
  all.top1 /= samples;
  all.top5 /= samples;
  return all;
}

// The meters of a run, and what is said of them.
class Meters {
 public:
  Meters(const Arguments& args, Fetchs& fetchs, int64_t epoch, Mode mode, LrScheduler* lr_scheduler, Report& report)
      : args_(args), fetchs_(fetchs), epoch_(epoch), mode_(mode), lr_scheduler_(lr_scheduler), report_(report) {
    for (Fetch& fetch : fetchs_.all) {
      if (fetch.meter) fetch.meter->reset();
    }
    tic_ = core::steady_seconds();
  }

  // Takes in the `iteration`-th step, from 1.
  void step(int64_t iteration, const StepResult& result) {
    meter("loss").update(result.loss, result.samples);
    meter("top1").update(result.top1, result.samples);
    meter("top5").update(result.top5, result.samples);
    samples_ += result.samples;
    const double batch_time = core::steady_seconds() - tic_;
    data_time_.update(result.data_time);
    compute_time_.update(batch_time - result.data_time);
    batch_time_.update(batch_time);
    const double lr = mode_ == Mode::kTrain ? lr_scheduler_->get_lr() : 0;
    if (lr_scheduler_ != nullptr) lr_scheduler_->step();
    tic_ = core::steady_seconds();
    if (iteration % args_.print_interval == 0) print(iteration, result.samples, lr);
    if (args_.benchmark) note_latency(iteration);
  }

  // The time that the data need to restart is not part of a step.
  void restart_clock() { tic_ = core::steady_seconds(); }

  Metrics epoch_data() {
    Metrics data{{"loss", meter("loss").avg()}, {"epoch_time", batch_time_.sum()}, {"ips", images_per_second()}};
    if (mode_ == Mode::kEval) {
      data.emplace_back("top1", meter("top1").avg());
      data.emplace_back("top5", meter("top5").avg());
    }
    log_info(report_, {epoch_}, data, mode_);
    return data;
  }

  Metrics benchmark_data(int64_t iteration) const {
    core::log::info("End benchmark at epoch step {}", iteration);
    Metrics data{{"ips", images_per_second()}};
    if (mode_ == Mode::kTrain) return data;
    data.emplace_back("latency_avg",
                      std::accumulate(latency_.begin(), latency_.end(), 0.0) / static_cast<double>(latency_.size()));
    data.emplace_back("latency_p90", train::interpolated_quantile(latency_, 0.90));
    data.emplace_back("latency_p95", train::interpolated_quantile(latency_, 0.95));
    data.emplace_back("latency_p99", train::interpolated_quantile(latency_, 0.99));
    return data;
  }

 private:
  AverageMeter& meter(const char* name) { return fetchs_[name].meter.value(); }
  // The last batch of an evaluation may be shorter: images are counted.
  double images_per_second() const { return static_cast<double>(samples_) / batch_time_.sum(); }

  void print(int64_t iteration, int64_t samples, double lr) {
    Metrics line{{"loss", meter("loss").val()},
                 {"top1", meter("top1").val()},
                 {"top5", meter("top5").val()},
                 {"data_time", data_time_.val()},
                 {"compute_time", compute_time_.val()},
                 {"batch_time", batch_time_.val()},
                 {"ips", static_cast<double>(samples) / batch_time_.val()}};
    if (mode_ == Mode::kTrain) line.emplace_back("lr", lr);
    log_info(report_, {epoch_, iteration}, line, mode_);
  }

  void note_latency(int64_t iteration) {
    latency_.push_back(1e3 * batch_time_.val());
    if (iteration != args_.benchmark_warmup_steps) return;
    data_time_.reset();
    compute_time_.reset();
    batch_time_.reset();
    latency_.clear();
    samples_ = 0;
    core::log::info("Begin benchmark at step {}", iteration + 1);
  }

  const Arguments& args_;
  Fetchs& fetchs_;
  int64_t epoch_;
  Mode mode_;
  LrScheduler* lr_scheduler_;
  Report& report_;
  AverageMeter batch_time_{"batch_time", ".5f", " s,"}, data_time_{"data_time", ".5f", " s,"},
      compute_time_{"compute_time", ".5f", " s,"};
  std::vector<double> latency_;  // milliseconds
  int64_t samples_ = 0;          // in batch_time_
  double tic_ = 0;
};

}  // namespace

Metrics run(const Arguments& args, const Loader& loader, Executor& exe, const Program& program, Fetchs& fetchs,
            int64_t epoch, Mode mode, LrScheduler* lr_scheduler, Report& report, const EpochStart& start) {
  const int64_t steps = args.benchmark ? args.benchmark_warmup_steps + args.benchmark_steps : loader.steps();
  int64_t done = start.step;
  parallel::ProcessGroup* const ranks = exe.device().processes.get();
  if (mode == Mode::kTrain && lr_scheduler == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "a training needs a scheduler of the learning rate");
  }
  Meters meters(args, fetchs, epoch, mode, lr_scheduler, report);
  if (mode == Mode::kTrain) {
    exe.train(program, loader.source(),
              {.steps_per_epoch = steps, .starting_epoch = epoch + 1, .max_epoch = epoch + 1, .starting_step = done},
              [&](const train::StepView& view) { meters.step(++done, over_ranks(ranks, result_of(view))); });
  } else {
    done = 0;
    if (loader.steps() < 1) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "an evaluation needs steps",
                                                            .where = "the loader of program '" + program.name() + "'",
                                                            .expected = "at least 1",
                                                            .actual = std::to_string(loader.steps())});
    }
    train::Evaluator& evaluator = exe.evaluator(program);
    core::apply_team_affinity();
    const int64_t step = exe.begin_evaluation(*loader.source());
    const auto evaluate = [&] {
      if (exe.stopping()) throw core::Error(core::ErrorCode::kCancelled, "a stop was asked for");
      return evaluator.run(*loader.source(), 1, /*may_be_empty=*/ranks != nullptr);
    };
    for (; done < steps; ++done) {
      if (done % loader.steps() == 0) {
        loader.source()->seek({});  // in a benchmark, too, when the data have ended
        meters.restart_clock();
      }
      train::Evaluation result;
      try {
        result = train::evaluate_over_ranks(ranks, evaluate);
      } catch (const core::Error& error) {
        if (error.code() != core::ErrorCode::kCancelled) throw;
        break;
      }
      if (ranks != nullptr && done == 0) ranks->progress("evaluation", step);
      meters.step(done + 1, {result.loss, result.top_1, result.top_5, result.samples, result.input_seconds});
    }
  }
  if (done < steps) return {};
  return args.benchmark ? meters.benchmark_data(done) : meters.epoch_data();
}

}  // namespace trainyard::frontends::program
