#include "trainyard/cli/bench_all_reduce.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

#include <ATen/ops/full.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "trainyard/cli/bench_timing.h"
#include "trainyard/cli/bench_update.h"
#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/parallel/collectives/all_reduce_timing.h"
#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"
#include "trainyard/parallel/collectives/mpi/mpi_library.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/step/replica_threads.h"

namespace trainyard::cli {
namespace {

using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;
using Communicators = std::vector<std::unique_ptr<core::Communicator>>;

std::vector<core::ThreadOptions> replica_threads(int replicas) {
  std::vector<core::ThreadOptions> threads;
  for (int r = 0; r < replicas; ++r) threads.push_back({.name = fmt::format("replica {}", r), .intra_op_threads = 1});
  return threads;
}

// Throws kInternal unless each value is `expected`.
void check_sum(const at::Tensor& tensor, float expected, const char* operation) {
  const auto* const values = tensor.const_data_ptr<float>();
  const auto wrong = std::find_if(values, values + tensor.numel(), [&](float value) { return value != expected; });
  if (wrong == values + tensor.numel()) return;
  throw Error(ErrorCode::kInternal, {.problem = "an all-reduce has a wrong sum",
                                     .where = fmt::format("{}, element {}", operation, wrong - values),
                                     .expected = fmt::format("{}", expected),
                                     .actual = fmt::format("{}", *wrong)});
}

// Returns what was asked for; empty: nothing. What was measured for "auto" is named with it.
std::string algorithm_name(const frontends::DeviceOptions& asked, const train::OpenDevices& devices) {
  if (asked.hierarchical_copy) return "hierarchical_copy";
  if (devices.automatic_all_reduce_spec.empty()) return asked.all_reduce_spec;
  return fmt::format("{} ({})", asked.all_reduce_spec, devices.automatic_all_reduce_spec);
}

// The lines of all_reduce_benchmark.py, in steps of the gradients of a model.
class GradientBench {
 public:
  GradientBench(const AllReduceBenchOptions& options, const train::OpenDevices& devices, const nn::Graph& graph,
                std::ostream& out)
      : options_(options), out_(out) {
    fmt::print(out_, "Building all-reduce ops\n");
    update_ = parallel::variable_updates().get(kBenchMode)(
        {.replicas = devices.replicas,
         .make_communicators = bench_communicators(devices),
         .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
         .deadline = kBenchDeadline,
         .packing = frontends::gradient_packing(options.device)});
    for (int r = 0; r < devices.replicas; ++r) {
      for (const nn::Node& node : graph.nodes) {
        for (const nn::ParameterSpec& spec : node.parameters) update_->parameters(r).declare(spec);
      }
    }
    update_->allocate();
    fmt::print(out_, "Done building all-reduce ops\n");
  }

  int64_t bytes() const { return static_cast<int64_t>(update_->parameters(0).gradients().nbytes()); }
  void abort(const Error& error) { update_->abort(error); }

  // On the replica's thread: the warm-up and the steps. Replica 0 of each process times them.
  void run(int replica) {
    for (int64_t step = -options_.warmup_batches; step < options_.batches; ++step) {
      if (replica == 0) begin_step(step);
      for (int64_t i = 0; i < options_.iters_per_step; ++i) update_->reduce(replica);
    }
    if (replica != 0) return;
    seconds_ = core::seconds_since(begin_) / static_cast<double>(options_.batches);
    fmt::print(out_, "Average time per step: {:.9f}\n", seconds_);
    out_.flush();
  }
  double step_seconds() const { return seconds_; }

 private:
  void begin_step(int64_t step) {
    if (step == -options_.warmup_batches) fmt::print(out_, "Running warmup\n");
    if (step == 0) {
      fmt::print(out_, "Running all-reduce ops\n");
      begin_ = Clock::now();
    }
    if (step > 0 && step % options_.display_every == 0) {
      fmt::print(out_, "Iteration: {}. Average time per step so far: {:.9f}\n", step,
                 core::seconds_since(begin_) / static_cast<double>(step));
      out_.flush();
    }
  }

