#include "trainyard/nn/cpu/plan/plan.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <omp.h>

#include "trainyard/core/base/work_count.h"
#include "trainyard/nn/cpu/plan/plan_builder.h"
#include "trainyard/nn/execution/value_observer.h"

namespace trainyard::nn::cpu {
namespace {

using Clock = NodeRun::Clock;

// Makes NaN of the rows of samples whose values were not finite where they were rounded to bytes.
void mark_non_finite(const std::vector<uint8_t>& non_finite, at::Tensor& output) {
  for (size_t n = 0; n < non_finite.size(); ++n) {
    if (non_finite[n] != 0) output.select(0, static_cast<int64_t>(n)).fill_(std::numeric_limits<float>::quiet_NaN());
  }
}

// Keeps the calling thread's team from being larger than the one that a plan has scratch memory for.
class TeamLimit {
 public:
  explicit TeamLimit(int most) : before_(omp_get_max_threads()) {
    if (most > 0 && before_ > most) omp_set_num_threads(most);
  }
  TeamLimit(const TeamLimit&) = delete;
  TeamLimit& operator=(const TeamLimit&) = delete;
  ~TeamLimit() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

// Observers get the numbers that bytes are, with pad lanes of zero.
at::Tensor Plan::view_of(const Run& run, const Made& made) {
  if (made.dtype == DataType::kUint8) {
    at::Tensor floats = at::empty({made.elements}, at::kFloat);
    const auto* const bytes = run.at<uint8_t>(made.buffer);
    auto* const to = floats.mutable_data_ptr<float>();
    const int64_t block = made.map.block, pixels = made.map.pixels();
    for (int64_t i = 0; i < made.elements; ++i) {
      const bool pad = block > 0 && i / (pixels * block) % made.map.blocks() * block + i % block >= made.map.channels;
      to[i] = pad ? 0 : made.scale.scale * static_cast<float>(bytes[i] - made.scale.zero_point);
    }
    return floats;
  }
  return at::from_blob(run.at(made.buffer), {made.elements},
                       made.dtype == DataType::kBfloat16 ? at::kBFloat16 : at::kFloat);
}

template <typename Work>
void Plan::observed(Run& run, NodeObserver* observer, const PlanStep* step, NodeRun::Phase phase,
                    std::span<const Made> made, const Work& work) {
  if (observer == nullptr) return work();
  const Clock::time_point begin = Clock::now();
  work();
  NodeRun node_run{.phase = phase, .kernel = "sum of gradients", .begin = begin, .end = Clock::now()};
  if (step != nullptr) {
    node_run.nodes = step->nodes;
    node_run.kernel = step->kernel;
  }
  observer->ran(node_run);
  auto* const value_observer = dynamic_cast<ValueObserver*>(observer);
  if (value_observer == nullptr) return;
  std::vector<at::Tensor> values;
  for (const Made& each : made) values.push_back(view_of(run, each));
  value_observer->made(node_run, values);
}

Plan::Plan(const Graph& graph, const BuildContext& context, const Layers& layers, const PlanOptions& options)
    : options_(options), in_8_bits_(context.quantization != nullptr) {
  PlanBuilder(*this, graph, context, layers).build();
}

Plan::~Plan() = default;

int64_t Plan::packed_bytes() const {
  int64_t sum = 0;
  for (const auto& step : steps_) sum += step->packed_bytes();
  return sum;
}

// Allocates the memory of a new run, which keeps it for later passes.
void Plan::bind(Run& run) const {
  if (run.arena.defined()) return;
  run.arena = at::empty({std::max<int64_t>(memory_.total_bytes(), 1)}, at::kByte);
  auto* const base = reinterpret_cast<std::byte*>(run.arena.data_ptr());
  run.pointers.resize(static_cast<size_t>(memory_.size()));
  for (int i = 0; i < memory_.size(); ++i) run.pointers[static_cast<size_t>(i)] = base + memory_.offset({i});
  run.kept.resize(steps_.size());
}

bool Plan::has_backward() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Edge& output) { return output.gradient.valid(); });
}

std::vector<at::Tensor> Plan::forward(Run& run, const std::vector<at::Tensor>& inputs, const StepRandom& random,
                                      NodeObserver* observer) const {
  bind(run);
  run.random = random;
  run.inputs = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    run.pointers[static_cast<size_t>(inputs_[i].data.index)] = reinterpret_cast<std::byte*>(inputs[i].data_ptr());
  }
  run.bounds.assign(value_count_, kUnbounded);
  if (in_8_bits_) run.non_finite.assign(static_cast<size_t>(options_.batch), 0);
  for (size_t i = 0; i < steps_.size(); ++i) {
    observed(run, observer, steps_[i].get(), NodeRun::Phase::kForward, {&made_[i], 1},
             [&] { steps_[i]->forward(run); });
    core::count_work();
    run.bounds[static_cast<size_t>(steps_[i]->output())] = steps_[i]->bound(run);
  }
  std::vector<at::Tensor> outputs;
  for (const Edge& output : outputs_) {
    outputs.push_back(at::from_blob(run.at(output.data), output.shape, at::kFloat).clone());
    mark_non_finite(run.non_finite, outputs.back());
  }
  return outputs;
}

std::vector<at::Tensor> Plan::backward(Run& run, const std::vector<at::Tensor>& output_gradients,
                                       NodeObserver* observer) const {
  const TeamLimit team(options_.threads);  // a backward may run in another thread than its forward
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].gradient.valid()) continue;
    at::Tensor place = at::from_blob(run.at(outputs_[i].gradient), outputs_[i].shape, at::kFloat);
    output_gradients[i].defined() ? place.copy_(output_gradients[i]) : place.zero_();
  }
  for (const BackwardEntry& entry : backward_) {
    const PlanStep* const step = entry.step == kNoStep ? nullptr : steps_[static_cast<size_t>(entry.step)].get();
    observed(run, observer, step, NodeRun::Phase::kBackward, entry.made, [&] { entry.run(run); });
    core::count_work();
  }
  std::vector<at::Tensor> input_gradients;
  for (const Edge& input : inputs_) {
    at::Tensor& gradient = input_gradients.emplace_back();
    if (input.gradient.valid()) gradient = at::from_blob(run.at(input.gradient), input.shape, at::kFloat).clone();
  }
  return input_gradients;
}

}  // namespace trainyard::nn::cpu
