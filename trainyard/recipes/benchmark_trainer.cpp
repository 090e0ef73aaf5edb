// What trains a benchmark's model: loss, optimizer and variable update from the flags.
#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/log.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/parallel/nccl/nccl_processes.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/train/checkpoint/weights.h"

namespace trainyard::recipes {
namespace {

// Of upstream's names, momentum is Nesterov momentum.
std::string optimizer_name(const core::FlagValues& values) {
  const std::string name = values.text("optimizer");
  return name == "momentum" ? "nesterov" : name;
}

std::optional<parallel::GradientReduction> reduction_of(const core::FlagValues& values) {
  const std::string name = values.text("gradient_reduction");
  if (name == "sum") return parallel::GradientReduction::kSum;
  if (name == "mean") return parallel::GradientReduction::kMean;
  if (values.text("variable_update") == "horovod" && values.text("horovod_reduce") == "sum") {
    return parallel::GradientReduction::kSum;
  }
  return std::nullopt;
}

// Between the replicas of this process, where each has a GPU, or between processes.
std::vector<std::unique_ptr<core::Communicator>> make_gpu_communicators(const DeviceSettings& device) {
  const std::shared_ptr<parallel::NcclLibrary> library = parallel::open_nccl();
  core::log::info("gradients meet by NCCL {}", library->version());
  const std::chrono::milliseconds deadline = parallel::NcclGroup().deadline;
  std::vector<std::unique_ptr<core::Communicator>> communicators;
  if (device.processes != nullptr) {
    communicators.push_back(parallel::join_nccl_processes(library, device.processes, device.device(), deadline));
    return communicators;
  }
  parallel::NcclGroup group{.id = library->unique_id(), .size = static_cast<int>(device.accelerators.size())};
  for (const auto& accelerator : device.accelerators) group.devices.push_back(accelerator->device());
  return parallel::make_nccl_communicators(library, group);
}

}  // namespace

std::function<void(nn::ParameterSet&)> make_start(const BenchmarkSettings& settings) {
  if (settings.weights.empty()) return {};
  return
      [path = settings.weights, classes = settings.num_classes, model = settings.model](nn::ParameterSet& parameters) {
        const train::LoadedWeights loaded =
            train::load_weights(formats::open_tensor_file(path), parameters, classes, model->auxiliary);
        if (!loaded.head.empty()) {
          core::log::warning("{} is for {} classes: the head is new, for {} ({})", path, loaded.file_classes, classes,
                             fmt::join(loaded.head, ", "));
        }
      };
}

train::SingleCostOptions make_trainer_options(const core::FlagValues& values, const BenchmarkSettings& settings) {
  train::SingleCostOptions options;
  options.graph = settings.graph;
  options.executor = settings.executor;
  options.dtype = settings.dtype;
  options.kernels = settings.kernels;
  options.accelerators = settings.device.accelerators;
  options.capture_steps = settings.device.capture_steps;
  options.loss_scale = settings.device.loss_scale;
  options.on_nan = train::on_nan_from_name(values.text("on_nan"));
  options.replicas = settings.replicas;
  options.micro_steps = settings.micro_steps;
  options.intra_op_threads = settings.threads.intra_op_threads;
  options.placement = settings.threads.replica;
  options.seed = settings.seed;
  options.start = make_start(settings);
  options.weight_decay = values.real("weight_decay");
  options.variable_update = values.text("variable_update");
  if (!settings.device.accelerators.empty()) {
    options.make_communicators = [device = settings.device] { return make_gpu_communicators(device); };
  }
  options.reduction = reduction_of(values);
  options.learning_rate = make_learning_rate(values, settings);
  optim::OptimizerOptions update;
  update.momentum = values.real("momentum");
  update.weight_decay = options.weight_decay;
  update.gradient_clip = values.optional_real("gradient_clip");
  update.validate();
  options.make_optimizer = [name = optimizer_name(values), update](nn::ParameterSet& parameters) {
    return optim::optimizers().get(name)(parameters, update);
  };
  options.loss = [smoothing = values.real("label_smoothing")](const at::Tensor& output, const at::Tensor& labels) {
    return nn::softmax_cross_entropy(output, labels, {.label_smoothing = smoothing});
  };
  return options;
}

}  // namespace trainyard::recipes
