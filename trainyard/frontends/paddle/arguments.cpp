#include "trainyard/frontends/paddle/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/models/flags.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends::program {

using core::Error;
using core::ErrorCode;

namespace {

// Beyond these no run ends, and products of two of them would not fit into 64 bits.
constexpr int64_t kMostEpochs = int64_t{1} << 31, kMostSteps = int64_t{1} << 31;
constexpr int64_t kMostBatchImages = int64_t{1} << 20;
constexpr int64_t kMostThreads = 1024;

void require(bool good, const char* option, std::string expected, std::string actual) {
  if (good) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("--{} cannot be used", option),
                                            .expected = std::move(expected),
                                            .actual = std::move(actual)});
}

void refuse(std::string problem, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, {.problem = std::move(problem), .remedy = std::move(remedy)});
}

// `lowest` is allowed where `open` is false.
void require_above(const char* option, double value, double lowest, bool open = false) {
  const bool good = std::isfinite(value) && (open ? value > lowest : value >= lowest);
  require(good, option, fmt::format("{} {}", open ? "more than" : "at least", lowest), fmt::format("{}", value));
}

void check_ranges(const Arguments& args) {
  for (const auto& [option, value, least, most] :
       {std::tuple{"epochs", args.epochs, int64_t{1}, kMostEpochs},
        {"save_interval", args.save_interval, 1, kMostEpochs},
        {"eval_interval", args.eval_interval, 1, kMostEpochs},
        {"warmup_epochs", args.warmup_epochs, 0, kMostEpochs},
        {"print_interval", args.print_interval, 1, kMostSteps},
        {"benchmark_steps", args.benchmark_steps, 1, kMostSteps},
        {"benchmark_warmup_steps", args.benchmark_warmup_steps, 0, kMostSteps},
        {"batch_size", args.batch_size, 1, kMostBatchImages},
        {"crop_size", args.crop_size, 1, models::kLongestImageSide},
        {"resize_short", args.resize_short, 1, models::kLongestImageSide},
        {"dali_num_threads", args.dali_num_threads, 1, kMostThreads},
        {"num_of_class", args.num_of_class, 1, models::kMostClasses}}) {
    require(value >= least && value <= most, option, fmt::format("a number from {} to {}", least, most),
            std::to_string(value));
  }
  for (const auto& [option, value] : {std::pair{"lr", args.lr},
                                      {"warmup_start_lr", args.warmup_start_lr},
                                      {"weight_decay", args.weight_decay},
                                      {"momentum", args.momentum}}) {
    require_above(option, value, 0);
  }
  require_above("scale_loss", args.scale_loss, 0, /*open=*/true);
  require_above("normalize_scale", args.normalize_scale, 0, /*open=*/true);
  require(args.label_smoothing >= 0 && args.label_smoothing < 1, "label_smoothing", "a number in [0, 1)",
          fmt::format("{}", args.label_smoothing));
  for (const auto& [option, list, count] : {std::tuple{"rand_crop_scale", &args.rand_crop_scale, 2U},
                                            {"rand_crop_ratio", &args.rand_crop_ratio, 2U},
                                            {"normalize_mean", &args.normalize_mean, 3U},
                                            {"normalize_std", &args.normalize_std, 3U}}) {
    require(list->size() == count, option, fmt::format("{} numbers", count), fmt::format("{}", list->size()));
  }
  require(args.data_layout == "NCHW" || args.data_layout == "NHWC", "data_layout", "NCHW or NHWC", args.data_layout);
  require(args.optimizer == "Momentum", "optimizer", "Momentum", args.optimizer);
  require(args.lr_scheduler == "Cosine", "lr_scheduler", "Cosine", args.lr_scheduler);
  require(args.model_prefix.find('/') == std::string::npos && !args.model_prefix.empty(), "model_prefix",
          "the name of a file, without a folder", "'" + args.model_prefix + "'");
  static_cast<void>(optim::mask_algorithm_from_name(args.mask_algo));
}