  const AllReduceBenchOptions& options_;
  std::ostream& out_;
  std::unique_ptr<parallel::VariableUpdate> update_;
  Clock::time_point begin_;
  double seconds_ = 0;
};

// Single tensors of each size. The operations take turns, so that all of them see the same machine.
class SizeBench {
 public:
  // `exchange`: whose MPI_Allreduce is measured; null: none.
  SizeBench(const AllReduceBenchOptions& options, const Communicators& communicators,
            std::shared_ptr<parallel::ProcessEngine> exchange, std::vector<AllReduceTiming>& timings)
      : options_(options), communicators_(communicators), exchange_(std::move(exchange)), timings_(timings) {}

  // On the replica's thread.
  void run(int replica) {
    for (const int64_t bytes : options_.sizes) measure(replica, bytes);
  }

 private:
  enum Operation { kAllReduce, kMpi, kCopy, kOperations };
  static constexpr const char* kNames[kOperations] = {"all-reduce", "MPI_Allreduce", "copy"};

  void measure(int replica, int64_t bytes) {
    core::Communicator& self = *communicators_[static_cast<size_t>(replica)];
    const int64_t elements = bytes / static_cast<int64_t>(sizeof(float));
    const at::Tensor tensor = parallel::exchanged_zeros(self, elements), other = at::full({elements}, 0.0F);
    const double first = check_all_reduces(self, tensor, other);
    // Zeros stay zeros, however often they are summed.
    static_cast<void>(tensor.zero_());
    static_cast<void>(other.zero_());
    constexpr double kSecondsForEach = 2;
    constexpr int64_t kLeast = 10, kRound = 10;
    const int64_t enough = std::max(kLeast, static_cast<int64_t>(std::ceil(kSecondsForEach / std::max(first, 1e-9))));
    const int64_t times = std::min(options_.batches, enough);
    std::vector<parallel::TimedOperation> operations;
    for (const Operation operation : {kAllReduce, kMpi, kCopy}) {
      operations.push_back(
          {kNames[operation], [=, this, &self](int64_t turn) { return time(operation, self, turn, tensor, other); }});
    }
    const std::vector<std::vector<double>> seconds = parallel::time_in_turns(operations, times, kRound);
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!seconds[i].empty()) add(self, bytes, operations[i].name, seconds[i]);
    }
  }

  // All-reduces ones with each operation, and checks the sums. Returns the seconds of the slower one, of the slowest
  // rank.
  double check_all_reduces(core::Communicator& self, const at::Tensor& tensor, const at::Tensor& other) const {
    static_cast<void>(tensor.fill_(1.0F));
    self.barrier();
    const Clock::time_point begin = Clock::now();
    self.all_reduce(tensor, core::ReduceOp::kSum);
    const at::Tensor longest = at::full({1}, core::seconds_since(begin), at::kDouble);
    check_sum(tensor, static_cast<float>(self.size()), kNames[kAllReduce]);
    if (exchange_ != nullptr) {
      static_cast<void>(other.fill_(1.0F));
      const double seconds = time(kMpi, self, 1, tensor, other)[0];
      check_sum(other, static_cast<float>(exchange_->processes()), kNames[kMpi]);
      longest.mutable_data_ptr<double>()[0] = std::max(longest.item<double>(), seconds);
    }
    self.all_reduce(longest, core::ReduceOp::kMax);
    return longest.item<double>();
  }

  std::vector<double> time(Operation operation, core::Communicator& self, int64_t times, const at::Tensor& tensor,
                           const at::Tensor& other) const {
    const auto barrier = [&] { self.barrier(); };
    auto* const values = other.mutable_data_ptr<float>();
    std::vector<double> seconds;
    switch (operation) {
      case kAllReduce:
        return parallel::time_each(times, barrier, [&] { self.all_reduce(tensor, core::ReduceOp::kSum); });
      case kMpi:
        if (exchange_ == nullptr) return {};
        exchange_->run_on_transport(
            [&](parallel::MessageTransport& mpi) {
              seconds = parallel::time_each(
                  times, [&] { mpi.barrier(); }, [&] { mpi.all_reduce_sum(values, other.numel()); });
            },
            kBenchDeadline);
        return seconds;
      default:
        return parallel::time_each(times, barrier,
                                   [&] { std::memcpy(values, tensor.const_data_ptr(), tensor.nbytes()); });
    }
  }

