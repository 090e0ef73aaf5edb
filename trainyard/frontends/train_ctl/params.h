// The parameters of train_ctl() and predict_ctl(), by the names that NVIDIA DALI's TensorFlow ResNet-N example has for
// them (runner_ctl.py). A parameter that is required begins empty, so that one that is forgotten is an error which
// names it, as is one that cannot be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct TrainCtlParams {
  std::optional<int64_t> image_width{}, image_height{};  // required; pixels
  std::string image_format = "channels_last";  // or channels_first: as users see images; kernels choose their own
  bool distort_color = false;                  // of training images, without dali_mode
  std::optional<double> momentum{};            // required
  std::optional<double> loss_scale{};          // required; read with precision fp16
  std::string data_dir{};               // TFRecords train-* and validation-*, or class folders; empty: synthetic images
  std::string data_idx_dir{};           // their DALI index files; empty: the records are looked through
  std::optional<int64_t> batch_size{};  // required; images a device
  std::optional<int64_t> num_iter{};    // required; of iter_unit
  std::optional<std::string> iter_unit{};  // required: epoch or batch
  std::string log_dir{};                   // for checkpoints; empty: none
  std::string export_dir{};                // for saved_model_rn50.h5; empty: none
  std::string tensorboard_dir{};           // empty: none
  std::optional<int64_t> display_every{};  // required; steps
  std::optional<std::string> precision{};  // required: fp32, bf16, or fp16, which needs a GPU
  std::string dali_mode = "none";          // CPU or GPU: the input of the example's DALI pipeline
  std::optional<bool> use_xla{};           // required; true needs a GPU
  // Beyond those of the example:
  std::optional<int64_t> dali_threads{};  // that prepare images; unset: 4 with dali_mode, else half of the cores
  int64_t devices = 1;                    // each is what a process of the example is; on a CPU, threads
  // With the other processes that mpirun (on CPUs) or a launcher of GPU processes has started, one device each, as
  // Horovod's of the example: all train on their part of the batches, and rank 0 prints, saves and exports.
  bool horovod = false;
  uint64_t seed = 1234;  // of initial weights, order and augmentation

  // Throws kInvalidArgument, naming the parameter, for one that is missing, cannot be, or contradicts another, and for
  // a directory that is not there. `gpus`: how many this machine has; kUnsupported for what needs one.
  void validate(int gpus) const;
  // A part of it; with horovod, of rank 0 alone, which writes there.
  void validate_directories() const;
  // Does the same for the parameters that predict_ctl() reads.
  void validate_for_prediction() const;

  bool uses_dali() const { return dali_mode != "none"; }
  bool counts_epochs() const { return iter_unit == "epoch"; }
  // Returns "<export_dir>/saved_model_rn50.h5", the name that the example has for every model.
  [[nodiscard]] std::string export_path() const;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
