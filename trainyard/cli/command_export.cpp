#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/trained_model_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/model/detector.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/options/precision_options.h"
#include "trainyard/nn/export/keras_model.h"
#include "trainyard/nn/export/keras_weights.h"
#include "trainyard/nn/export/onnx_detections.h"
#include "trainyard/nn/export/onnx_model.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/quantized_weights.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/evaluation/detection/onnx_detection_options.h"
#include "trainyard/train/session/run_directory.h"
#include "trainyard/train/session/run_lock.h"

namespace trainyard::cli {
namespace {

// Throws for a directory into which no new run can be written.
void require_new_run(const std::string& directory) {
  core::FileSystem& files = core::local_file_system();
  formats::refuse_tensorflow_checkpoint(directory);
  const bool is_file = files.exists(directory) && !files.info(directory).is_directory;
  if (!is_file && !train::holds_run(directory)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = is_file ? "--output is a file" : "--output holds a run already",
                     .where = directory,
                     .remedy = "name a new directory"});
}

std::string read_output(const core::FlagValues& values) {
  std::string output = values.text("output");
  if (output.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--output is missing", .remedy = "name the file to write: --output=FILE"});
  }
  const std::string format = values.text("format");
  if (format == "checkpoint") {
    require_new_run(output);
    return output;
  }
  require_no_folder("output", output);
  if ((format == "hdf5" || format == "keras") && output.ends_with(".weights.h5")) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "Keras reads files of this name in another layout",
                                                          .where = "--output",
                                                          .expected = "a name that ends in .h5, but not in .weights.h5",
                                                          .actual = output});
  }
  return output;
}

// Returns what the files are written in.
frontends::Precision read_written_precision(const core::FlagValues& values) {
  const frontends::Precision precision = frontends::read_precision(values);
  if (precision != frontends::Precision::kBfloat16) return precision;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "files are written in float32, and models with scales in 8-bit integers",
                     .where = "--precision",
                     .expected = "auto, float32 or int8",
                     .actual = "bfloat16",
                     .remedy = "leave it out; predict and eval round to bfloat16 where they are asked to"});
}

// Throws for formats that hold floats only.
void check_format_of_quantized(const std::string& format, const frontends::TrainedModel& trained) {
  if (trained.quantization == nullptr || format == "safetensors" || format == "onnx") return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "this format does not hold a model in 8-bit integers",
                     .where = "--format",
                     .expected = "safetensors or onnx",
                     .actual = format,
                     .remedy = "choose one of them, or write its rounded weights with --precision=float32"});
}

// Adds what the model says of itself as attributes of the file, which Keras leaves alone.
formats::Hdf5Group with_metadata(formats::Hdf5Group root, const frontends::TrainedModel& trained) {
  for (const auto& [name, text] : frontends::metadata_of(trained)) {
    if (name.starts_with("trainyard.") && name != "trainyard.graph") root.attributes.emplace_back(name, text);
  }
  return root;
}

void write(const std::string& format, const std::string& output, const frontends::TrainedModel& trained) {
  const nn::Graph& graph = trained.executor->graph();
  if (format == "onnx") {
    formats::OnnxModel model = nn::to_onnx(graph, *trained.parameters, trained.quantization.get());
    if (const auto detector = frontends::detector_of(trained)) {
      nn::add_detections(model, train::onnx_detection_options(detector->boxes, detector->options));
    }
    model.metadata = frontends::metadata_of(trained);
    model.metadata.erase("trainyard.graph");  // the file holds the graph as ONNX
    formats::write_onnx(output, model);
  } else if (format == "hdf5") {
    formats::write_hdf5(output, with_metadata(nn::to_keras(graph, *trained.parameters), trained));
  } else if (format == "keras") {
    formats::write_hdf5(output, with_metadata(nn::to_keras_model(graph, *trained.parameters), trained));
  } else if (trained.quantization != nullptr) {
    train::save_quantized_weights(output, graph, *trained.parameters, *trained.quantization,
                                  frontends::metadata_of(trained));
  } else {
    train::save_weights(output, *trained.parameters, frontends::metadata_of(trained));
  }
}

// Writes a checkpoint from which a training continues that another program began.
void write_run(const std::string& output, const frontends::OpenedModel& opened, const frontends::TrainedModel& trained,
               Console& console) {
  if (opened.weights == nullptr) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "--format=checkpoint is for checkpoints of TensorFlow: this one is Trainyard's already",
         .where = opened.checkpoint.path,
         .remedy = "continue it with --train_dir"});
  }
  const train::TensorFlowTraining training(*opened.weights, trained.executor->graph());
  core::local_file_system().make_directories(output);
  const core::LockFile lock(core::join_path(output, train::kRunLock));
  require_new_run(output);  // once more, now that all parts of its path are there
  const train::CheckpointInfo written =
      train::CheckpointStore(output, /*max_to_keep=*/0).save(training.global_step(), trained.identity, training);
  fmt::print(console.out, "wrote {} parameters, {} statistics and the state of {} after {} steps of {} to {}\n",
             trained.parameters->size(), trained.parameters->buffer_count(), training.optimizer(),
             training.global_step(), trained.identity.model, written.path);
}

}  // namespace

int run_export(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_trained_model_flags(table);
  frontends::declare_precision_flag(table, "Model");
  table
      .choice(
          "format", "safetensors", {"safetensors", "onnx", "hdf5", "keras", "checkpoint"},
          "what is written: the weights as safetensors, the network with its weights as ONNX, the weights as "
          "Keras' load_weights reads them from HDF5, the network with its weights as Keras' load_model does, or, of "
          "a train_dir of tf_cnn_benchmarks, a train_dir of Trainyard, whose training continues with the optimizer's "
          "state and the step")
      .group("Output");
  table.text("output", std::nullopt, "the file to write; of --format=checkpoint a new directory").group("Output");
  const auto parsed =
      parse_command({"export", "writes a trained model for other programs", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  frontends::TrainedModelOptions model = read_trained_model_options(values);
  model.precision = read_written_precision(values);
  const std::string output = read_output(values);
  const frontends::OpenedModel opened = frontends::open_model(model);
  const frontends::TrainedModel trained = frontends::load_trained_model(opened, model);
  check_format_of_quantized(values.text("format"), trained);
  if (values.text("format") == "checkpoint") {
    write_run(output, opened, trained, console);
    return kSuccess;
  }
  write(values.text("format"), output, trained);
  fmt::print(console.out, "wrote {} parameters and {} statistics of {}{} to {}\n", trained.parameters->size(),
             trained.parameters->buffer_count(), trained.identity.model,
             trained.quantization == nullptr ? "" : ", in 8-bit integers,", output);
  return kSuccess;
}

}  // namespace trainyard::cli
