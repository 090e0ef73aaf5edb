#include "trainyard/cli/bench_update.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "trainyard/cli/bench_timing.h"
#include "trainyard/parallel/collectives/all_reduce_timing.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::cli {
namespace {

constexpr const char* kNames[] = {
    "copy", "optimizer", "optimizer of a part", "reduce, then update", "reduce and update", "checked in between"};

// Returns the median of an operation; 0 when it was not measured.
double median_of(const AllReduceBenchReport& report, const std::string& operation) {
  const auto found = std::find_if(report.updates.begin(), report.updates.end(),
                                  [&](const AllReduceTiming& timing) { return timing.operation == operation; });
  return found == report.updates.end() ? 0 : found->median_seconds;
}

}  // namespace

UpdateBench::UpdateBench(const AllReduceBenchOptions& options, const train::OpenDevices& devices,
                         const nn::Graph& graph, AllReduceBenchReport& report)
    : options_(options), report_(report) {
  const auto make_communicators = bench_communicators(devices);
  communicators_ = make_communicators ? make_communicators() : parallel::make_thread_communicators(devices.replicas);
  for (const auto& communicator : communicators_) communicator->set_deadline(kBenchDeadline);
  const auto make_optimizer = [&options](nn::ParameterSet& set) {
    return optim::optimizers().get(options.optimizer)(set, {.weight_decay = 1e-4});
  };
  const auto make = [&](const parallel::Sharding& sharding) {
    auto update = parallel::variable_updates().get(kBenchMode)({.replicas = devices.replicas,
                                                                .make_communicators = make_communicators,
                                                                .make_optimizers = {make_optimizer},
                                                                .deadline = kBenchDeadline,
                                                                .sharding = sharding});
    for (int r = 0; r < devices.replicas; ++r) {
      for (const nn::Node& node : graph.nodes) {
        for (const nn::ParameterSpec& spec : node.parameters) update->parameters(r).declare(spec);
      }
    }
    update->allocate();
    // Zeros stay zeros, however often they are summed.
    for (int r = 0; r < devices.replicas; ++r) update->parameters(r).gradients().zero_();
    return update;
  };
  using Use = parallel::Sharding::Use;
  whole_ = make({.use = Use::kNever});
  fused_ = make({.use = Use::kAlways, .decides_before_update = false});
  checked_ = make({.use = Use::kAlways});
  for (int r = 0; r < devices.replicas; ++r) {
    nn::ParameterSet& set = whole_->parameters(r);
    copies_.push_back(at::zeros_like(set.values()));
    auto optimizer = make_optimizer(set);
    const core::Communicator& self = *communicators_[static_cast<size_t>(r)];
    const auto boundary = [&](int64_t rank) {
      return rank == 0 ? 0 : optimizer->part_boundary(set.total() * rank / self.size());
    };
    optimizer->keep_part({boundary(self.rank()), boundary(self.rank() + 1)},
                         [](int64_t, at::ScalarType) { return at::Tensor(); });
    parts_.push_back(std::move(optimizer));
  }
  state_.write({.learning_rate = 1e-6});
}

parallel::VariableUpdate& UpdateBench::update_of(Operation operation) const {
  return operation == kFused ? *fused_ : operation == kChecked ? *checked_ : *whole_;
}

void UpdateBench::execute(Operation operation, int replica) {
  const auto own = static_cast<size_t>(replica);
  parallel::VariableUpdate& update = update_of(operation);
  nn::ParameterSet& set = update.parameters(replica);
  switch (operation) {
    case kCopy:
      std::memcpy(copies_[own].mutable_data_ptr(), set.values().const_data_ptr(), set.values().nbytes());
      return;
    case kOptimizer:
      return update.update(replica, state_);
    case kPart: {
      const auto width = set.gradients().element_size();
      auto* const gradients = static_cast<std::byte*>(set.gradients().mutable_data_ptr());
      parts_[own]->update_part(
          state_, {.gradients = [&](int64_t begin, int64_t) { return gradients + static_cast<size_t>(begin) * width; },
                   .updated = [](int64_t, int64_t) {}});
      return parts_[own]->finish_update();
    }
    default:
      update.reduce(replica);
      update.update(replica, state_);
  }
}

void UpdateBench::run(int replica) {
  const at::NoGradGuard without_gradients;
  core::Communicator& self = *communicators_[static_cast<size_t>(replica)];
  std::vector<double> seconds[kOperations];
  const int64_t warmup = std::min<int64_t>(options_.warmup_batches, 3);
  for (int64_t turn = -warmup; turn < options_.batches; ++turn) {
    for (int operation = 0; operation < kOperations; ++operation) {
      const std::vector<double> one = parallel::time_each(
          1, [&] { self.barrier(); }, [&] { execute(static_cast<Operation>(operation), replica); });
      if (turn >= 0) seconds[operation].push_back(one[0]);
    }
  }
  const auto bytes = static_cast<int64_t>(whole_->parameters(replica).values().nbytes());
  for (int operation = 0; operation < kOperations; ++operation) {
    const AllReduceTiming timing = slowest_timing(self, bytes, kNames[operation], seconds[operation]);
    if (self.rank() == 0) report_.updates.push_back(timing);
  }
}

void UpdateBench::abort(const core::Error& error) {
  communicators_[0]->abort(error);
  for (parallel::VariableUpdate* update : {whole_.get(), fused_.get(), checked_.get()}) update->abort(error);
}

std::string update_bench_table(const AllReduceBenchReport& report) {
  if (report.updates.empty()) return "";
  const double copy = median_of(report, kNames[0]), optimizer = median_of(report, kNames[1]);
  std::string text = fmt::format(
      "\n{} bytes of parameters, {}, {} ranks; each time is that of the slowest rank; copies more than the "
      "optimizer\n\n"
      "{:<20}{:>6}{:>12}{:>12}{:>10}{:>10}\n",
      report.updates.front().bytes, report.optimizer, report.ranks, "operation", "times", "median", "p95", "copies",
      "more");
  for (const AllReduceTiming& timing : report.updates) {
    text += fmt::format("{:<20}{:>6}{:>12}{:>12}{:>10.2f}{:>10.2f}\n", timing.operation, timing.times,
                        time_text(timing.median_seconds), time_text(timing.p95_seconds), timing.median_seconds / copy,
                        (timing.median_seconds - optimizer) / copy);
  }
  return text;
}

}  // namespace trainyard::cli
