#include "trainyard/frontends/train_ctl/flags.h"

#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/nn/import/keras_import.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {

void declare_train_ctl_flags(core::FlagTable& table) {
  table
      .text("model", "resnet50",
            "resnet50 or trivial, the networks of the example, or a model of `trainyard models` for ImageNet")
      .group("Model");
  table.integer("image_width", 224, "pixels").group("Model");
  table.integer("image_height", 224, "pixels").group("Model");
  table
      .choice("image_format", "channels_last", {"channels_last", "channels_first"},
              "the layout of images as users see it; kernels choose their own, and exports are channels_last")
      .group("Model");
  table
      .text("data_dir", std::nullopt,
            "TFRecords train-* and validation-*, or class folders in train/ and "
            "validation/; unset: synthetic images")
      .group("Input");
  table.text("data_idx_dir", std::nullopt, "DALI's index files of the TFRecords; unset: records are counted")
      .group("Input");
  table
      .choice("dali_mode", "none", {"none", "CPU", "GPU"},
              "make images as the example's DALI pipeline does, on the CPU or on a GPU, instead of as its "
              "built-in one")
      .group("Input");
  table.integer("dali_threads", 4, "threads that prepare images")
      .automatic("4 with --dali_mode, else half of the cores")
      .group("Input");
  table
      .boolean("distort_color", false,
               "change brightness, saturation, hue and contrast of training images; not "
               "with --dali_mode")
      .group("Input");
  table.integer("batch_size", 256, "images a device and step").short_form('b').group("Run");
  table.integer("num_iter", 300, "batches or epochs to run").short_form('i').group("Run");
  table.choice("iter_unit", "batch", {"epoch", "batch"}, "what --num_iter counts").short_form('u').group("Run");
  table.real("momentum", 0.9, "of Keras' SGD").group("Run");
  table
      .choice("precision", "fp16", {"fp32", "fp16", "bf16"},
              "floats of activations; fp16 needs a GPU, and scales the loss by --loss_scale")
      .group("Run");
  table.real("loss_scale", 128.0, "with --precision=fp16").group("Run");
  table.boolean("use_xla", false, "capture a step and replay it; needs a GPU").group("Run");
  table.integer("devices", 1, "GPUs, or threads of the CPU, each with its own batch").group("Run");
  table
      .boolean(
          "horovod", false,
          "train with the other processes that mpirun, or a launcher of GPU processes, has started, one device each")
      .group("Run");
  table.integer("seed", 1234, "of initial weights, order and augmentation").bounds(0, {}).group("Run");
  table
      .text("log_dir", std::nullopt,
            "an existing directory for a checkpoint an epoch, from which the same "
            "command goes on; needs --data_dir")
      .group("Output");
  table.text("export_dir", std::nullopt, "an existing directory for saved_model_rn50.h5, a whole model of Keras")
      .group("Output");
  table
      .text("tensorboard_dir", std::nullopt,
            "an existing directory for TensorBoard's files and the trace of the "
            "first step")
      .group("Output");
  table.integer("display_every", 10, "steps between two lines of speed").group("Output");
  table
      .boolean("predict", false,
               "load the model of --export_dir and predict three batches, instead of "
               "training")
      .group("Output");
}

namespace {

// Says which of the given flags a prediction does not read.
void warn_of_flags_of_training(const core::FlagValues& values) {
  static const std::set<std::string, std::less<>> of_prediction{"predict",      "export_dir", "image_width",
                                                                "image_height", "batch_size", "seed"};
  for (const core::FlagSpec& flag : values.table().all()) {
    if (!values.given(flag.name) || of_prediction.contains(flag.name)) continue;
    core::log::warning("--{} has no effect with --predict", flag.name);
  }
}

}  // namespace

TrainCtlParams read_train_ctl_params(const core::FlagValues& values) {
  if (values.boolean("predict")) warn_of_flags_of_training(values);
  TrainCtlParams params;
  params.image_width = values.integer("image_width");
  params.image_height = values.integer("image_height");
  params.image_format = values.text("image_format");
  params.distort_color = values.boolean("distort_color");
  params.momentum = values.real("momentum");
  params.loss_scale = values.real("loss_scale");
  params.data_dir = values.text("data_dir");
  params.data_idx_dir = values.text("data_idx_dir");
  params.batch_size = values.integer("batch_size");
  params.num_iter = values.integer("num_iter");
  params.iter_unit = values.text("iter_unit");
  params.log_dir = values.text("log_dir");
  params.export_dir = values.text("export_dir");
  params.tensorboard_dir = values.text("tensorboard_dir");
  params.display_every = values.integer("display_every");
  params.precision = values.text("precision");
  params.dali_mode = values.text("dali_mode");
  params.use_xla = values.boolean("use_xla");
  if (values.given("dali_threads")) params.dali_threads = values.integer("dali_threads");
  params.devices = values.integer("devices");
  params.horovod = values.boolean("horovod");
  params.seed = static_cast<uint64_t>(values.integer("seed"));
  return params;
}

std::string take_saved_choices(const core::FlagValues& values, TrainCtlParams& params) {
  std::string model = values.text("model");
  const bool says_size = values.given("image_width") || values.given("image_height");
  core::FileSystem& files = core::local_file_system();
  if (values.boolean("predict")) {
    if (says_size || params.export_dir.empty() || !files.exists(params.export_path())) return model;
    const formats::Hdf5File file(params.export_path());
    const nn::Shape shape = nn::read_keras_model(file).graph.input_shape();
    if (shape.size() == 3) {
      params.image_height = shape[1];
      params.image_width = shape[2];
    }
    return model;
  }
  if (params.log_dir.empty() || !files.exists(params.log_dir)) return model;
  const std::vector<train::CheckpointInfo> saved = train::CheckpointStore(params.log_dir).list();
  if (saved.empty()) return model;
  const train::CheckpointFacts facts = train::read_checkpoint_facts(saved.back());
  std::string taken;
  if (!values.given("model") && !facts.identity.model.empty()) {
    model = facts.identity.model;
    taken = "--model=" + model;
  }
  if (!says_size && facts.image_size != nn::Size2d(0)) {
    params.image_height = facts.image_size.height;
    params.image_width = facts.image_size.width;
    taken += fmt::format("{}--image_height={} --image_width={}", taken.empty() ? "" : ", ", facts.image_size.height,
                         facts.image_size.width);
  }
  if (!taken.empty()) core::log::info("taken from {}: {}", saved.back().path, taken);
  return model;
}

void print_script_arguments(const core::FlagValues& values, std::ostream& out) {
  out << "Script arguments:\n";
  for (const core::FlagSpec& flag : values.table().all()) {
    if (flag.name == "help") continue;
    const core::FlagValue& value = values.value(flag.name);
    const bool unset =
        std::holds_alternative<std::monostate>(value) || (!flag.automatic_rule.empty() && !values.given(flag.name));
    fmt::print(out, "  --{}={}\n", flag.name, unset ? "" : core::format_flag_value(value));
  }
  out.flush();
}

}  // namespace trainyard::frontends
