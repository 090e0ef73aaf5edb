#include "trainyard/recipes/program/flags.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"
#include "trainyard/recipes/shared/number_list.h"

namespace trainyard::recipes::program {
namespace {

const Arguments kDefault;

constexpr const char* kListedDefault = "; unset: ";

// The example writes "--show-config False": these two take a value behind a blank.
bool read_yes_or_no(const core::FlagValues& values, const char* flag) {
  std::string text = values.text(flag);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"yes", "true", "t", "y", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"no", "false", "f", "n", "0"}) {
    if (text == no) return false;
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("--{} is neither yes nor no", flag),
                     .expected = "one of yes, true, t, y, 1, no, false, f, n, 0",
                     .actual = values.text(flag)});
}

void read_list(const core::FlagValues& values, const char* flag, std::vector<double>& numbers) {
  if (values.given(flag)) numbers = read_numbers<double>(values, flag, core::FlagKind::kReal, "floats");
}

// "None", as the example's own default, is not set.
std::optional<std::string> text_or_none(const core::FlagValues& values, const char* flag) {
  const std::string text = values.text(flag);
  return text.empty() || text == "None" ? std::nullopt : std::optional(text);
}

void declare_global(core::FlagTable& table) {
  constexpr const char* kGroup = "Global";
  const Arguments& d = kDefault;
  table.text("output_dir", d.output_dir, "where checkpoints go: <output_dir>/<model_arch_name>/<epoch>/<model_prefix>")
      .group(kGroup);
  table.choice("run_scope", to_string(d.run_scope), {"train_eval", "train_only", "eval_only"}, "what runs")
      .group(kGroup);
  table.integer("epochs", d.epochs, "epochs of the training").group(kGroup);
  table.integer("save_interval", d.save_interval, "epochs from one checkpoint to the next; the last epoch is saved, too")
      .group(kGroup);
  table.integer("eval_interval", d.eval_interval, "epochs from one evaluation to the next").group(kGroup);
  table.integer("print_interval", d.print_interval, "steps from one line to the next").group(kGroup);
  table.text("report_file", d.report_file, "the same lines as JSON objects; empty: none").group(kGroup);
  table.choice("data_layout", d.data_layout, {"NCHW", "NHWC"}, "of the feed `data`; the computation has its own")
      .group(kGroup);
  table.boolean("benchmark", false, "time steps; with --run-scope=train_only or eval_only").group(kGroup);
  table.integer("benchmark_steps", d.benchmark_steps, "steps that are timed").group(kGroup);
  table.integer("benchmark_warmup_steps", d.benchmark_warmup_steps, "steps before these").group(kGroup);
  table.text("model_prefix", d.model_prefix, "the name of a model in its folder").group(kGroup);
  table.text("from_pretrained_params", std::nullopt, "a folder with <model_prefix>.safetensors, or with a checkpoint in "
                                                     "<model_prefix>/, whose weights a training starts from")
      .group(kGroup);
  table.text("from_checkpoint", std::nullopt, "a folder with <model_prefix>/, or with <epoch>/<model_prefix>/, to go on "
                                              "from or to evaluate")
      .group(kGroup);
  table.text("last_epoch_of_checkpoint", std::nullopt, "the epoch that the checkpoint has done: None (the epochs begin "
                                                       "anew), auto (of the folder with the largest one), or a number")
      .group(kGroup);
  table.text("show_config", "True", "print all options at the start").group(kGroup);
  table.text("enable_cpu_affinity", "True", "with several NUMA nodes: each place's threads stay on one").group(kGroup);
  table.list("places", "devices, each with batches of its own: cpu:0,cpu:1 or gpu:0,gpu:1; unset: the first GPU, or the CPU")
      .group(kGroup);
}

