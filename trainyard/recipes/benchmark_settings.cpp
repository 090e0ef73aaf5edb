#include "trainyard/recipes/benchmark_settings.h"

#include <algorithm>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/device/device_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/recipes/benchmark_validation.h"
#include "trainyard/recipes/dataset_choice.h"
#include "trainyard/recipes/step_plan_flags.h"

namespace trainyard::recipes {
namespace {

BenchmarkMode mode_of(const core::FlagValues& values) {
  if (values.boolean("eval")) return BenchmarkMode::kEvaluation;
  if (values.boolean("forward_only")) return BenchmarkMode::kForwardOnly;
  return evaluates_during_training(values) ? BenchmarkMode::kTrainingAndEvaluation : BenchmarkMode::kTraining;
}

// A default of exact evaluation gives way to a length that was asked for, and to synthetic images, which have no end.
bool evaluates_exactly(const core::FlagValues& values, bool synthetic) {
  if (values.given("eval_exact")) return values.boolean("eval_exact");
  const bool length = values.given("num_eval_batches") || values.given("num_eval_epochs");
  return values.boolean("eval_exact") && !length && !synthetic;
}

nn::KernelOptions kernel_options_of(const core::FlagValues& values) {
  const std::string algorithm = values.text("conv_algorithm"), recompute = values.text("recompute");
  nn::KernelOptions options;
  options.choices = std::make_shared<nn::KernelChoices>();
  if (values.boolean("deterministic")) options.convolutions = nn::ConvolutionPolicy::kByShape;
  if (algorithm == "winograd") options.convolutions = nn::ConvolutionPolicy::kWinograd;
  if (algorithm == "direct" || !values.boolean("winograd_nonfused")) {
    options.convolutions = nn::ConvolutionPolicy::kDirect;
  }
  if (recompute == "elementwise") options.recomputation = nn::Recomputation::kElementwise;
  if (recompute == "blocks") options.recomputation = nn::Recomputation::kBlocks;
  return options;
}

}  // namespace

std::string_view benchmark_mode_name(BenchmarkMode mode) {
  switch (mode) {
    case BenchmarkMode::kTraining:
      return "training";
    case BenchmarkMode::kEvaluation:
      return "evaluation";
    case BenchmarkMode::kTrainingAndEvaluation:
      return "training + evaluation";
    case BenchmarkMode::kForwardOnly:
      return "forward only";
  }
  return "training";
}

BenchmarkSettings read_benchmark_settings(const core::FlagValues& values, Dialect dialect) {
  validate_benchmark_flags(values);
  for (const std::string& warning : core::check_dispositions(values)) core::log::warning("{}", warning);

  const std::string dataset = benchmark_dataset_name(values);
  const models::ModelInfo& model = models::find_model(values.text("model"), dataset);
  BenchmarkSettings settings{read_input_settings(values, dataset, model.image_size)};
  settings.dialect = dialect;
  settings.mode = mode_of(values);
  settings.dataset_label = dataset_label(values, dataset, dialect);
  settings.train_dir = values.text("train_dir");
  settings.weights = values.text("weights");
  settings.eval_dir = values.text("eval_dir");
  settings.model = &model;
  settings.device = open_device(values);
  // Each process has an order, distortions and dropout of its own; the values that they start with are rank 0's.
  settings.seed += static_cast<uint64_t>(settings.device.rank());
  settings.dtype = values.boolean("use_bf16") ? at::kBFloat16 : values.boolean("use_fp16") ? at::kHalf : at::kFloat;
  settings.executor = values.text("executor");
  if (settings.executor == "auto") settings.executor = nn::fastest_executor(settings.device.device(), settings.dtype);
  settings.kernels = kernel_options_of(values);
  if (settings.kernels.recomputation != nn::Recomputation::kNone && settings.executor != "cpu") {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "--recompute is the CPU plan's",
                                                      .expected = "--executor=cpu",
                                                      .actual = "--executor=" + settings.executor,
                                                      .remedy = "leave one of the two out"});
  }
  settings.replicas = static_cast<int>(values.integer("num_gpus"));
  settings.micro_steps = static_cast<int>(values.integer("micro_steps"));
  settings.batch_size =
      values.integer("batch_size") > 0 ? values.integer("batch_size") : settings.model->default_batch_size;
  settings.eval_batch_size =
      values.integer("eval_batch_size") > 0 ? values.integer("eval_batch_size") : settings.batch_size;
  settings.eval_exact = evaluates_exactly(values, settings.synthetic());
  const int cores = core::available_cores();
  const int64_t intra = values.optional_integer("num_intra_threads").value_or(0);
  settings.threads = read_thread_settings(values, settings.replicas, intra > 0 ? static_cast<int>(intra) : cores,
                                          settings.input_threads);

  open_data(values, settings);
  if (settings.plan.warmup_was_rounded && dialect == Dialect::kTrainyard) {
    core::log::info("Round up warm up steps to {} to match batch_group_size", settings.plan.num_warmup_batches);
  }
  return settings;
}

namespace {

std::shared_ptr<const data::Transform> make_transform(const BenchmarkSettings& settings,
                                                      const data::TransformOptions& options) {
  if (!settings.decode_on_gpu) return data::transforms().get(settings.dataset)(options);
  const at::Device device = settings.device.device();
  return data::make_device_transform(
      options, data::open_image_device("cuda", {.index = device.index(), .dtype = settings.dtype}));
}

}  // namespace

std::shared_ptr<data::BatchSource> make_source(const BenchmarkSettings& settings, data::Subset subset) {
  const bool training = subset == data::Subset::kTrain && settings.mode != BenchmarkMode::kForwardOnly;
  const int replicas = subset == data::Subset::kTrain ? settings.replicas : 1;
  const int64_t batch_size =
      subset == data::Subset::kTrain ? settings.batch_size : settings.eval_batch_size * settings.replicas;
  if (settings.synthetic()) {
    data::SyntheticOptions synthetic;
    synthetic.batch_size = batch_size;
    synthetic.local_replicas = synthetic.total_replicas = replicas;
    synthetic.height = settings.transform.height;
    synthetic.width = settings.transform.width;
    synthetic.classes = settings.num_classes;
    synthetic.epoch_size = subset == data::Subset::kTrain ? settings.train_examples : settings.validation_examples;
    synthetic.seed = settings.seed;
    return std::make_shared<data::SyntheticSource>(synthetic);
  }
  data::TransformOptions transform = settings.transform;
  transform.training = training;
  data::PipelineOptions pipeline = pipeline_options(settings, training);
  pipeline.batch_size = batch_size;
  pipeline.local_replicas = pipeline.total_replicas = replicas;
  if (const auto accelerator = settings.device.accelerator(); accelerator != nullptr) {
    pipeline.allocate = [accelerator](at::IntArrayRef sizes, at::ScalarType dtype) {
      return accelerator->pinned(sizes, dtype);
    };
  }
  pipeline.repeat = subset == data::Subset::kTrain || !settings.eval_exact;
  if (subset == data::Subset::kTrain) {
    pipeline.label_texts = settings.label_texts;
  } else {
    pipeline.label_texts = std::make_shared<data::LabelTexts>();
    pipeline.known_texts = settings.label_texts;
  }
  const auto& dataset = subset == data::Subset::kTrain ? settings.train_data : settings.validation_data;
  pipeline.label_offset = label_offset(*dataset, models::find_dataset(settings.dataset), settings.num_classes);
  return std::make_shared<data::Pipeline>(dataset, make_transform(settings, transform), pipeline);
}

}  // namespace trainyard::recipes