void check_images(const Arguments& args) {
  require(args.image_shape.size() == 3, "image_shape", "channels, height and width",
          fmt::format("{} numbers", args.image_shape.size()));
  const int64_t channels = args.image_shape[0], height = args.image_shape[1], width = args.image_shape[2];
  require(channels == 3 || channels == 4, "image_shape", "3 channels, or 4 with one of zeros",
          fmt::format("{} channels", channels));
  require(height == args.crop_size && width == args.crop_size, "image_shape",
          fmt::format("images of {0} x {0} pixels, as --crop_size={0} makes them", args.crop_size),
          fmt::format("{} x {}", height, width));
  require(args.resize_short >= args.crop_size, "resize_short",
          fmt::format("at least --crop_size, which is {}", args.crop_size), std::to_string(args.resize_short));
}

// Says which options the steps that run do not read.
void warn_of_options_of_other_runs(const Arguments& args) {
  const Arguments plain;
  const auto warn = [&](bool idle, const char* option, auto member, const std::string& of) {
    if (!idle || (args.*member == plain.*member && !args.says(option))) return;
    core::log::warning("--{} has no effect {}", option, of);
  };
  const bool evaluates_alone = !args.trains();
  const std::string scope = fmt::format("with --run_scope={}", to_string(args.run_scope));
  const std::string steps = evaluates_alone ? scope : "with --benchmark";
  warn(evaluates_alone || args.benchmark, "epochs", &Arguments::epochs, steps);
  warn(evaluates_alone || args.benchmark, "save_interval", &Arguments::save_interval, steps);
  warn(evaluates_alone || args.benchmark, "output_dir", &Arguments::output_dir, steps);
  warn(args.run_scope != RunScope::kTrainEval, "eval_interval", &Arguments::eval_interval, scope);
  for (const auto& [option, member] : {std::pair{"benchmark_steps", &Arguments::benchmark_steps},
                                       {"benchmark_warmup_steps", &Arguments::benchmark_warmup_steps}}) {
    warn(!args.benchmark, option, member, "without --benchmark");
  }
  for (const auto& [option, member] :
       {std::pair{"rand_crop_scale", &Arguments::rand_crop_scale}, {"rand_crop_ratio", &Arguments::rand_crop_ratio}}) {
    warn(evaluates_alone, option, member, scope);
    warn(!evaluates_alone && args.image_root.empty(), option, member, "with an empty --image_root");
  }
  for (const auto& [option, member] : {std::pair{"label_smoothing", &Arguments::label_smoothing},
                                       {"momentum", &Arguments::momentum},
                                       {"weight_decay", &Arguments::weight_decay},
                                       {"lr", &Arguments::lr},
                                       {"warmup_start_lr", &Arguments::warmup_start_lr}}) {
    warn(evaluates_alone, option, member, scope);
  }
  warn(evaluates_alone, "warmup_epochs", &Arguments::warmup_epochs, scope);
  warn(evaluates_alone, "bn_weight_decay", &Arguments::bn_weight_decay, scope);
  warn(evaluates_alone && args.amp, "scale_loss", &Arguments::scale_loss, scope);
  warn(evaluates_alone && args.amp, "use_dynamic_loss_scaling", &Arguments::use_dynamic_loss_scaling, scope);
}

// Says which options have no effect: the example passes over them.
void warn_of_idle_options(const Arguments& args) {
  warn_of_options_of_other_runs(args);
  const Arguments plain;
  const auto warn = [](bool idle, const char* option, const char* of) {
    if (idle) core::log::warning("--{} has no effect without --{}", option, of);
  };
  warn(!args.amp && args.scale_loss != plain.scale_loss, "scale_loss", "amp");
  warn(!args.amp && args.use_dynamic_loss_scaling, "use_dynamic_loss_scaling", "amp");
  warn(!args.amp && args.use_pure_fp16, "use_pure_fp16", "amp");
  warn(!args.amp && args.fuse_resunit, "fuse_resunit", "amp");
  warn(!args.asp && args.prune_model, "prune_model", "asp");
  warn(args.asp && !args.prune_model, "asp", "prune_model");
  warn(!(args.asp && args.prune_model) && args.mask_algo != plain.mask_algo, "mask_algo", "asp and --prune_model");
  if (args.asp && args.prune_model && !args.trains()) {
    core::log::warning(
        "--prune_model prunes what a training starts from: nothing is pruned with --run_scope=eval_only");
  }
  if (args.amp && (args.use_pure_fp16 || args.fuse_resunit)) {
    core::log::info("--{}: that is what --amp does here in any case",
                    args.use_pure_fp16 ? "use_pure_fp16" : "fuse_resunit");
  }
}

