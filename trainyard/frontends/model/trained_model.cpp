#include "trainyard/frontends/model/trained_model.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/model/published_input.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/tf_cnn/variable_names.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/training_options.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/position_embedding.h"
#include "trainyard/train/checkpoint/quantized_weights.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::frontends {
namespace {

// Returns the graph that the file holds, if the model that is wanted is that one; else null.
const nn::Graph* saved_graph(const OpenedModel& opened, const TrainedModel& wanted,
                             const TrainedModelOptions& options) {
  if (options.build || !opened.description.graph) return nullptr;
  const nn::Graph& graph = *opened.description.graph;
  const bool same_model = wanted.identity.model == opened.description.name;
  const bool same_classes = nn::Shape{wanted.identity.num_classes} == graph.output_shape();
  const bool same_size = options.image_size == nn::Size2d(0) || options.image_size == image_size_of(graph);
  return same_model && same_classes && same_size ? &graph : nullptr;
}

// Returns the graph of a quantized model, whose scales are of no other graph.
const nn::Graph& quantized_graph(const OpenedModel& opened, const TrainedModel& wanted,
                                 const TrainedModelOptions& options) {
  const auto refuse = [&](std::string problem, std::string expected, std::string actual) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::move(problem),
                       .where = opened.checkpoint.path,
                       .expected = std::move(expected),
                       .actual = std::move(actual),
                       .remedy = "leave the flag out, or quantize the model that you want: trainyard quantize"});
  };
  if (!options.precision) throw train::quantized_weights_error(*opened.weights);
  if (options.device.type() != at::kCPU) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "models in 8-bit integers compute on CPUs",
                                                      .where = opened.checkpoint.path,
                                                      .remedy = "pass --device=cpu"});
  }
  if (!opened.description.graph) {
    throw core::Error(core::ErrorCode::kCorruptData, {.problem = "the file of a quantized model lacks its graph",
                                                      .where = opened.checkpoint.path,
                                                      .remedy = "quantize the model again: trainyard quantize"});
  }
  const nn::Graph& graph = *opened.description.graph;
  if (wanted.identity.model != opened.description.name) {
    refuse("the quantized model is another one", wanted.identity.model, opened.description.name);
  }
  if (nn::Shape{wanted.identity.num_classes} != graph.output_shape()) {
    refuse("the quantized model has another number of classes", std::to_string(wanted.identity.num_classes),
           nn::to_string(graph.output_shape()));
  }
  if (options.image_size != nn::Size2d(0) && options.image_size != image_size_of(graph)) {
    refuse("the quantized model takes images of another size", models::image_size_text(options.image_size),
           models::image_size_text(image_size_of(graph)));
  }
  return graph;
}

// Throws where scales are asked for of a model that has none.
void require_float(const OpenedModel& opened, const TrainedModelOptions& options) {
  if (options.precision != Precision::kInt8) return;
  const std::string& path = opened.checkpoint.path;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the model has no scales to compute in 8-bit integers with",
                     .where = path,
                     .expected = "a file of `trainyard quantize`",
                     .actual = "weights in floating point",
                     .remedy = fmt::format("trainyard quantize --weights={} --data_dir=DIR --output=FILE", path)});
}

// Returns whether a checkpoint is to compute in 8 bits with the scales of its training.
bool takes_scales(const OpenedModel& opened, const TrainedModelOptions& options) {
  const Precision precision = options.precision.value_or(Precision::kFloat32);
  if (!opened.has_scales || (precision != Precision::kAuto && precision != Precision::kInt8)) return false;
  if (options.device.type() == at::kCPU) return true;
  if (precision == Precision::kAuto) {
    core::log::info("{} computes in float: 8-bit integers are computed on CPUs", opened.checkpoint.path);
    return false;
  }
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "models in 8-bit integers compute on CPUs",
                                                    .where = opened.checkpoint.path,
                                                    .remedy = "pass --device=cpu"});
}

