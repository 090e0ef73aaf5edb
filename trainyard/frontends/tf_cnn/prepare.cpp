#include "trainyard/frontends/tf_cnn/prepare.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/listing_cache.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/model/shared_model.h"
#include "trainyard/frontends/tf_cnn/auto_batch.h"
#include "trainyard/frontends/tf_cnn/fine_tuning.h"
#include "trainyard/frontends/tf_cnn/output/graph_files.h"
#include "trainyard/frontends/tf_cnn/own_model.h"
#include "trainyard/frontends/tf_cnn/quantized_runs.h"
#include "trainyard/frontends/tf_cnn/run_agreement.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/frontends/tf_cnn/trainer_defaults.h"
#include "trainyard/nn/execution/measuring_time.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/parallel/process_group/start_agreement.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/profile/machine_limit_share.h"

namespace trainyard::frontends {
namespace {

// Exact evaluation is the default of `trainyard`; it gives way to a length that was asked for, and to synthetic images,
// which have no end.
bool evaluates_exactly(const TfCnnOptions& options, bool synthetic) {
  if (options.eval_exact) return *options.eval_exact;
  return options.dialect == Dialect::kTrainyard && !options.gives_eval_length() && !synthetic;
}

std::string label_of(const PreparedRun& run, const DatasetChoice& choice, core::FileSystem& files) {
  if (run.own.dataset != nullptr) return choice.name;
  const TfCnnOptions& options = run.options;
  const InputOptions& input = options.input;
  if (input.data_dir.empty()) return choice.name + " (synthetic)";
  if (options.dialect == Dialect::kTfCnnBenchmarks || !input.data_name.empty()) return choice.name;
  return folder_label(choice, input.data_dir, files);
}

// Returns the registered data set whose models and transforms the run has.
std::string registered_dataset(const PreparedRun& run, const std::string& name) {
  return run.own.dataset == nullptr ? name : run.own.dataset->models_of();
}

nn::Size2d own_size(const PreparedRun& run) {
  return run.own.model == nullptr ? run.model->image_size : image_size_of(*run.own.model);
}

// Chooses the 16-bit floats that the device has for trt_mode=FP16, and says so; a CPU for trt_mode=INT8.
DeviceOptions device_options(const TfCnnOptions& options) {
  DeviceOptions device = options.device;
  device.use_bf16 = device.use_bf16 || options.precision == Precision::kBfloat16;
  const bool integers = options.trt_mode == "INT8" || options.precision == Precision::kInt8;
  if (integers && device.gpu.value_or(train::gpu_count() > 0)) {
    throw core::Error(
        core::ErrorCode::kUnsupported,
        {.problem = "8-bit integers are computed on CPUs",
         .where = options.trt_mode == "INT8" ? "--trt_mode=INT8" : "--precision=int8",
         .actual = "a GPU",
         .remedy = options.trt_mode == "INT8" ? "pass --device=cpu, or --trt_mode=FP16" : "pass --device=cpu"});
  }
  if (options.trt_mode != "FP16") return device;
  if (device.gpu.value_or(train::gpu_count() > 0)) {
    device.use_fp16 = !device.use_bf16;
    core::log::info("trt_mode=FP16: the frozen graph computes in {}", device.use_bf16 ? "bfloat16" : "float16");
    return device;
  }
  if (!core::cpu_has_avx512_bf16()) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "--trt_mode=FP16 needs a CPU that multiplies bfloat16, or a GPU",
                       .expected = "AVX512_BF16",
                       .actual = core::describe_cpu_isa(),
                       .remedy = "use --trt_mode=FP32"});
  }
  device.use_bf16 = true;
  core::log::info("trt_mode=FP16: the frozen graph computes in bfloat16, the 16-bit floats of this CPU");
  return device;
}

int64_t value_or(int64_t asked, int64_t otherwise) {
  return asked > 0 ? asked : otherwise;
}

void set_batch_size(PreparedRun& run, int64_t batch_size) {
  run.batch_size = batch_size;
  run.eval_batch_size = value_or(run.options.eval_batch_size, batch_size);
  if (run.own.model != nullptr) run.own.model->set_batch_size(batch_size);
}

// Opens the data with batches of one image, finds out how many there is memory for, and settles the run for them.
void settle_batch_size(PreparedRun& run) {
  set_batch_size(run, 1);
  open_data(run);
  // All processes use the batch size of the one with the least memory.
  const int64_t own = find_batch_size(run);
  set_batch_size(run, run.device.processes == nullptr ? own : smallest_of_ranks(*run.device.processes, own));
  if (run.own.model != nullptr) {
    open_data(run);  // its network may depend on the size
  } else {
    settle_evaluations(run);
    run.plan = make_step_plan(run);
  }
}