void declare_training(core::FlagTable& table) {
  const Arguments& d = kDefault;
  constexpr const char* kTraining = "Training";
  table.real("label_smoothing", d.label_smoothing, "share of the target that all classes get equally").group(kTraining);
  table.choice("optimizer", d.optimizer, {"Momentum"}, "v = m v + g + weight_decay w; w -= lr v").group(kTraining);
  table.real("momentum", d.momentum, "m").group(kTraining);
  table.real("weight_decay", d.weight_decay, "2^-15 by default").group(kTraining);
  table.choice("lr_scheduler", d.lr_scheduler, {"Cosine"}, "warm-up, then a cosine to 0").group(kTraining);
  table.real("lr", d.lr, "the rate of one place, behind the warm-up").group(kTraining);
  table.integer("warmup_epochs", d.warmup_epochs, "epochs in which the rate rises").group(kTraining);
  table.real("warmup_start_lr", d.warmup_start_lr, "where it begins").group(kTraining);

  constexpr const char* kAdvanced = "Advanced Training";
  table.boolean("amp", false, "16-bit floats: float16 on GPUs, bfloat16 on processors that have it").group(kAdvanced);
  table.real("scale_loss", d.scale_loss, "the loss scale of --amp, at first").group(kAdvanced);
  table.boolean("use_dynamic_loss_scaling", false, "the scale moves: times 2 after 1,000 good steps in a row, times 0.8 "
                                                   "after 2 bad ones")
      .group(kAdvanced);
  table.boolean("use_pure_fp16", false, "what --amp does here in any case").group(kAdvanced);
  table.boolean("fuse_resunit", false, "what --amp does here in any case").group(kAdvanced);
  table.boolean("asp", false, "2:4 sparse training").group(kAdvanced);
  table.boolean("prune_model", false, "with --asp: prune what the training starts from").group(kAdvanced);
  table.choice("mask_algo", d.mask_algo, optim::mask_algorithm_names(), "of --prune-model").group(kAdvanced);
}

void declare_data(core::FlagTable& table) {
  const Arguments& d = kDefault;
  constexpr const char* kData = "Dataset";
  table.text("image_root", d.image_root, "a folder with train/ and val/, each with a folder for each class; empty: "
                                         "synthetic images")
      .group(kData);
  table.list("image_shape", fmt::format("channels (3, or 4 with one of zeros), height and width{}{}", kListedDefault,
                                        fmt::join(d.image_shape, ",")))
      .group(kData);
  table.integer("batch_size", d.batch_size, "images of one place").group(kData);
  table.integer("dali_random_seed", d.dali_random_seed, "of order, crops and parameters").bounds(0).group(kData);
  table.integer("dali_num_threads", d.dali_num_threads, "threads that make batches").bounds(1, 4096).group(kData);
  table.boolean("dali_output_fp16", false, "images as 16-bit floats").group(kData);

  constexpr const char* kAugmentation = "Data Augmentation";
  table.integer("crop_size", d.crop_size, "pixels of a side of the images").bounds(1, models::kLongestImageSide)
      .group(kAugmentation);
  table.list("rand_crop_scale", "least and largest part of an image that is cut out; unset: 0.08,1").group(kAugmentation);
  table.list("rand_crop_ratio", "least and largest width / height; unset: 3/4,4/3 as numbers").group(kAugmentation);
  table.real("normalize_scale", d.normalize_scale, "of pixels, before mean and deviation").group(kAugmentation);
  table.list("normalize_mean", fmt::format("by channel{}{}", kListedDefault, fmt::join(d.normalize_mean, ",")))
      .group(kAugmentation);
  table.list("normalize_std", fmt::format("by channel{}{}", kListedDefault, fmt::join(d.normalize_std, ",")))
      .group(kAugmentation);
  table.integer("resize_short", d.resize_short, "pixels of the shorter side, before an evaluation's crop")
      .bounds(1, models::kLongestImageSide)
      .group(kAugmentation);

  constexpr const char* kModel = "Model";
  table.text("model_arch_name", d.model_arch_name, "ResNet50, or any of `trainyard models`").group(kModel);
  table.integer("num_of_class", d.num_of_class, "outputs of the model").bounds(1, 1'000'000).group(kModel);
  table.boolean("bn_weight_decay", false, "weight decay of batch norms, too").group(kModel);
}

}  // namespace