// Throws for a checkpoint whose identity says another number of classes than its weights are for, before memory is
// taken for as many as it says.
void check_head(const nn::Graph& graph, const OpenedModel& opened) {
  const nn::Node* const head = graph.outputs.empty() ? nullptr : nn::last_layer(graph, graph.outputs.front());
  if (head == nullptr) return;
  for (const nn::ParameterSpec& wanted : head->parameters) {
    const std::string name = "model/" + wanted.name;
    if (!opened.reader->has(name)) continue;  // its load says what is missing
    const std::vector<int64_t> saved = opened.reader->tensor(name).sizes().vec();
    if (saved == wanted.shape) continue;
    throw train::damaged_checkpoint(
        "the checkpoint says another number of classes than its weights are for",
        fmt::format("{}, identity and {}", core::join_path(opened.checkpoint.path, train::kManifestFile), name),
        fmt::format("{} for {} classes", nn::to_string(wanted.shape), opened.identity.num_classes),
        nn::to_string(saved));
  }
}

bool is_of_tensorflow(const OpenedModel& opened) {
  return opened.weights != nullptr && opened.weights->format() == formats::TensorFileFormat::kTensorFlow;
}

// Makes the graph of the identity, or `saved` where it is not null, and what runs it, and puts `input`, if it is known,
// into `trained`, at the size of the graph's images.
void make_executor(TrainedModel& trained, const TrainedModelOptions& options, const OpenedModel& opened,
                   const std::optional<TrainedInput>& input, const nn::Graph* saved) {
  nn::Size2d size = options.image_size != nn::Size2d(0) ? options.image_size : opened.image_size;
  if (size == nn::Size2d(0) && input) size = {input->input.height, input->input.width};
  const models::ModelOptions model{.num_classes = trained.identity.num_classes, .image_size = size};
  const auto build = [&] {
    if (options.build && !opened.quantized) return options.build(model);
    return saved != nullptr ? *saved : models::build_model(trained.identity.model, trained.identity.dataset, model);
  };
  const nn::Graph graph = is_of_tensorflow(opened) ? models::as_in_tf_cnn_benchmarks(build()) : build();
  if (opened.reader != nullptr) check_head(graph, opened);
  trained.parameters = std::make_unique<nn::ParameterSet>(nn::ParameterSetOptions{.device = options.device});
  trained.executor = nn::make_executor("auto", graph,
                                       {.device = options.device,
                                        .dtype = float_type(options.precision.value_or(Precision::kFloat32)),
                                        .mode = nn::Mode::kInference,
                                        .frozen = true,
                                        .kernels = options.kernels,
                                        .parameters = trained.parameters.get(),
                                        .quantization = trained.quantization});
  trained.parameters->allocate();
  if (graph.input_shape().size() == 3) {
    const nn::Size2d images = image_size_of(graph);
    if (input) {
      TrainedInput known = *input;
      if (opened.image_size == nn::Size2d(0) && opened.reader != nullptr) {  // of an earlier release
        known.input.height = images.height;
        known.input.width = images.width;
      }
      trained.input = evaluation_at(known.input, images);
      trained.preprocessor = known.preprocessor;
      trained.input_origin = known.origin;
      if (options.tells_input && !known.choice.empty()) core::log::info("{}: {}", opened.checkpoint.path, known.choice);
      if (options.tells_input) warn_of_differences(known, trained.input);
    } else {
      if (trained.identity.dataset == "coco") trained.input = data::ssd300_input(/*training=*/false);
      trained.input_known = !opened.description.graph;                       // what holds its graph would say it, too
      if (opened.weights != nullptr) trained.input.exif_orientation = true;  // as in all of our commands
    }
    trained.input.height = images.height;
    trained.input.width = images.width;
  }
  trained.input.training = false;
}

// Says which of the things that are asked for differ from what the file says of itself.
void tell_given(const TrainedModelOptions& options, const OpenedModel& opened) {
  const auto tell = [&](const char* flag, const std::string& given, const std::string& said) {
    if (given.empty() || said.empty() || given == said) return;
    core::log::warning("{} says --{}={}; {} is taken, as it was given", opened.checkpoint.path, flag, said, given);
  };
  const auto number = [](int64_t count) { return count == 0 ? std::string() : std::to_string(count); };
  tell("model", options.model, opened.identity.model);
  tell("data_name", options.dataset, opened.identity.dataset);
  tell("num_classes", number(options.num_classes), number(opened.identity.num_classes));
}

