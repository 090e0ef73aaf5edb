#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/frontends/tf_cnn/cluster_run.h"
#include "trainyard/frontends/tf_cnn/compliance_facts.h"
#include "trainyard/frontends/tf_cnn/find_learning_rate.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/input_lines.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/own_header.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/frontends/tf_cnn/run_header.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/train/devices/device_room.h"

namespace trainyard::frontends {

namespace {

RunStatistics run_mode(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  if (run.options.range_test) return {.stopped_by_signal = write_range_test(run, out, stop)};
  switch (run.mode()) {
    case RunMode::kEvaluation:
      return run_evaluation(run, out, stop);
    case RunMode::kForwardOnly:
      return run_forward_only(run, out, stop);
    case RunMode::kTraining:
    case RunMode::kTrainingAndEvaluation:
      break;
  }
  return run_training(run, out, stop);
}

RunStatistics run_prepared(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  const nn::AcceleratorScope on_device = run.device.use();
  if (!run.own_dialect()) {
    // Its lines do not say so.
    core::log::info("Trainyard {} ({})", core::build_info().version, core::build_info().git_revision);
  }
  print_run_header(run.own_dialect() ? own_header_rows(run) : run_header_rows(run), out);
  if (run.options.describe_input) {
    out << input_lines(run.input) << std::flush;
    return {};
  }
  if (!run.options.plot_schedule.empty()) {
    write_schedule_plot(run, out);
    return {};
  }
  // Evaluation and forward passes run on this thread, with all cores; replicas have threads of their own.
  const ThreadSettings& threads = run.threads;
  if (threads.print || (threads.affinity && threads.affinity->verbose)) {
    for (const std::string& line : threads.lines()) core::log::info("{}", line);
  }
  core::apply_thread_options(
      {.name = "trainyard", .intra_op_threads = threads.intra_op_threads, .placement = threads.main});
  const std::shared_ptr<nn::Accelerator> accelerator = run.device.accelerator();
  if (accelerator == nullptr) return run_mode(run, out, stop);
  RunStatistics statistics;
  // Steps say more; this is for models that are made, weights that are read, evaluations.
  train::run_or_explain(*accelerator, {}, [&] { statistics = run_mode(run, out, stop); });
  return statistics;
}

void refuse_together(bool holds, const std::string& problem, const char* remedy) {
  if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
}

TfCnnOptions options_of(const BenchmarkParams& params) {
  std::vector<std::string> arguments;
  arguments.reserve(params.size());
  for (const auto& [name, value] : params) arguments.push_back("--" + name + "=" + value);
  return read_options(core::parse_flags(tf_cnn_flags(), arguments), Dialect::kTfCnnBenchmarks);
}

// Runs what devices and data have, alone or with other processes.
RunStatistics run_on_devices(const TfCnnOptions& params, const OwnParts& own,
                             const std::shared_ptr<ControllerLink>& controller, std::ostream& out,
                             const core::StopToken& stop) {
  const bool alone = !params.device.many_processes();
  std::shared_ptr<ComplianceLog> compliance;
  if (params.display.ml_perf_compliance_logging) {
    compliance = std::make_shared<ComplianceLog>(compliance_log_options(params.model));
  }
  // Before anything is read; with other processes, by the chief alone, once they have met.
  if (compliance && alone) compliance->write("run_start");
  PreparedRun run = prepare(params, own);
  if (compliance && run.device.is_chief()) {
    if (!alone) compliance->write("run_start");
    run.compliance = std::make_shared<ComplianceRun>(compliance, compliance_facts(run));
  }
  run.controller = controller;
  if (run.device.processes == nullptr) return run_prepared(run, out, stop);
  std::ostream nowhere(nullptr);
  std::ostream& lines = controller != nullptr ? controller->out() : run.prints() ? out : nowhere;
  RunStatistics statistics;
  run.device.report_what_fails([&] {
    statistics = run_prepared(run, lines, stop);
    if (controller != nullptr) controller->end(statistics);
    run.device.leave();
  });
  return statistics;
}

}  // namespace

BenchmarkCnn::BenchmarkCnn(const BenchmarkParams& params, std::shared_ptr<const BenchmarkDataset> dataset,
                           std::shared_ptr<BenchmarkModel> model)
    : BenchmarkCnn(options_of(params), std::move(dataset), std::move(model)) {}

BenchmarkCnn::BenchmarkCnn(const TfCnnOptions& params, std::shared_ptr<const BenchmarkDataset> dataset,
                           std::shared_ptr<BenchmarkModel> model)
    : params_(std::make_shared<TfCnnOptions>(params)), dataset_(std::move(dataset)), model_(std::move(model)) {
  params.validate();
  if (dataset_ != nullptr) {
    const InputOptions& input = params.input;
    refuse_together(!input.data_dir.empty() || !input.data_name.empty(),
                    "a data set of the caller's own, and input.data_dir or data_name",
                    "leave input.data_dir and input.data_name empty, or pass no data set");
  }
  if (model_ == nullptr) return;
  refuse_together(params.auxiliary_heads, "a model of the caller's own, and auxiliary_heads",
                  "leave auxiliary_heads out: build_network() returns what outputs the model has");
  refuse_together(params.stochastic_depth || params.dropout || params.batch_norm_decay,
                  "a model of the caller's own, and stochastic_depth, dropout or batch_norm_decay",
                  "leave them out: build_network() says what the layers are");
  refuse_together(!params.input.epoch_sizes.empty(), "a model of the caller's own, and images that grow",
                  "leave input.epoch_sizes empty");
  const train::LossFunction loss = model_->loss_function();
  const LossOptions& asked = params.loss;
  refuse_together(loss && (asked.label_smoothing != 0 || asked.loss != "softmax" || asked.class_weights != "none" ||
                           !params.distillation.from.empty()),
                  "a loss of the caller's own, and label_smoothing, loss, class_weights or a teacher",
                  "leave loss.label_smoothing, loss.loss, loss.class_weights and distillation out, or return no "
                  "loss_function()");
}

RunStatistics BenchmarkCnn::run(std::ostream& out) {
  return run(out, core::StopSource().token());
}

RunStatistics BenchmarkCnn::run(std::ostream& out, const core::StopToken& stop) {
  for (const std::string& warning : params_->warnings) core::log::warning("{}", warning);
  const ClusterOptions& cluster = params_->device.cluster;
  if (cluster.is_server()) return run_parameter_server(*params_, out, stop);
  if (cluster.is_controller()) return run_controller(*params_, out, stop);
  std::shared_ptr<ControllerLink> controller;
  if (cluster.is_worker() && params_->device.variable_update == "distributed_all_reduce") {
    check_cluster(params_->device);
    fmt::print(out, "Starting worker {}\n", cluster.task_index);
    out.flush();
    controller = std::make_shared<ControllerLink>(params_->device);
  }
  try {
    return run_on_devices(*params_, {.dataset = dataset_, .model = model_}, controller, out, stop);
  } catch (const core::Error& error) {
    if (controller != nullptr) controller->fail(error);
    throw;
  }
}

}  // namespace trainyard::frontends