  // Collective: each time is that of the slowest rank.
  void add(core::Communicator& self, int64_t bytes, const std::string& operation,
           const std::vector<double>& own) const {
    const AllReduceTiming timing = slowest_timing(self, bytes, operation, own);
    if (self.rank() == 0) timings_.push_back(timing);
  }

  const AllReduceBenchOptions& options_;
  const Communicators& communicators_;
  const std::shared_ptr<parallel::ProcessEngine> exchange_;
  std::vector<AllReduceTiming>& timings_;  // written by rank 0's thread
};

// Returns why MPI_Allreduce is not measured; empty: it is.
std::string why_without_mpi(const train::OpenDevices& devices) {
  if (devices.exchange == nullptr) {
    try {
      static_cast<void>(parallel::find_mpi());
    } catch (const Error& error) {
      return error.what();
    }
    return "no launcher of MPI has started this process: mpirun -n 2 trainyard bench allreduce";
  }
  if (devices.replicas == 1) return "";
  return fmt::format("it reduces one tensor a process, and here each process has {}", devices.replicas);
}

}  // namespace

AllReduceTiming slowest_timing(core::Communicator& self, int64_t bytes, const std::string& operation,
                               const std::vector<double>& own) {
  std::vector<double> slowest = parallel::slowest_of_ranks(self, own);
  std::sort(slowest.begin(), slowest.end());
  return {.bytes = bytes,
          .operation = operation,
          .times = static_cast<int64_t>(slowest.size()),
          .median_seconds = parallel::median_of(slowest),
          .p95_seconds = slowest[(95 * slowest.size() + 99) / 100 - 1]};
}

double AllReduceTiming::bus_bandwidth(int ranks) const {
  if (operation == "copy") return algorithm_bandwidth();
  return algorithm_bandwidth() * 2 * (ranks - 1) / ranks;
}

AllReduceBenchReport bench_all_reduce(const AllReduceBenchOptions& options, std::ostream& out) {
  frontends::DeviceOptions asked = options.device;
  asked.gpu = false;
  asked.variable_update = kBenchMode;
  asked.started_together = parallel::started_by_mpi() || parallel::several_processes();
  const train::OpenDevices devices = frontends::open_device(asked, {});
  std::ostream nowhere(nullptr);
  AllReduceBenchReport report{.rank = devices.rank(),
                              .ranks = devices.replicas,
                              .processes = devices.ranks(),
                              .model = options.model,
                              .algorithm = algorithm_name(asked, devices),
                              .iters_per_step = options.iters_per_step,
                              .optimizer = options.optimizer};
  const nn::Graph graph = models::build_model(
      options.model, options.dataset,
      {.num_classes = models::find_dataset(options.dataset).benchmark_classes, .image_size = options.image_size});
  {
    GradientBench gradients(options, devices, graph, devices.is_chief() ? out : nowhere);
    report.gradient_bytes = gradients.bytes();
    train::ReplicaThreads threads(replica_threads(devices.replicas),
                                  [&](const Error& error) { gradients.abort(error); });
    threads.run([&](int replica) { gradients.run(replica); });
    report.step_seconds = gradients.step_seconds();
  }
  {
    const auto make = bench_communicators(devices);
    const Communicators communicators = make ? make() : parallel::make_thread_communicators(devices.replicas);
    report.ranks = communicators[0]->size();
    for (const auto& communicator : communicators) communicator->set_deadline(kBenchDeadline);
    report.mpi_absent = why_without_mpi(devices);
    if (report.mpi_absent.empty()) report.mpi = parallel::mpi_version();
    SizeBench sizes(options, communicators, report.mpi.empty() ? nullptr : devices.exchange, report.timings);
    train::ReplicaThreads threads(replica_threads(devices.replicas),
                                  [&](const Error& error) { communicators[0]->abort(error); });
    threads.run([&](int replica) { sizes.run(replica); });
  }
  if (!options.optimizer.empty()) {
    UpdateBench updates(options, devices, graph, report);
    train::ReplicaThreads threads(replica_threads(devices.replicas), [&](const Error& error) { updates.abort(error); });
    threads.run([&](int replica) { updates.run(replica); });
  }
  devices.leave();
  return report;
}