// Returns the prefix of the weights in a checkpoint that are asked for.
std::string prefix_of_weights(const OpenedModel& opened, const TrainedModelOptions& options) {
  std::string averaged(optim::kAveragedWeights);
  if (opened.reader->names(averaged).empty()) return "model/";
  const bool asked = options.averaged_weights.value_or(opened.averaged_weights);
  if (asked != opened.averaged_weights) {
    core::log::warning("the evaluations of {} took its {} weights; the {} ones are taken, as --weights_of says",
                       opened.checkpoint.path, opened.averaged_weights ? "averaged" : "last",
                       asked ? "averaged" : "last");
  } else {
    core::log::info("the weights are the {} ones of {} (--weights_of={} takes the others)", asked ? "averaged" : "last",
                    opened.checkpoint.path, asked ? "last" : "average");
  }
  return asked ? averaged : "model/";
}

TrainedModel load_file(const OpenedModel& opened, const TrainedModelOptions& options) {
  const train::CheckpointIdentity& said = opened.identity;
  const std::string model = options.model.empty() ? said.model : options.model;
  if (model.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a file of weights does not say which model they are of",
                       .where = options.path,
                       .remedy = "pass --model, one of `trainyard models`"});
  }
  TrainedModel trained;
  trained.label_sets = opened.label_sets;
  trained.checkpoint = opened.checkpoint;
  trained.identity = {.model = model,
                      .dataset = !options.dataset.empty() ? options.dataset
                                 : !said.dataset.empty()  ? said.dataset
                                                          : std::string(models::first_dataset_with(model)),
                      .num_classes = options.num_classes != 0 ? options.num_classes : said.num_classes};
  if (trained.identity.num_classes == 0) {
    // Detectors score the background, too.
    const models::DatasetInfo& info = models::find_dataset(trained.identity.dataset);
    trained.identity.num_classes =
        info.family == models::DatasetFamily::kCoco ? info.benchmark_classes : info.num_classes;
  }
  trained.classes = opened.classes;
  trained.label_names = trained.classes.by_output();
  if (const train::ModelDescription& of = opened.description; of.classes_of_records) {
    trained.label_names = ClassNames{.names = of.classes, .first_output = of.first_output}.by_output();
  }
  if (!opened.quantized) require_float(opened, options);
  const nn::Graph* const saved =
      opened.quantized ? &quantized_graph(opened, trained, options) : saved_graph(opened, trained, options);
  tell_given(options, opened);
  const std::shared_ptr<const nn::Quantization> scales =
      opened.quantized ? train::read_quantization(*opened.weights, *saved) : nullptr;
  const Precision precision = options.precision.value_or(Precision::kFloat32);
  if (precision == Precision::kAuto || precision == Precision::kInt8) trained.quantization = scales;
  make_executor(trained, options, opened, input_of(opened, trained.identity.model, trained.identity.dataset), saved);
  if (scales != nullptr) {
    train::load_quantized_weights(*opened.weights, *saved, *scales, *trained.parameters, trained.identity.num_classes);
    return trained;
  }
  const formats::TensorFile file = train::named_for_graph(*opened.weights, trained.executor->graph());
  const train::LoadedWeights loaded =
      train::load_weights(file, *trained.parameters, trained.identity.num_classes,
                          train::position_grids(trained.executor->graph(), opened.image_size));
  if (!loaded.head.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the weights are for another number of classes",
                       .where = options.path,
                       .expected = std::to_string(trained.identity.num_classes),
                       .actual = std::to_string(loaded.file_classes),
                       .remedy = "pass --num_classes=" + std::to_string(loaded.file_classes)});
  }
  return trained;
}

train::OpenedCheckpoint open_checkpoint(const TrainedModelOptions& options) try {
  const train::CheckpointIdentity expected{
      .model = options.model, .dataset = options.dataset, .num_classes = options.num_classes};
  return train::open_newest_checkpoint(options.path, &expected, options.damaged);
} catch (const core::Error& error) {
  if (error.code() != core::ErrorCode::kNotFound || core::local_file_system().exists(options.path)) throw;
  throw core::Error(core::ErrorCode::kNotFound, {.problem = "there is no such checkpoint, directory or file of weights",
                                                 .where = options.path.empty() ? "an empty path" : options.path,
                                                 .remedy = "check --weights or --train_dir"});
}

