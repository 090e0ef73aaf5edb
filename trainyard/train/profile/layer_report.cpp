#include "trainyard/train/profile/layer_report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/train/profile/device_time.h"

namespace trainyard::train {
namespace {

using Phase = nn::NodeRun::Phase;

template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Nodes that some run names together are one row: its number is its first node's.
std::vector<int> rows_of(std::span<const StepRecord> steps, size_t nodes) {
  std::vector<int> parent(nodes);
  std::iota(parent.begin(), parent.end(), 0);
  const std::function<int(int)> root = [&](int node) {
    int& up = parent[static_cast<size_t>(node)];
    return up == node ? node : up = root(up);
  };
  for (const StepRecord& step : steps) {
    for (const NodeRecord& run : step.replicas.front().nodes) {
      for (const int node : run.nodes) {
        const auto [low, high] = std::minmax({root(run.nodes.front()), root(node)});
        parent[static_cast<size_t>(high)] = low;
      }
    }
  }
  for (size_t node = 0; node < nodes; ++node) parent[node] = root(static_cast<int>(node));
  return parent;
}

// A row's phase in one step.
struct Sum {
  double seconds = 0;
  int64_t flops = 0, bytes = 0;
  bool knows_flops = false, knows_bytes = true;

  void add(const NodeRecord& run, double run_seconds) {
    seconds += run_seconds;
    flops += run.flops.value_or(0);
    bytes += run.bytes.value_or(0);
    knows_flops |= run.flops.has_value();
    knows_bytes &= run.bytes.has_value();
  }
};

// A row over all steps: sums by phase and step. Steps without the row count as zeros.
struct Row {
  explicit Row(size_t steps) : forward(steps), backward(steps) {}
  std::vector<Sum> forward, backward;
  std::vector<std::string> kernels;
};

LayerTime over_steps(const std::vector<Sum>& steps, const std::vector<int>& nodes, Phase phase,
                     const nn::NodeCosts& costs) {
  std::vector<double> seconds;
  for (const Sum& step : steps) seconds.push_back(step.seconds);
  LayerTime time{.seconds = median(seconds)};
  if (time.seconds <= 0) return {};  // the phase does not run, as backward in inference
  const Sum& last = steps.back();
  time.flops = last.knows_flops ? last.flops : costs.flops(nodes, phase);
  time.bytes = last.knows_bytes ? last.bytes : costs.bytes(nodes, phase);
  return time;
}

double part_seconds(const ThreadRecord& thread, StepPart part) {
  double sum = 0;
  for (const PartRecord& record : thread.parts) {
    if (record.part == part) sum += core::seconds_between(record.begin, record.end);
  }
  return sum;
}

// What a step's runs took and had run, by the accelerator's clock where there is one.
class StepTimer {
 public:
  explicit StepTimer(const StepRecord& step) {
    if (step.device) device_ = device_times(step);
  }
  double seconds(const NodeRecord& run) const {
    if (!device_) return core::seconds_between(run.begin, run.end);
    const auto node = device_->nodes.find(&run);
    return node == device_->nodes.end() ? 0 : node->second.seconds;
  }
  std::vector<std::string> kernels(const NodeRecord& run) const {
    const bool told = device_ && device_->nodes.contains(&run) && !device_->nodes.at(&run).kernels.empty();
    return told ? device_->nodes.at(&run).kernels : std::vector<std::string>{run.kernel};
  }
  const std::optional<DeviceTimes>& device() const { return device_; }

 private:
  std::optional<DeviceTimes> device_;
};

std::vector<std::pair<std::string, double>> outside_on_device(const std::vector<StepTimer>& timers) {
  const auto over_steps = [&](double DeviceTimes::*part) {
    std::vector<double> seconds;
    for (const StepTimer& timer : timers) seconds.push_back((*timer.device()).*part);
    return median(seconds);
  };
  return {{"loss", over_steps(&DeviceTimes::loss)},     {"between layers", over_steps(&DeviceTimes::between_layers)},
          {"reduce", over_steps(&DeviceTimes::reduce)}, {"update", over_steps(&DeviceTimes::update)},
          {"rest", over_steps(&DeviceTimes::rest)},     {"idle", over_steps(&DeviceTimes::idle)}};
}

std::vector<KernelRow> kernel_rows(std::span<const StepRecord> steps) {
  std::map<std::string, KernelRow> by_name;
  for (const StepRecord& step : steps) {
    for (const DeviceWork& work : first_replicas_work(step)) {
      if (work.activity->kind == nn::DeviceActivity::Kind::kSpan) continue;
      KernelRow& row = by_name[work.activity->name];
      row.name = work.activity->name;
      ++row.calls;
      row.seconds +=
          core::seconds_between(work.activity->begin, work.activity->end) / static_cast<double>(steps.size());
    }
  }
  std::vector<KernelRow> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.seconds > b.seconds; });
  return rows;
}

