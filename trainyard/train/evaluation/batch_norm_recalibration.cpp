#include "trainyard/train/evaluation/batch_norm_recalibration.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/graph/training_options.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/step/graph_inputs.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

// Returns the indices in `set` of the running statistics of all batch norms.
std::vector<int> statistics_of(const nn::Graph& graph, const nn::ParameterSet& set) {
  std::vector<int> indices;
  for (const nn::Node& node : graph.nodes) {
    if (!std::holds_alternative<nn::BatchNorm>(node.op)) continue;
    for (const nn::BufferSpec& buffer : node.buffers) indices.push_back(set.find_buffer(buffer.name).value());
  }
  return indices;
}

}  // namespace

void recalibrate_batch_norms(const RecalibrationOptions& options, nn::ParameterSet& parameters,
                             data::BatchSource& source, int64_t batches) {
  if (batches < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "batch norms cannot be recalibrated over no batches",
                                              .expected = "at least 1",
                                              .actual = std::to_string(batches)});
  }
  const at::NoGradGuard without_gradients;
  // With a decay of 0 the running statistics are those of the last batch.
  const nn::Graph graph = nn::with_batch_norm_decay(nn::main_output_graph(options.graph), 0);
  nn::ParameterSet measured = nn::ParameterSet::sharing_values(parameters);
  const auto executor = nn::make_executor(options.devices.executor, graph,
                                          {.device = parameters.values().device(),
                                           .dtype = options.devices.dtype,
                                           .mode = nn::Mode::kTraining,
                                           .kernels = options.devices.kernels,
                                           .parameters = &measured});
  const std::vector<std::string> inputs = input_names(graph);
  const std::vector<int> statistics = statistics_of(graph, measured);
  std::vector<at::Tensor> sums;
  for (const int index : statistics) sums.push_back(at::zeros_like(measured.buffer(index), at::kDouble));
  int64_t counted = 0;
  for (int64_t done = 0; done < batches; ++done) {
    if (options.stops && options.stops()) throw Error(ErrorCode::kCancelled, "a recalibration was stopped");
    const std::vector<data::Batch> next = source.next();
    if (next.empty()) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "the input of a recalibration ended early",
                                                .expected = fmt::format("{} batches", batches),
                                                .actual = fmt::format("{} batches", done)});
    }
    for (const data::Batch& batch : next) {
      if (batch.samples() == 0) continue;
      executor->run(inference_inputs(batch.tensors, inputs),
                    {.seed = options.seed, .step = done, .first_sample = batch.first_sample});
      for (size_t s = 0; s < statistics.size(); ++s) sums[s].add_(measured.buffer(statistics[s]));
      ++counted;
    }
  }
  for (size_t s = 0; s < statistics.size(); ++s) {
    parameters.buffer(statistics[s]).copy_(sums[s].div_(std::max<int64_t>(counted, 1)));
  }
  parameters.values_changed();
}

RecalibrationCallback::RecalibrationCallback(Options options) : options_(std::move(options)) {}

void RecalibrationCallback::after_step(Trainer& trainer, const StepView& view) {
  const LoopOptions& loop = trainer.loop();
  if (trainer.epoch() == loop.max_epoch && trainer.step_in_epoch() == loop.steps_per_epoch) run(view.global_step + 1);
}

void RecalibrationCallback::run(int64_t global_step) {
  if (last_step_ == global_step) return;
  core::apply_team_affinity();
  core::log::info("recalibrating the batch norms over {} batches", options_.batches);
  try {
    recalibrate_batch_norms(options_.norms, options_.parameters(), *options_.make_source(), options_.batches);
    last_step_ = global_step;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
    core::log::warning("{}: batch norms keep the statistics that they had", error.what());
  }
}

}  // namespace trainyard::train