bool holds_checkpoint(const std::string& directory) {
  formats::refuse_tensorflow_checkpoint(directory);
  return core::local_file_system().exists(directory) && !train::CheckpointStore(directory).list().empty();
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The largest epoch whose folder holds a checkpoint; -1: there is none.
int64_t newest_epoch(const std::string& directory, const std::string& prefix) {
  int64_t newest = -1;
  core::FileSystem& files = core::local_file_system();
  for (const std::string& folder : files.list(directory)) {
    const std::optional<int64_t> epoch = whole_number(folder);
    if (!files.info(core::join_path(directory, folder)).is_directory) continue;
    if (!epoch) {
      core::log::warning("Skip folder '{}' since its name is not integer-convertable.", folder);
    } else if (*epoch > newest && holds_checkpoint(core::join_path(core::join_path(directory, folder), prefix))) {
      newest = *epoch;
    }
  }
  return newest;
}

// Sets checkpoint_dir and start_epoch.
void find_checkpoint(Arguments& args) {
  if (!args.from_checkpoint) return;
  const std::string wanted = args.last_epoch_of_checkpoint.value_or("");
  int64_t epoch = -1;
  std::string directory = *args.from_checkpoint;
  if (wanted == "auto") {
    epoch = core::local_file_system().exists(directory) ? newest_epoch(directory, args.model_prefix) : -1;
    if (epoch >= 0) directory = core::join_path(directory, std::to_string(epoch));
  } else if (!wanted.empty()) {
    const std::optional<int64_t> number = whole_number(wanted);
    require(number && *number >= 0 && *number < kMostEpochs, "last_epoch_of_checkpoint", "None, auto or integer >= 0",
            wanted);
    epoch = *number;
  }
  directory = core::join_path(directory, args.model_prefix);
  if (!holds_checkpoint(directory)) {
    formats::refuse_tensorflow_checkpoint(*args.from_checkpoint);
    core::log::warning("Cannot find a checkpoint in {}, disable --from_checkpoint.", directory);
    return;
  }
  args.checkpoint_dir = directory;
  args.start_epoch = epoch + 1;
}

// Sets pretrained_weights.
void find_pretrained(Arguments& args) {
  if (!args.from_pretrained_params) return;
  const std::string base = core::join_path(*args.from_pretrained_params, args.model_prefix);
  const std::string file = base + ".safetensors";
  if (core::local_file_system().exists(file)) {
    args.pretrained_weights = file;
  } else if (holds_checkpoint(base)) {
    args.pretrained_weights = base;
  } else {
    formats::refuse_tensorflow_checkpoint(*args.from_pretrained_params);
    core::log::warning("Cannot find {} or a checkpoint in {}, disable --from_pretrained_params.", file, base);
  }
}

void note_given(Arguments& args) {
  const Arguments plain;
  for (const auto& [option, differs] : {std::pair{"model_arch_name", args.model_arch_name != plain.model_arch_name},
                                        {"num_of_class", args.num_of_class != plain.num_of_class},
                                        {"image_shape", args.image_shape != plain.image_shape},
                                        {"crop_size", args.crop_size != plain.crop_size},
                                        {"resize_short", args.resize_short != plain.resize_short},
                                        {"normalize_scale", args.normalize_scale != plain.normalize_scale},
                                        {"normalize_mean", args.normalize_mean != plain.normalize_mean},
                                        {"normalize_std", args.normalize_std != plain.normalize_std}}) {
    if (differs && !args.says(option)) args.given.emplace_back(option);
  }
}

// Takes the model's name, the way to the model's input and, where the run continues from a checkpoint or evaluates, the
// number of classes from what it begins with, where the options do not say them.
void take_from_saved(Arguments& args) {
  const bool starts = args.checkpoint_dir.empty() && args.trains();  // from weights alone
  const std::string& path = args.checkpoint_dir.empty() ? args.pretrained_weights : args.checkpoint_dir;
  if (path.empty()) return;
  const OpenedModel opened = open_model({.path = path});
  std::string taken;
  const auto take = [&taken](const std::string& what) { taken += (taken.empty() ? "" : ", ") + what; };
  const std::string& model = opened.identity.model;
  const bool says_shape = args.says("image_shape");
  if (!model.empty() && !args.says("model_arch_name") && !says_shape && model != args.model_name()) {
    const bool resnet = model == "paddle/resnet50" || model == "torchvision/resnet50";
    args.image_shape[0] = model == "paddle/resnet50" ? 4 : 3;
    if (resnet) {  // the two differ in the channels of their images alone
      take(fmt::format("{} channels of --image_shape", args.image_shape[0]));
    } else {
      args.model_arch_name = model;
      take("--model_arch_name=" + model);
    }
  }
  if (!starts && opened.identity.num_classes > 0 && !args.says("num_of_class") &&
      opened.identity.num_classes != args.num_of_class) {
    args.num_of_class = opened.identity.num_classes;
    take(fmt::format("--num_of_class={}", args.num_of_class));
  }
  const auto tell = [&] {
    if (!taken.empty()) core::log::info("taken from {}: {}", opened.checkpoint.path, taken);
  };
  std::optional<TrainedInput> trained = input_of(opened, args.model_name(), "imagenet");
  if (!trained) return tell();
  trained->preprocessor = "paddle";  // training images are the example's
  args.trained = std::make_shared<const TrainedInput>(*std::move(trained));
  const data::TransformOptions& input = args.trained->input;
  if (!args.says("crop_size") && !says_shape && input.height == input.width) {
    args.crop_size = args.image_shape[1] = args.image_shape[2] = input.height;
    if (input.height != Arguments().crop_size) take(fmt::format("--crop_size={}", args.crop_size));
  }
  if (!args.says("resize_short")) {
    const int64_t resized = evaluation_at(input, args.crop_size).eval_resize_size;
    args.resize_short = std::max(args.crop_size, resized == 0 ? args.resize_short : resized);
  }
  tell();
  if (!args.trained->choice.empty()) core::log::info("{}: {}", path, args.trained->choice);
}

}  // namespace

