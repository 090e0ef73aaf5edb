#include "trainyard/train/model/model.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/quantized_weights.h"
#include "trainyard/train/model/checkpoint_description.h"
#include "trainyard/train/model/input_size.h"

namespace trainyard::train {
namespace {

using core::Error, core::ErrorCode;

constexpr uint64_t kLargestImageBytes = uint64_t{256} << 20;

// Fills in what follows from the graph. Throws kInvalidArgument for what contradicts it.
ModelDescription completed(ModelDescription description, const std::string& where) {
  if (!description.graph) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "the model does not hold its graph",
         .where = where,
         .expected = "a file of save_model() or `trainyard export`, or a checkpoint that says which model it is",
         .remedy = "export the checkpoint that it came from to safetensors again"});
  }
  const nn::Graph& graph = *description.graph;
  const nn::Shape& output = graph.output_shape();
  const int64_t outputs = output.size() == 1 ? output[0] : 0;
  const auto refuse = [&](std::string problem, std::string expected, std::string actual) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = std::move(problem), .where = where, .expected = std::move(expected), .actual = std::move(actual)});
  };
  if (description.num_classes == 0) description.num_classes = outputs;
  if (description.num_classes != outputs) {
    refuse("the graph has another number of outputs than the model has classes",
           std::to_string(description.num_classes), nn::to_string(output));
  }
  if (std::ssize(description.classes) + description.first_output > outputs && !description.classes.empty()) {
    refuse("the model has more names of classes than outputs", fmt::format("at most {}", outputs),
           fmt::format("{} from output {} on", description.classes.size(), description.first_output));
  }
  if (description.name.empty()) description.name = graph.name;
  if (!description.input) return description;
  set_input_size(graph, *description.input);
  description.input->training = false;
  description.input->validate();
  return description;
}

// Pixels of three colours, as image files give them.
bool takes_images(const nn::Graph& graph) {
  return graph.input_shape().size() == 3 && graph.input_shape()[0] == 3;
}

// Throws where a model of images would be saved that no image file could be given to.
void require_input(const ModelDescription& description, const std::string& where) {
  if (description.input || description.transform.empty() || !takes_images(*description.graph)) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      {.problem = "nothing says how an image becomes the model's input",
       .where = where,
       .expected = "ModelDescription::input: how images are scaled, cut and normalized, as in training",
       .actual = "none",
       .remedy = "set it, or FitOptions::input where fit() trains; sources of folders say it by themselves, and "
                 "data::input_presets() has the usual ones; or set `transform` to \"\" for a model that is "
                 "given tensors only"});
}

// The shapes of all parameters and buffers, by name.
std::map<std::string, nn::Shape> variables_of(const nn::Graph& graph) {
  std::map<std::string, nn::Shape> variables;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) variables[spec.name] = spec.shape;
    for (const nn::BufferSpec& spec : node.buffers) variables[spec.name] = spec.shape;
  }
  return variables;
}

[[noreturn]] void refuse_weights(const std::string& where, const std::string& name, const std::string& expected,
                                 const std::string& actual) {
  throw Error(ErrorCode::kInvalidArgument, {.problem = "the weights are not those of the model's graph",
                                            .where = fmt::format("{}, '{}'", where, name),
                                            .expected = expected,
                                            .actual = actual,
                                            .remedy = "save the model again"});
}

void check_parameters(const nn::Graph& graph, const nn::ParameterSet& set, const std::string& where) {
  for (const auto& [name, shape] : variables_of(graph)) {
    const auto parameter = set.find(name);
    const auto buffer = set.find_buffer(name);
    if (!parameter && !buffer) refuse_weights(where, name, nn::to_string(shape), "no such parameter");
    const at::Tensor value = parameter ? set.value(*parameter) : set.buffer(*buffer);
    if (value.sizes() != at::IntArrayRef(shape)) {
      refuse_weights(where, name, nn::to_string(shape), nn::to_string(value.sizes().vec()));
    }
  }
}

std::shared_ptr<const Model> load_weights_file(const std::string& path, const LoadModelOptions& options) {
  const formats::TensorFile file = formats::open_tensor_file(path);
  ModelDescription description = completed(described_in(file.metadata(), path), path);
  // Before anything is allocated: the file cannot ask for more memory than it has bytes.
  for (const auto& [name, shape] : variables_of(*description.graph)) {
    const formats::StoredTensor* stored = file.find(name);
    if (stored == nullptr) refuse_weights(path, name, nn::to_string(shape), "no such tensor");
    if (stored->shape != shape) refuse_weights(path, name, nn::to_string(shape), nn::to_string(stored->shape));
  }
  description.quantization = read_quantization(file, *description.graph);
  nn::ParameterSet set = nn::declared_set(*description.graph);
  if (description.quantization != nullptr) {
    load_quantized_weights(file, *description.graph, *description.quantization, set, description.num_classes);
  } else {
    load_weights(file, set, description.num_classes);
  }
  return std::make_shared<const Model>(std::move(description), std::move(set), options);
}

