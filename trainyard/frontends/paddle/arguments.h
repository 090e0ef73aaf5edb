// The options of NVIDIA DALI's PaddlePaddle ResNet-50 example, with its names and defaults.
//
//   Arguments args;
//   args.image_root = "/data/imagenet";
//   settle(args);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {
struct TrainedInput;  // frontends/options/image_options.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

enum class Mode { kTrain, kEval };
enum class RunScope { kTrainEval, kTrainOnly, kEvalOnly };
const char* to_string(RunScope scope);  // "train_eval", "train_only", "eval_only"

struct Arguments {
  // Global.
  std::string output_dir = "./output/";
  RunScope run_scope = RunScope::kTrainEval;
  int64_t epochs = 90;
  int64_t save_interval = 1, eval_interval = 1;  // epochs
  int64_t print_interval = 10;                   // steps
  std::string report_file = "./report.json";
  std::string data_layout = "NCHW";  // "NHWC": layout of `data` in feeds; the computation is the same
  bool benchmark = false;
  int64_t benchmark_steps = 100, benchmark_warmup_steps = 100;
  std::string model_prefix = "resnet_50_paddle";
  std::optional<std::string> from_pretrained_params{}, from_checkpoint{};
  std::optional<std::string> last_epoch_of_checkpoint{};  // "auto" or a number
  bool show_config = true;
  bool enable_cpu_affinity = true;
  std::vector<std::string> places{};  // device_names.h; empty: the first GPU, or the CPU. Each is a trainer

  // Mixed precision and sparsity.
  bool amp = false;
  double scale_loss = 1.0;
  bool use_dynamic_loss_scaling = false;
  bool use_pure_fp16 = false;
  bool fuse_resunit = false;
  bool asp = false, prune_model = false;
  std::string mask_algo = "mask_1d";

  // Data: train/ and val/ below image_root hold a folder for each class. Empty: synthetic images.
  std::string image_root = "/imagenet";
  std::vector<int64_t> image_shape = {4, 224, 224};  // channels (3, or 4 with one of zeros), height, width
  int64_t batch_size = 256;                          // per place
  int64_t dali_random_seed = 42;
  int64_t dali_num_threads = 4;
  bool dali_output_fp16 = false;
  int64_t crop_size = 224;
  std::vector<double> rand_crop_scale = {0.08, 1.0};
  std::vector<double> rand_crop_ratio = {3.0 / 4, 4.0 / 3};
  double normalize_scale = 1.0 / 255;
  std::vector<double> normalize_mean = {0.485, 0.456, 0.406};
  std::vector<double> normalize_std = {0.229, 0.224, 0.225};
  int64_t resize_short = 256;

  // Model. "ResNet50", or any ImageNet model of the zoo.
  std::string model_arch_name = "ResNet50";
  int64_t num_of_class = 1000;
  bool bn_weight_decay = false;

  // Training.
  double label_smoothing = 0.1;
  std::string optimizer = "Momentum";
  double momentum = 0.875;
  double weight_decay = 3.0517578125e-05;  // 2^-15
  std::string lr_scheduler = "Cosine";
  double lr = 0.256;  // of one place
  int64_t warmup_epochs = 5;
  double warmup_start_lr = 0.0;

  // Options that were given. For the following options, a default that was not given is replaced by the value of the
  // checkpoint, or of the file of weights, that the run starts from: model_arch_name, num_of_class, image_shape,
  // crop_size, resize_short and normalize_*.
  std::vector<std::string> given{};

  // Set by settle().
  int64_t start_epoch = 0;
  std::string checkpoint_dir{};      // from from_checkpoint, a directory with a checkpoint; empty: none
  std::string pretrained_weights{};  // from from_pretrained_params, a file or a directory with a checkpoint
  std::shared_ptr<const TrainedInput> trained{};  // how the model's images were made in its training

  // Processes that train together, each on places of its own. The run finds it out when it has met them.
  int64_t processes = 1;

  int64_t trainers() const { return std::ssize(places) * processes; }
  bool trains() const { return run_scope != RunScope::kEvalOnly; }
  bool evaluates() const { return run_scope != RunScope::kTrainOnly; }
  // Returns true for an option in `given`, to which settle() adds those with other values than their defaults.
  [[nodiscard]] bool says(const std::string& option) const;
  // Returns the model's name in the registry.
  [[nodiscard]] std::string model_name() const;
};

// Checks the options, warns of those without effect together with the others, finds the checkpoint or weights to start
// from, and sets what depends on them: places, epochs, the members above. Call it once. Throws kInvalidArgument for
// values that are out of range or contradict each other. A directory without a checkpoint is a warning with
// last_epoch_of_checkpoint=auto, and the training begins again.
void settle(Arguments& args);

// Returns where a training saves the checkpoint of an epoch: "<output_dir>/<model_arch_name>/<epoch>/<model_prefix>".
[[nodiscard]] std::string checkpoint_directory(const Arguments& args, int64_t epoch);

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