// Returns whether a graph is written as ONNX. An evaluation writes none.
bool writes_onnx_graph(const TfCnnOptions& options) {
  if (options.mode == RunMode::kEvaluation) return false;
  const DisplayOptions& display = options.display;
  const std::string& prefix = display.partitioned_graph_file_prefix;
  const std::string part = prefix.empty() ? "" : partition_path(prefix, "/gpu:0");
  const auto is_onnx = [](const std::string& path) { return !path.empty() && !path.ends_with("txt"); };
  return is_onnx(display.graph_file) || is_onnx(part);
}

// Meets the other processes, where there are any, and opens the devices.
void open_devices_of(PreparedRun& run) {
  const TfCnnOptions& options = run.options;
  run.device = open_device(options.device, {.evaluation = options.mode == RunMode::kEvaluation,
                                            .forward_only = options.mode == RunMode::kForwardOnly,
                                            .decodes_on_gpu = options.input.decode_on_gpu,
                                            .prunes = options.update.sparsity.has_value(),
                                            .writes_onnx_graph = writes_onnx_graph(options)});
  settle_quantization_aware_device(run);
}

// Throws where nothing says which model is evaluated, or which one starts from a file of weights.
void require_said_model(const PreparedRun& run) {
  const bool evaluates = run.mode() == RunMode::kEvaluation, file = !run.options.weights.empty();
  const bool said = run.own.model != nullptr || !run.options.model.empty();
  if (said || !(evaluates || file)) return;
  if (evaluates && run.checkpoint == nullptr) {
    const std::string& path = file ? run.options.weights : run.train_dir();
    // Rank 0 has the files, and says what it found there.
    if (run.device.is_chief() && file) static_cast<void>(open_model({.path = path}));
    if (run.device.is_chief()) static_cast<void>(train::find_checkpoint(path));
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "No checkpoint file found in dir:" + path,
                                                   .remedy = "check --train_dir or --weights of rank 0"});
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a file of weights does not say which model they are of",
                     .where = run.options.weights,
                     .remedy = "pass --model, one of `trainyard models`"});
}

// Finds the model. One that no registry knows is the graph that its checkpoint or file holds.
void find_run_model(PreparedRun& run, const std::string& dataset) {
  if (run.own.model != nullptr) {
    run.own_info = std::make_shared<models::ModelInfo>(info_of(*run.own.model));
    run.model = run.own_info.get();
    return;
  }
  if (run.options.model.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "no model is named, and no checkpoint says which one it is",
                       .where = "--model",
                       .remedy = "pass --model; `trainyard models` lists all"});
  }
  const OpenedModel* const opened = run.checkpoint.get();
  const bool holds_graph =
      opened != nullptr && opened->description.graph && run.options.model == opened->identity.model;
  const std::string registered = registered_dataset(run, dataset);
  const std::vector<std::string> known = models::model_names(models::find_dataset(registered).family);
  if (!holds_graph || std::find(known.begin(), known.end(), run.options.model) != known.end()) {
    run.model = &models::find_model(run.options.model, registered);
    return;
  }
  nn::Graph graph = nn::main_output_graph(*opened->description.graph);
  const int64_t image_size = image_size_of(graph).height;
  run.own_info = std::make_shared<models::ModelInfo>(
      models::ModelInfo{.name = run.options.model,
                        .family = models::find_dataset(registered).family,
                        .image_size = image_size,
                        .build = [graph = std::move(graph)](const models::ModelOptions&) { return graph; }});
  run.model = run.own_info.get();
}

// Throws where what was opened before the model was known is of another one.
void require_model_of_checkpoint(const PreparedRun& run) {
  const OpenedModel* const opened = run.checkpoint.get();
  if (opened == nullptr || opened->reader == nullptr || opened->identity.model == run.model->name) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "checkpoint of another model",
                     .where = opened->checkpoint.path,
                     .expected = run.model->name,
                     .actual = opened->identity.model,
                     .remedy = fmt::format("leave --model out, or pass --model={}", opened->identity.model)});
}

// Throws where the model's own schedule has no use for --resnet_base_lr. tf_cnn_benchmarks ignores the flag then.
void check_base_rate_of_model(const PreparedRun& run) {
  const bool trains = run.mode() == RunMode::kTraining || run.mode() == RunMode::kTrainingAndEvaluation;
  if (!trains || !run.options.learning_rate.resnet_base_lr || run.model->schedule.takes_resnet_base_lr) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "--resnet_base_lr is for tf_cnn_benchmarks' ResNets for ImageNet, such as resnet50",
                     .where = "--model=" + run.model->name,
                     .remedy = "pass --init_learning_rate"});
}