std::shared_ptr<const Model> load_checkpoint_model(const std::string& path, const LoadModelOptions& options) {
  const OpenedCheckpoint opened = open_newest_checkpoint(path, nullptr);
  const std::string& where = opened.info.path;
  ModelDescription description = completed(described_by(opened), where);
  const std::string averaged(optim::kAveragedWeights);
  const CheckpointFacts facts = read_checkpoint_facts(*opened.reader, opened.identity, where);
  const bool takes_average = options.averaged_weights.value_or(facts.averaged_weights.value_or(true)) &&
                             !opened.reader->names(averaged).empty();
  const core::ScopedReader reader(*opened.reader, takes_average ? averaged : "model/");
  std::map<std::string, at::Tensor> saved;
  for (const auto& [name, shape] : variables_of(*description.graph)) {
    if (!reader.has(name)) refuse_weights(where, name, nn::to_string(shape), "no such tensor");
    const at::Tensor value = reader.tensor(name);
    if (value.sizes() != at::IntArrayRef(shape)) {
      refuse_weights(where, name, nn::to_string(shape), nn::to_string(value.sizes().vec()));
    }
    saved[name] = value;
  }
  nn::ParameterSet set = nn::declared_set(*description.graph);
  for (const auto& [name, value] : saved) {
    const auto parameter = set.find(name);
    (parameter ? set.value(*parameter) : set.buffer(*set.find_buffer(name))).copy_(value);
  }
  set.values_changed();
  if (facts.has_scales) {
    nn::QuantizedModel quantized =
        quantize_checkpoint(*description.graph, set, read_training_scales(reader, where), where);
    description.graph = std::move(quantized.graph);
    description.quantization = std::move(quantized.quantization);
    set = std::move(*quantized.parameters);
  }
  return std::make_shared<const Model>(std::move(description), std::move(set), options);
}

}  // namespace

void LoadModelOptions::validate() const {
  const auto refuse = [](const char* what, int value) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = fmt::format("{} is negative", what), .where = "LoadModelOptions", .actual = std::to_string(value)});
  };
  if (contexts < 0) refuse("contexts", contexts);
  if (intra_op_threads < 0) refuse("intra_op_threads", intra_op_threads);
}

// What runs the model: executors that no thread uses at the moment, and those that one does.
class Model::Contexts {
 public:
  Contexts(ModelDescription given, nn::ParameterSet set, const LoadModelOptions& chosen)
      : description(completed(std::move(given), "the model")),
        parameters(std::move(set)),
        options(chosen),
        graph_(nn::main_output_graph(*description.graph)),
        limit_(options.contexts > 0 ? options.contexts : core::available_cores()),
        choices_(std::make_shared<nn::KernelChoices>()) {
    options.validate();
    check_parameters(*description.graph, parameters, description.name);
    if (description.input && !description.transform.empty()) {
      transform_ = data::transforms().get(description.transform)(*description.input);
    }
    free_.push_back(make());  // an executor that cannot be is an error now
  }

  // An executor of the calling thread's own until the end of its scope.
  class Lease {
   public:
    explicit Lease(Contexts& contexts) : contexts_(contexts), executor_(contexts.take()) {}
    ~Lease() { contexts_.give_back(std::move(executor_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    nn::Executor& executor() const { return *executor_; }

   private:
    Contexts& contexts_;
    std::unique_ptr<nn::Executor> executor_;
  };

  const data::Transform& transform() const {
    if (transform_ != nullptr) return *transform_;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the model does not say how an image becomes its input",
                 .where = description.name,
                 .expected = "ModelDescription::input",
                 .actual = "none",
                 .remedy = "set it, or FitOptions::input where fit() trains; or call logits() with tensors"});
  }

  ModelDescription description;
  nn::ParameterSet parameters;
  LoadModelOptions options;

 private:
  std::unique_ptr<nn::Executor> make() {
    auto executor = nn::make_executor(options.executor, graph_,
                                      {.dtype = options.dtype,
                                       .mode = nn::Mode::kInference,
                                       .frozen = true,
                                       .kernels = {.choices = choices_},
                                       .parameters = &parameters,
                                       .quantization = description.quantization});
    ++made_;  // one that could not be made is not waited for
    return executor;
  }
  std::unique_ptr<nn::Executor> take() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !free_.empty() || made_ < limit_; });
    if (free_.empty()) return make();
    // The last one used has its memory in the caches.
    std::unique_ptr<nn::Executor> executor = std::move(free_.back());
    free_.pop_back();
    return executor;
  }
  void give_back(std::unique_ptr<nn::Executor> executor) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(executor));
    }
    returned_.notify_one();
  }

  nn::Graph graph_;
  int limit_, made_ = 0;
  std::shared_ptr<nn::KernelChoices> choices_;
  std::unique_ptr<data::Transform> transform_;  // null: it is not known
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<nn::Executor>> free_;
};

Model::Model(ModelDescription description, nn::ParameterSet parameters, LoadModelOptions options)
    : contexts_(std::make_unique<Contexts>(std::move(description), std::move(parameters), options)) {}