TrainedInput trained_input(const PublishedInput& published, const std::string& origin) {
  return {
      .input = published.input, .preprocessor = published.preprocessor, .origin = origin, .choice = published.choice};
}

// What records called their labels is compared with what other records call theirs, as from a checkpoint; it does not
// number the classes of other data.
void take_classes(const train::ModelDescription& said, OpenedModel& opened) {
  if (said.classes_of_records) {
    opened.classes = {};
    opened.label_texts = texts_of_names(said.classes, said.first_output);
  } else {
    opened.classes = {.names = said.classes, .first_output = said.first_output};
  }
}

}  // namespace

nn::KernelOptions kernels_with_choices() {
  return {.choices = std::make_shared<nn::KernelChoices>()};
}

bool holds_tensorflow_weights(const std::string& path) {
  core::FileSystem& files = core::local_file_system();
  const std::string plain = core::without_slashes(path);
  if (!formats::is_tensorflow_checkpoint(plain)) return false;
  const bool is_directory = files.exists(plain) && files.info(plain).is_directory;
  return !is_directory || train::CheckpointStore(plain).list().empty();
}

OpenedModel open_model(const TrainedModelOptions& options) {
  OpenedModel opened;
  core::FileSystem& files = core::local_file_system();
  const bool is_file = files.exists(options.path) && !files.info(options.path).is_directory;
  if (is_file || holds_tensorflow_weights(options.path)) {
    opened.weights = std::make_shared<formats::TensorFile>(formats::open_tensor_file(options.path));
    opened.checkpoint.path = is_file ? options.path : opened.weights->path();
    if (const auto step = opened.weights->metadata().find("global_step");
        is_of_tensorflow(opened) && step != opened.weights->metadata().end()) {
      opened.checkpoint.global_step = std::stoll(step->second);
    }
    opened.description = train::described_in(opened.weights->metadata(), options.path);
    const train::ModelDescription& said = opened.description;
    const bool named = opened.weights->metadata().contains("trainyard.dataset");
    opened.identity = {.model = said.name, .dataset = named ? said.transform : "", .num_classes = said.num_classes};
    take_classes(said, opened);
    opened.label_sets = said.label_sets;
    opened.quantized = train::holds_quantized_weights(*opened.weights);
    opened.image_size = train::image_size_in(opened.weights->metadata(), options.path);
    if (said.input) {
      opened.input = {.input = *said.input, .preprocessor = said.preprocessor, .origin = options.path};
    } else if (said.name.empty()) {
      if (const auto timm = read_timm_config(options.path)) {
        opened.identity.model = timm->model;
        opened.identity.num_classes = timm->num_classes;
        opened.input = trained_input(timm->input, timm->path);
      }
    }
    return opened;
  }
  return opened_model(open_checkpoint(options));
}