// Chooses data set and model: what the options say, else what the model says that the run begins with.
DatasetChoice choose_dataset_and_model(PreparedRun& run, core::FileSystem& files) {
  const TfCnnOptions& options = run.options;
  const InputOptions& input = options.input;
  DatasetChoice dataset =
      run.own.dataset != nullptr ? DatasetChoice{.name = run.own.dataset->name()} : choose_dataset(input, files);
  const bool says_dataset = run.own.dataset != nullptr || !input.data_name.empty() || !input.data_dir.empty();
  if (says_dataset || !run.own_dialect()) run.input.dataset = dataset.name;
  if (!run.own_dialect()) find_run_model(run, dataset.name);
  if (options.mode == RunMode::kEvaluation) run.checkpoint = open_evaluated_model(run);
  run.saved = read_saved_choices(run);
  take_saved_choices(run);
  if (!run.own_dialect()) return dataset;
  if (!says_dataset && !run.saved.dataset.empty()) dataset.name = run.saved.dataset;
  require_said_model(run);
  find_run_model(run, dataset.name);
  require_model_of_checkpoint(run);
  check_base_rate_of_model(run);
  run.input.dataset = dataset.name;
  check_quantization_aware_start(run);
  return dataset;
}

// Lets a long training measure more convolutions at its beginning.
void allow_measuring(const PreparedRun& run) {
  if (!run.trains()) return;
  const double step_flops =
      train::image_flops(run.graph, /*trains=*/true) * static_cast<double>(run.global_batch_size());
  nn::MeasuringTime::instance().allow(
      nn::MeasuringTime::seconds_of(step_flops * static_cast<double>(updates_of(run)), run.threads.intra_op_threads));
}

// Decides what follows from the options and the data.
void settle(PreparedRun& run) {
  const TfCnnOptions& options = run.options;
  // Several parts ask what data_dir holds.
  const auto files = std::make_shared<core::ListingCache>(core::local_file_system());
  const DatasetChoice dataset = choose_dataset_and_model(run, *files);
  run.input.files = files;
  settle_fine_tuned_input(run);
  settle_images(run);
  run.dataset_label = label_of(run, dataset, *files);
  run.options.device = device_options(options);
  if (!options.device.many_processes()) open_devices_of(run);
  run.eval_exact = evaluates_exactly(options, run.synthetic());
  run.threads = place_threads(options.threads, run.replicas, run.input.input_threads);
  // An evaluation in batches of another size than batch_size takes none of its own.
  const bool searches = options.mode != RunMode::kEvaluation || options.eval_batch_size == 0;
  if (options.batch_size == kLargestBatch && run.saved.continues && run.saved.found_batch > 0) {
    core::log::info("batch_size=auto: {} images a device, as {} found", run.saved.found_batch, run.saved.origin);
    set_batch_size(run, run.saved.found_batch);
    open_data(run);
  } else if (options.batch_size == kLargestBatch && searches) {
    settle_batch_size(run);
  } else {
    set_batch_size(run, value_or(options.batch_size, run.model->default_batch_size));
    open_data(run);
  }
  settle_fine_tuned_evaluations(run);
  allow_measuring(run);
  if (run.plan.warmup_was_rounded && run.own_dialect()) {
    core::log::info("Round up warm up steps to {} to match batch_group_size", run.plan.num_warmup_batches);
  }
}

}  // namespace

PreparedRun prepare(const TfCnnOptions& options, const OwnParts& own) {
  options.validate();
  PreparedRun run;
  run.options = options;
  run.own = own;
  run.replicas = static_cast<int>(options.device.replicas);
  settle_fine_tuned_precision(run);
  // The others first: rank 0 looks into files for all.
  if (options.device.many_processes()) open_devices_of(run);
  if (run.device.processes == nullptr) {
    settle(run);
    return run;
  }
  parallel::report_what_fails(*run.device.processes, [&run] {
    require_same_flags(run);
    settle(run);
    require_same_model_and_data(run);
  });
  return run;
}

nn::Graph build_graph(const PreparedRun& run, models::ModelOptions options) {
  if (options.image_size == nn::Size2d(0)) options.image_size = own_size(run);
  if (run.own_info != nullptr) return run.model->build(options);
  return models::build_model(run.model->name, registered_dataset(run, run.input.dataset), options);
}