void declare_flags(core::FlagTable& table) {
  table.take_dashes();
  declare_global(table);
  declare_data(table);
  declare_training(table);
}

Arguments read_arguments(const core::FlagValues& values) {
  Arguments args;
  args.output_dir = values.text("output_dir");
  const std::string scope = values.text("run_scope");
  for (const RunScope named : {RunScope::kTrainEval, RunScope::kTrainOnly, RunScope::kEvalOnly}) {
    if (scope == to_string(named)) args.run_scope = named;
  }
  args.epochs = values.integer("epochs");
  args.save_interval = values.integer("save_interval");
  args.eval_interval = values.integer("eval_interval");
  args.print_interval = values.integer("print_interval");
  args.report_file = values.text("report_file");
  args.data_layout = values.text("data_layout");
  args.benchmark = values.boolean("benchmark");
  args.benchmark_steps = values.integer("benchmark_steps");
  args.benchmark_warmup_steps = values.integer("benchmark_warmup_steps");
  args.model_prefix = values.text("model_prefix");
  args.from_pretrained_params = text_or_none(values, "from_pretrained_params");
  args.from_checkpoint = text_or_none(values, "from_checkpoint");
  args.last_epoch_of_checkpoint = text_or_none(values, "last_epoch_of_checkpoint");
  args.show_config = read_yes_or_no(values, "show_config");
  args.enable_cpu_affinity = read_yes_or_no(values, "enable_cpu_affinity");
  args.places = values.list("places");
  args.amp = values.boolean("amp");
  args.scale_loss = values.real("scale_loss");
  args.use_dynamic_loss_scaling = values.boolean("use_dynamic_loss_scaling");
  args.use_pure_fp16 = values.boolean("use_pure_fp16");
  args.fuse_resunit = values.boolean("fuse_resunit");
  args.asp = values.boolean("asp");
  args.prune_model = values.boolean("prune_model");
  args.mask_algo = values.text("mask_algo");
  args.image_root = values.text("image_root");
  if (values.given("image_shape")) {
    const auto shape = read_numbers<int64_t>(values, "image_shape", core::FlagKind::kInteger, "integers");
    if (shape.size() != args.image_shape.size()) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--image-shape cannot be used",
                                                            .expected = "channels, height and width",
                                                            .actual = fmt::format("{} numbers", shape.size())});
    }
    std::copy(shape.begin(), shape.end(), args.image_shape.begin());
  }
  args.batch_size = values.integer("batch_size");
  args.dali_random_seed = values.integer("dali_random_seed");
  args.dali_num_threads = values.integer("dali_num_threads");
  args.dali_output_fp16 = values.boolean("dali_output_fp16");
  args.crop_size = values.integer("crop_size");
  read_list(values, "rand_crop_scale", args.rand_crop_scale);
  read_list(values, "rand_crop_ratio", args.rand_crop_ratio);
  args.normalize_scale = values.real("normalize_scale");
  read_list(values, "normalize_mean", args.normalize_mean);
  read_list(values, "normalize_std", args.normalize_std);
  args.resize_short = values.integer("resize_short");
  args.model_arch_name = values.text("model_arch_name");
  args.num_of_class = values.integer("num_of_class");
  args.bn_weight_decay = values.boolean("bn_weight_decay");
  args.label_smoothing = values.real("label_smoothing");
  args.optimizer = values.text("optimizer");
  args.momentum = values.real("momentum");
  args.weight_decay = values.real("weight_decay");
  args.lr_scheduler = values.text("lr_scheduler");
  args.lr = values.real("lr");
  args.warmup_epochs = values.integer("warmup_epochs");
  args.warmup_start_lr = values.real("warmup_start_lr");
  return args;
}

}  // namespace trainyard::recipes::program