const char* to_string(RunScope scope) {
  if (scope == RunScope::kTrainOnly) return "train_only";
  return scope == RunScope::kEvalOnly ? "eval_only" : "train_eval";
}

bool Arguments::says(const std::string& option) const {
  return std::find(given.begin(), given.end(), option) != given.end();
}

std::string Arguments::model_name() const {
  const bool zeros = image_shape.at(0) == 4;
  if (model_arch_name == "ResNet50") return zeros ? "paddle/resnet50" : "torchvision/resnet50";
  if (zeros && model_arch_name != "paddle/resnet50") {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "images with a fourth channel are for ResNet50 alone",
                                              .where = "--image_shape",
                                              .expected = "3 channels",
                                              .actual = "4, with --model_arch_name=" + model_arch_name});
  }
  return model_arch_name;
}

void settle(Arguments& args) {
  check_ranges(args);
  if (args.from_checkpoint && args.from_pretrained_params) {
    refuse("--from_pretrained_params and --from_checkpoint exclude each other", "leave one of them out");
  }
  if (args.benchmark && args.run_scope == RunScope::kTrainEval) {
    refuse("--benchmark measures training or evaluation", "pass --run_scope=train_only or --run_scope=eval_only");
  }
  if (args.last_epoch_of_checkpoint && !args.from_checkpoint) {
    core::log::warning("--last_epoch_of_checkpoint has no effect without --from_checkpoint");
  }
  if (args.places.empty()) args.places = {train::gpu_count() > 0 ? "gpu:0" : "cpu:0"};
  read_device_names(args.places);
  warn_of_idle_options(args);
  if (args.trains()) formats::refuse_tensorflow_checkpoint(args.output_dir);
  find_checkpoint(args);
  find_pretrained(args);
  note_given(args);
  take_from_saved(args);
  check_images(args);
  models::find_model(args.model_name(), "imagenet");
  if (args.benchmark || !args.trains()) args.epochs = args.start_epoch + 1;
  if (!args.trains()) args.eval_interval = 1;
}

std::string checkpoint_directory(const Arguments& args, int64_t epoch) {
  std::string path = core::join_path(args.output_dir, args.model_arch_name);
  path = core::join_path(path, std::to_string(epoch));
  return core::join_path(path, args.model_prefix);
}

}  // namespace trainyard::frontends::program