OpenedModel opened_model(train::OpenedCheckpoint checkpoint) {
  OpenedModel opened;
  const train::CheckpointFacts facts =
      train::read_checkpoint_facts(*checkpoint.reader, checkpoint.identity, checkpoint.info.path);
  static_cast<SavedClasses&>(opened) = saved_classes(facts, checkpoint.info);
  const train::ModelMetadata metadata = train::saved_metadata(*checkpoint.reader);
  if (facts.identity.num_classes < 1 && (facts.identity.model.empty() || !metadata.empty())) {
    // Intact: a training of the library whose model has no name, or other outputs than classes.
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "the checkpoint is of no classifier",
                       .where = checkpoint.info.path,
                       .expected = "a named model whose output is [classes]",
                       .actual = facts.identity.model.empty() ? "no name of a model" : facts.identity.model,
                       .remedy = "load it in the program that trained it"});
  }
  if (facts.identity.num_classes < 1) {
    throw train::damaged_checkpoint(
        "the checkpoint does not say how many outputs its model has",
        core::join_path(checkpoint.info.path, train::kManifestFile) + ", identity, num_classes", "at least 1",
        std::to_string(facts.identity.num_classes));
  }
  opened.image_size = facts.image_size;
  opened.averaged_weights = facts.averaged_weights.value_or(true);
  opened.division = facts.division;
  opened.label_sets = facts.label_sets;
  opened.has_scales = facts.has_scales;
  const std::string& path = opened.checkpoint.path;
  if (facts.input) opened.input = {.input = *facts.input, .preprocessor = facts.preprocessor, .origin = path};
  if (!metadata.empty()) {
    opened.description = train::described_in(metadata, path);
    const train::ModelDescription& said = opened.description;
    take_classes(said, opened);
    if (said.input) {
      opened.image_size = {said.input->height, said.input->width};
      opened.input = {.input = *said.input, .preprocessor = said.preprocessor, .origin = path};
    } else if (said.graph && said.graph->input_shape().size() == 3) {
      opened.image_size = image_size_of(*said.graph);  // of a training on tensors in memory
    }
  }
  opened.reader = std::move(checkpoint.reader);
  return opened;
}

std::optional<TrainedInput> input_of(const OpenedModel& opened, const std::string& model, const std::string& dataset) {
  const bool says_nothing = !opened.input && opened.weights != nullptr && !is_of_tensorflow(opened) &&
                            (dataset == "imagenet" || dataset == "coco");
  if (!says_nothing) return opened.input;
  try {
    const auto published = torchvision_input(opened.checkpoint.path, models::find_model(model, dataset));
    if (!published) return std::nullopt;
    return trained_input(*published, opened.checkpoint.path);
  } catch (const core::Error&) {  // a model of the caller's own, which is not registered and no library's
    return std::nullopt;
  }
}

void take_quantized(TrainedModel& trained, nn::QuantizedModel&& quantized) {
  nn::BuildContext context = trained.executor->context();
  trained.executor.reset();
  trained.parameters = std::make_unique<nn::ParameterSet>(std::move(*quantized.parameters));
  trained.quantization = std::move(quantized.quantization);
  context.parameters = trained.parameters.get();
  context.quantization = trained.quantization;
  trained.executor = nn::make_executor("auto", quantized.graph, context);
}

TrainedModel load_trained_model(const OpenedModel& opened, const TrainedModelOptions& options) {
  if (opened.reader == nullptr) return load_file(opened, options);
  const bool in_8_bits = takes_scales(opened, options);
  if (!in_8_bits) require_float(opened, options);
  TrainedModel trained;
  trained.checkpoint = opened.checkpoint;
  trained.identity = opened.identity;
  trained.label_sets = opened.label_sets;
  const nn::Graph* const saved = saved_graph(opened, trained, options);
  make_executor(trained, options, opened, opened.input, saved);
  const nn::Graph& graph = trained.executor->graph();
  nn::Size2d trained_on = 0;
  if (graph.input_shape().size() == 3) {  // fit() trains on vectors, too
    trained_on = check_image_size(
        {.identity = opened.identity, .saved = opened.image_size, .graph = graph, .where = opened.checkpoint.path});
  }
  const std::string prefix = prefix_of_weights(opened, options);
  trained.parameters->load(
      *train::interpolating_reader(*opened.reader, prefix, train::position_grids(graph, trained_on)));
  if (options.kernels.choices != nullptr) {
    options.kernels.choices->load(core::ScopedReader(*opened.reader, "kernels/"));
  }
  if (in_8_bits) {
    const std::string& path = opened.checkpoint.path;
    const nn::TrainingScales scales = train::read_training_scales(core::ScopedReader(*opened.reader, prefix), path);
    take_quantized(trained, train::quantize_checkpoint(graph, *trained.parameters, scales, path));
  }
  trained.classes = opened.classes;
  trained.label_names = trained.classes.by_output();
  if (trained.label_names.empty()) trained.label_names = names_of_texts(opened.label_texts);
  return trained;
}

TrainedModel load_trained_model(const TrainedModelOptions& options) {
  return load_trained_model(open_model(options), options);
}

}  // namespace trainyard::frontends