Model::~Model() = default;

const ModelDescription& Model::description() const {
  return contexts_->description;
}

const nn::ParameterSet& Model::parameters() const {
  return contexts_->parameters;
}

at::Tensor Model::decode(std::span<const std::byte> image, const std::string& where) const {
  const nn::Shape& shape = graph().input_shape();
  if (!takes_images(graph())) {
    throw Error(ErrorCode::kUnsupported, {.problem = "the model does not take images of three colours",
                                          .where = description().name,
                                          .expected = "[3, height, width]",
                                          .actual = nn::to_string(shape),
                                          .remedy = "call logits() with its input"});
  }
  data::Record record;
  record.bytes.assign(image.begin(), image.end());
  record.where = where;
  at::Tensor input = at::empty({1, shape[0], shape[1], shape[2]});
  const core::Result<void> made = contexts_->transform().apply(record, {}, input.mutable_data_ptr<float>());
  if (!made.ok()) throw made.error();
  return input;
}

at::Tensor Model::logits(const at::Tensor& images) const {
  const at::NoGradGuard no_grad;
  const core::ScopedIntraOpThreads threads(contexts_->options.intra_op_threads);
  const Contexts::Lease lease(*contexts_);
  // The executor's memory is the next caller's as soon as the lease ends.
  return lease.executor().forward(images, {}).clone();
}

Prediction Model::predict(std::span<const std::byte> image, int64_t top, const std::string& where) const {
  if (top < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a prediction of no classes was asked for",
                                              .where = "Model::predict()",
                                              .expected = "top of 1 or more",
                                              .actual = std::to_string(top)});
  }
  if (description().num_classes == 0) {  // pictures, or rows of boxes: the largest numbers of them say nothing
    throw Error(ErrorCode::kUnsupported, {.problem = "the model does not classify images",
                                          .where = description().name,
                                          .expected = "an output [classes]",
                                          .actual = nn::to_string(graph().output_shape()),
                                          .remedy = "call logits() with what decode() gives, and read its output"});
  }
  Prediction prediction;
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor input = decode(image, where);
  prediction.decode_seconds = core::seconds_since(begin);
  const auto decoded = std::chrono::steady_clock::now();
  const at::Tensor scores = logits(input)[0];
  const at::Tensor probabilities =
      description().label_sets ? scores.to(at::kFloat).sigmoid() : at::softmax(scores, 0, at::kFloat);
  prediction.model_seconds = core::seconds_since(decoded);
  const auto [values, indices] = at::topk(probabilities, std::min(top, probabilities.size(0)));
  const float* const value = values.const_data_ptr<float>();
  const int64_t* const index = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < values.size(0); ++i) {
    prediction.top.push_back({.output = index[i], .name = description().class_name(index[i]), .probability = value[i]});
  }
  return prediction;
}

Prediction Model::predict_file(const std::string& path, int64_t top) const {
  const std::string content = core::local_file_system().read_file(path, kLargestImageBytes);
  return predict(std::as_bytes(std::span(content)), top, path);
}

void save_model(const std::string& path, ModelDescription description, const nn::ParameterSet& parameters) {
  const ModelDescription saved = completed(std::move(description), path);
  const ModelMetadata metadata = metadata_of(saved);  // first: a custom layer cannot be saved, whatever else is missing
  require_input(saved, path);
  if (saved.first_output < 0 || saved.first_output > 1) {  // which no reader would take
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the first class cannot be this output in a file",
                 .where = path,
                 .expected = "ModelDescription::first_output of 0, or of 1 where output 0 is the background",
                 .actual = std::to_string(saved.first_output),
                 .remedy = "name all outputs from there on, with empty texts for those without a name"});
  }
  check_parameters(*saved.graph, parameters, path);
  if (saved.quantization != nullptr) {
    save_quantized_weights(path, *saved.graph, parameters, *saved.quantization, metadata);
  } else {
    save_weights(path, parameters, metadata);
  }
}

std::shared_ptr<const Model> load_model(const std::string& path, const LoadModelOptions& options) {
  options.validate();
  core::FileSystem& files = core::local_file_system();
  if (!files.exists(path)) {
    throw Error(ErrorCode::kNotFound, {.problem = "there is no such model",
                                       .where = path.empty() ? "an empty path" : path,
                                       .expected = "a file of save_model(), a checkpoint or a train_dir"});
  }
  if (!files.info(path).is_directory) return load_weights_file(path, options);
  if (!options.best) return load_checkpoint_model(path, options);
  const std::string best = core::join_path(path, kBestCheckpoint);
  try {
    // It also finds the one that was being replaced when the training was killed.
    static_cast<void>(find_checkpoint(best));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kNotFound, {.problem = "the run has no best checkpoint",
                                       .where = path,
                                       .expected = best,
                                       .remedy = "train with a validation, or leave LoadModelOptions::best out"});
  }
  return load_checkpoint_model(best, options);
}

}  // namespace trainyard::train