std::vector<std::pair<std::string, double>> outside_of(std::span<const StepRecord> steps) {
  std::vector<double> input, loss, between, reduce, update, rest;
  for (const StepRecord& step : steps) {
    const ThreadRecord& replica = step.replicas.front();
    double nodes = 0;
    for (const NodeRecord& run : replica.nodes) {
      if (!run.nodes.empty()) nodes += core::seconds_between(run.begin, run.end);
    }
    const double passes = part_seconds(replica, StepPart::kForward) + part_seconds(replica, StepPart::kBackward);
    input.push_back(part_seconds(step.trainer, StepPart::kInput));
    loss.push_back(part_seconds(replica, StepPart::kLoss));
    between.push_back(passes - nodes);
    reduce.push_back(part_seconds(replica, StepPart::kReduce));
    update.push_back(part_seconds(replica, StepPart::kUpdate));
    rest.push_back(part_seconds(step.trainer, StepPart::kStep) - passes - input.back() - loss.back() - reduce.back() -
                   update.back());
  }
  return {{"input", median(input)},   {"loss", median(loss)},     {"between layers", median(between)},
          {"reduce", median(reduce)}, {"update", median(update)}, {"rest", median(rest)}};
}

}  // namespace

LayerReport layer_report(std::span<const StepRecord> steps, const nn::Graph& graph, const std::string& executor,
                         const nn::NodeCostOptions& cost) {
  if (steps.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "no step was recorded", .where = graph.name});
  }
  const nn::NodeCosts costs(graph, cost);
  const std::vector<int> row_of = rows_of(steps, graph.nodes.size());
  const std::vector<StepTimer> timers(steps.begin(), steps.end());
  std::map<int, Row> sums;
  std::vector<double> totals;
  for (size_t i = 0; i < steps.size(); ++i) {
    totals.push_back(part_seconds(steps[i].trainer, StepPart::kStep));
    for (const NodeRecord& run : steps[i].replicas.front().nodes) {
      if (run.nodes.empty()) continue;
      Row& row = sums.try_emplace(row_of[static_cast<size_t>(run.nodes.front())], steps.size()).first->second;
      (run.phase == Phase::kForward ? row.forward : row.backward)[i].add(run, timers[i].seconds(run));
      for (const std::string& kernel : timers[i].kernels(run)) {
        if (std::find(row.kernels.begin(), row.kernels.end(), kernel) == row.kernels.end()) {
          row.kernels.push_back(kernel);
        }
      }
    }
  }

  LayerReport report{.model = graph.name,
                     .executor = executor,
                     .steps = static_cast<int64_t>(steps.size()),
                     .batch_size = cost.batch * static_cast<int64_t>(steps.front().replicas.size()),
                     .step_seconds = median(totals)};
  const nn::Shape& input = graph.input_shape();
  if (input.size() == 3) report.image_size = {input[1], input[2]};
  for (auto& [first, sum] : sums) {
    LayerRow& row = report.rows.emplace_back();
    for (const nn::Node& node : graph.nodes) {
      if (row_of[static_cast<size_t>(node.id)] != first) continue;
      row.nodes.push_back(node.id);
      row.names.push_back(node.name);
      row.kinds.emplace_back(node.kind());
    }
    row.kernels = std::move(sum.kernels);
    row.forward = over_steps(sum.forward, row.nodes, Phase::kForward, costs);
    row.backward = over_steps(sum.backward, row.nodes, Phase::kBackward, costs);
  }
  if (const std::optional<DeviceRecord>& device = steps.front().device) {
    report.device = device->name;
    report.method = device->method;
    for (const StepRecord& step : steps) report.lost_records += step.device->lost;
    report.kernels = kernel_rows(steps);
    report.outside = outside_on_device(timers);
  } else {
    report.outside = outside_of(steps);
  }
  return report;
}

}  // namespace trainyard::train
