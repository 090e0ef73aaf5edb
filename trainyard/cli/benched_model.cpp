#include "trainyard/cli/benched_model.h"

#include <utility>
#include <vector>

#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/core/threads/thread_limit.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/kernel_switches.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::cli {

void declare_benched_model_flags(core::FlagTable& table, const char* group) {
  table.text("model", std::nullopt, "the model, as in `trainyard models`").group(group);
  table
      .text("weights", std::nullopt,
            "a trained model instead: a checkpoint, a train directory or a file, such as one of `trainyard quantize`; "
            "for inference")
      .group(group);
  table.text("data_name", std::nullopt, "imagenet or cifar10; unset: the first that has the model").group(group);
  models::declare_image_size_flag(table, group, "the model's own");
  table.choice("device", "cpu", {"cpu", "gpu"}, "where it runs; unset: a GPU where there is one").group(group);
  table
      .choice("executor", "auto", {"auto", "cpu", "cuda", "reference"},
              "what runs the model: auto is cuda on a GPU, else cpu")
      .group(group);
  table.boolean("use_bf16", false, "activations in bfloat16").group(group);
  table.boolean("use_fp16", false, "activations in half precision, on a GPU").group(group);
  table
      .choice("precision", "auto", {"auto", "float32", "bfloat16", "int8"},
              "of inference: int8 is 8-bit integers, on a CPU, with the scales of a file of `trainyard quantize`, or "
              "with some that random images give; auto: int8 of such a file, else what use_bf16 and use_fp16 say")
      .group(group);
  table.integer("num_intra_threads", 0, "threads of one operation; 0: the cores that the process may use")
      .bounds(0, core::most_threads())
      .group(group);
  frontends::declare_kernel_switches(table, group);
}

BenchedModel read_benched_model(const core::FlagValues& values, const char* command) {
  if (values.text("model").empty() && values.text("weights").empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("trainyard {} needs a model", command),
                                                          .remedy = "pass --model, one of `trainyard models`, or a "
                                                                    "trained one as --weights"});
  }
  const bool bfloat16 = values.boolean("use_bf16"), half = values.boolean("use_fp16");
  if (bfloat16 && half) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "--use_fp16 and --use_bf16 exclude each other");
  }
  const frontends::Precision precision = frontends::read_precision(values);
  const bool is_float = precision == frontends::Precision::kFloat32;
  if ((precision != frontends::Precision::kAuto && half) || (is_float && bfloat16)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("--precision={} and --use_{} exclude each other",
                                  frontends::precision_name(precision), half ? "fp16" : "bf16"));
  }
  BenchedModel benched{.model = values.text("model"),
                       .dataset = values.text("data_name"),
                       .image_size = models::read_image_size(values),
                       .weights = values.text("weights"),
                       .precision = precision,
                       .device = {.use_bf16 = bfloat16 || precision == frontends::Precision::kBfloat16,
                                  .use_fp16 = half,
                                  .executor = values.text("executor"),
                                  .switches = frontends::read_kernel_switches(values)},
                       .intra_op_threads = static_cast<int>(values.integer("num_intra_threads")),
                       .choices = std::make_shared<nn::KernelChoices>()};
  if (values.given("device")) benched.device.gpu = values.text("device") == "gpu";
  return benched;
}

std::string benched_dataset(const BenchedModel& benched) {
  if (!benched.dataset.empty()) return benched.dataset;
  return std::string(models::first_dataset_with(benched.model));
}

nn::Graph build_benched_model(const BenchedModel& benched) {
  const std::string dataset = benched_dataset(benched);
  return models::build_model(
      benched.model, dataset,
      {.num_classes = models::find_dataset(dataset).benchmark_classes, .image_size = benched.image_size});
}

BenchedNetwork build_benched_network(BenchedModel& benched, uint64_t seed) {
  using frontends::Precision;
  BenchedNetwork network;
  if (!benched.weights.empty()) {
    const bool integers = benched.precision == Precision::kInt8;
    frontends::TrainedModel trained =
        frontends::load_trained_model({.path = benched.weights,
                                       .model = benched.model,
                                       .dataset = benched.dataset,
                                       .image_size = benched.image_size,
                                       .precision = integers ? Precision::kAuto : benched.precision,
                                       .tells_input = false});
    benched.model = trained.identity.model;
    benched.dataset = trained.identity.dataset;
    network.graph = trained.executor->graph();
    network.quantization = trained.quantization;
    trained.executor.reset();
    network.weights = std::move(trained.parameters);
  } else {
    network.graph = nn::main_output_graph(build_benched_model(benched));
  }
  if (benched.precision != Precision::kInt8 || network.quantization != nullptr) return network;
  nn::ParameterSet parameters = nn::declared_set(network.graph);
  start_benched(network, seed, parameters);
  const nn::Shape& image = network.graph.input_shape();
  constexpr int64_t kImages = 8;
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(at::randn({kImages, image[0], image[1], image[2]}));
  nn::QuantizedModel quantized = nn::quantize(
      network.graph, parameters, batches, {.ranges = nn::RangeMethod::kMinMax, .method = nn::QuantizeMethod::kPlain});
  return {.graph = std::move(quantized.graph),
          .quantization = std::move(quantized.quantization),
          .weights = std::move(quantized.parameters)};
}

void start_benched(const BenchedNetwork& network, uint64_t seed, nn::ParameterSet& parameters) {
  if (network.weights == nullptr) return parameters.initialize(seed);
  core::MemoryState state;
  network.weights->save(state);
  parameters.load(state);
}

train::OpenDevices open_benched_device(const BenchedModel& benched) {
  const frontends::DeviceOptions& asked = benched.device;
  const bool gpu = asked.gpu.value_or(train::gpu_count() > 0);
  train::OpenDevices devices = train::open_devices(gpu ? std::vector<int>{0} : std::vector<int>{});
  devices.make_communicators = nullptr;  // a single replica exchanges nothing
  devices.make_gradient_communicators = nullptr;
  devices.dtype = asked.use_bf16 ? at::kBFloat16 : asked.use_fp16 ? at::kHalf : at::kFloat;
  if (devices.dtype == at::kHalf && !gpu) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "half precision needs a GPU", .remedy = "use bfloat16 or float on the CPU"});
  }
  devices.executor = asked.executor == "auto" ? nn::fastest_executor(devices.device(), devices.dtype) : asked.executor;
  const frontends::RewriterConfig switches = frontends::settle_switches(asked.switches);
  for (const std::string& warning : switches.warnings) core::log::warning("{}", warning);
  devices.kernels = {.recomputation = switches.recomputation.value_or(nn::Recomputation::kNone),
                     .fusions = switches.fusions,
                     .choices = benched.choices};
  return devices;
}

int benched_threads(const BenchedModel& benched) {
  return benched.intra_op_threads > 0 ? benched.intra_op_threads : core::available_cores();
}

std::string benched_dtype_text(const train::OpenDevices& devices, bool quantized) {
  if (quantized) return devices.dtype == at::kBFloat16 ? "int8 and bfloat16" : "int8";
  if (devices.dtype == at::kBFloat16) return "bfloat16";
  return devices.dtype == at::kHalf ? "float16" : "";
}

}  // namespace trainyard::cli