void settle_images(PreparedRun& run) {
  const std::string dataset = run.input.dataset;
  const std::shared_ptr<core::ListingCache> files = run.input.files;
  auto& trained = run.options.input.images.trained;
  if (trained && run.saved.image_size == nn::Size2d(0)) {  // of an earlier release: the model's own size
    const nn::Size2d size = own_size(run);
    trained->input.height = size.height;
    trained->input.width = size.width;
  }
  run.input = settle_input(run.options.input, registered_dataset(run, dataset), choose_image_size(run), run.replicas);
  run.input.dataset = dataset;
  run.input.files = files;
  // Training and validation images have a cache of records each.
  const bool evaluates = run.mode() == RunMode::kTrainingAndEvaluation || run.options.evaluate_each_epoch;
  if (run.trains() && evaluates && !run.options.input.record_cache_bytes) run.input.record_cache_bytes /= 2;
}

nn::Size2d choose_image_size(const PreparedRun& run) {
  const nn::Size2d none = 0;
  if (run.options.image_size != none) return run.options.image_size;
  if (run.mode() == RunMode::kEvaluation) {
    if (run.checkpoint != nullptr && run.checkpoint->image_size != none) return run.checkpoint->image_size;
  } else if (const auto& sizes = run.options.input.epoch_sizes; !sizes.empty()) {
    return {sizes.back().size.height, sizes.back().size.width};
  } else if ((run.saved.continues || !run.own_dialect()) && run.saved.model != run.model->name) {
    return own_size(run);  // of another model, which is refused when the run is resumed
  }
  return run.saved.image_size == none ? own_size(run) : run.saved.image_size;
}

// Returns true where the evaluated weights are a file's, or those of a train directory of tf_cnn_benchmarks, which is
// as one.
bool evaluates_file(const PreparedRun& run) {
  return !run.options.weights.empty() || holds_tensorflow_weights(run.train_dir());
}

namespace {

// Returns a text that differs where a file or a checkpoint has other weights. A checkpoint's manifest has their
// checksums.
std::string values_text(const OpenedModel& opened) {
  if (opened.weights == nullptr) {
    const std::string manifest =
        core::local_file_system().read_file(core::join_path(opened.checkpoint.path, train::kManifestFile));
    return fmt::format("a checkpoint of step {}, {:08x}", opened.checkpoint.global_step, core::crc32c(manifest));
  }
  uint32_t checksum = 0;
  for (const formats::StoredTensor& tensor : opened.weights->tensors()) {
    checksum = core::crc32c(formats::describe(tensor), core::crc32c(tensor.name, checksum));
    checksum = core::crc32c(opened.weights->read_bytes(tensor), checksum);
  }
  return fmt::format("{} tensors, {:08x}", opened.weights->tensors().size(), checksum);
}

}  // namespace

TrainedModelOptions evaluated_model(const PreparedRun& run) {
  const TfCnnOptions& options = run.options;
  const bool file = evaluates_file(run);
  return {.path = !options.weights.empty() ? options.weights : run.train_dir(),
          .model = run.model == nullptr ? "" : run.model->name,
          .dataset = run.input.dataset,
          .num_classes = file ? run.num_classes : 0,
          .image_size = options.image_size,
          .averaged_weights = options.average.averaged_weights,
          .damaged = options.saving.ignore_damaged_checkpoints ? train::DamagedCheckpoints::kPassOver
                                                               : train::DamagedCheckpoints::kStop,
          .kernels = run.device.kernels,
          .device = run.device.device(),
          // An evaluation finds the scales of a model that has none.
          .precision = options.precision == Precision::kInt8 ? Precision::kAuto : options.precision,
          .tells_input = false,  // prepare() has
          .build = [run](const models::ModelOptions& model) { return build_graph(run, model); }};
}

std::shared_ptr<const OpenedModel> open_evaluated_model(const PreparedRun& run) {
  TrainedModelOptions model = evaluated_model(run);
  model.num_classes = 0;  // which follow from what is opened
  const auto open = [&]() -> std::shared_ptr<const OpenedModel> {
    try {
      return std::make_shared<OpenedModel>(open_model(model));
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
      return nullptr;
    }
  };
  parallel::ProcessGroup* const processes = run.device.processes.get();
  if (processes == nullptr) return open();
  if (!evaluates_file(run)) return share_opened_model(*processes, open);
  // A file of weights is read by each process, where it may be another one.
  std::shared_ptr<const OpenedModel> opened;
  std::string values;
  parallel::together(*processes, "opening the weights", [&] {
    opened = open();
    values = opened == nullptr ? "no weights" : values_text(*opened);
  });
  parallel::require_same_facts(*processes, {parallel::StartFact{"the values of the evaluated weights", values}});
  return opened;
}

}  // namespace trainyard::frontends