void declare_bench_all_reduce_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Measurement";
  constexpr int64_t kMost = 1 << 20;
  table.text("model", "trivial", "the model whose gradients are reduced").group(kGroup);
  table.text("data_name", "imagenet", "the data set of the model: imagenet or cifar10").group(kGroup);
  models::declare_image_size_flag(table, kGroup, "the model's own");
  table.integer("num_gpus", 1, "replicas on threads of each process").bounds(1, 256).group(kGroup);
  table.integer("num_batches", 100, "steps that are timed, and the most all-reduces of a tensor of each size")
      .bounds(1, kMost)
      .group(kGroup);
  table.integer("num_warmup_batches", 10, "steps before that").bounds(0, kMost).group(kGroup);
  table.integer("iters_per_step", 5, "all-reduces of all gradients in a step").bounds(1, kMost).group(kGroup);
  table.integer("display_every", 10, "steps between two lines of the time so far").bounds(1, kMost).group(kGroup);
  table.text("variable_update", "replicated", "replicated, as the original requires").group(kGroup);
  table.choice("variable_consistency", "strong", {"strong", "relaxed"}, "strong, as the original requires")
      .group(kGroup);
  table
      .text("sizes", "64K,1M,100M",
            "bytes of single tensors, in powers of 1024, compared with MPI_Allreduce and a copy; empty: none")
      .group(kGroup);
  table
      .text(
          "optimizer", "",
          "an optimizer whose update of the model's parameters is measured, for itself and in one with the reduction: "
          "tf_momentum; empty: none")
      .group(kGroup);
  table.text("json", std::nullopt, "write times by size as JSON into this file").group(kGroup);
  table.text("output", std::nullopt, "draw them as an SVG image into this file").group(kGroup);
  frontends::declare_all_reduce_flags(table);
}

AllReduceBenchOptions read_bench_all_reduce_options(const core::FlagValues& values) {
  frontends::check_flag_ranges(values);
  frontends::check_idle_all_reduce_flags(values);
  if (values.text("variable_update") != "replicated") {
    throw Error(ErrorCode::kInvalidArgument,
                "--variable_update=replicated must be specified to use the all-reduce benchmark");
  }
  if (values.text("variable_consistency") == "relaxed") {
    throw Error(ErrorCode::kUnsupported, "--variable_consistency=relaxed is not supported");
  }
  AllReduceBenchOptions options{.model = values.text("model"),
                                .dataset = values.text("data_name"),
                                .image_size = models::read_image_size(values),
                                .warmup_batches = values.integer("num_warmup_batches"),
                                .batches = values.integer("num_batches"),
                                .iters_per_step = values.integer("iters_per_step"),
                                .display_every = values.integer("display_every"),
                                .optimizer = values.text("optimizer")};
  frontends::read_all_reduce_flags(values, options.device);
  options.device.replicas = values.integer("num_gpus");
  if (!options.optimizer.empty() && !optim::optimizers().has(options.optimizer)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--optimizer names no optimizer",
                 .expected = fmt::format("{}", fmt::join(optim::optimizers().names(), ", ")),
                 .actual = options.optimizer});
  }
  std::istringstream sizes(values.text("sizes"));
  for (std::string size; std::getline(sizes, size, ',');) options.sizes.push_back(parse_tensor_bytes(size));
  return options;
}

int64_t parse_tensor_bytes(const std::string& text) {
  const std::string units = "KMG";
  const size_t power = text.empty() ? std::string::npos : units.find(static_cast<char>(std::toupper(text.back())));
  const int64_t unit = power == std::string::npos ? 1 : int64_t{1} << (10 * (power + 1));
  const char* const end = text.data() + text.size() - (power == std::string::npos ? 0 : 1);
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  constexpr int64_t kMost = int64_t{4} << 30, kFloat = sizeof(float);
  const bool is_number = error == std::errc() && stop == end && count > 0 && count <= kMost / unit;
  if (is_number && count * unit % kFloat == 0) return count * unit;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "--sizes has a size of no tensor",
               .expected = "multiples of a float's 4 bytes up to 4G, such as 4096, 64K or 100M",
               .actual = text});
}

}  // namespace trainyard::cli
