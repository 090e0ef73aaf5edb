// The parameters of train_ctl() and predict_ctl(), with the names of NVIDIA DALI's TensorFlow ResNet-N example
// (runner_ctl.py). Required parameters are unset by default: a missing or invalid one is an error that names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct TrainCtlParams {
  std::optional<int64_t> image_width{}, image_height{};  // required; pixels
  std::string image_format = "channels_last";  // or channels_first: the user's layout; kernels choose their own
  bool distort_color = false;                  // of training images, without dali_mode
  std::optional<double> momentum{};            // required
  std::optional<double> loss_scale{};          // required; read with precision fp16
  std::string data_dir{};               // TFRecords train-* and validation-*, or class folders; empty: synthetic images
  std::string data_idx_dir{};           // their DALI index files; empty: the records are scanned
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
  // In addition to those of the example:
  std::optional<int64_t> dali_threads{};  // that prepare images; unset: 4 with dali_mode, else half of the cores
  int64_t devices = 1;                    // each corresponds to a process of the example; on a CPU, threads
  // Trains with the other processes that mpirun (on CPUs) or a launcher of GPU processes has started, one device each,
  // as with Horovod in the example: each trains on its part of the batches, and rank 0 prints, saves and exports.
  bool horovod = false;
  uint64_t seed = 1234;  // of initial weights, order and augmentation

  // Throws kInvalidArgument, naming the parameter, for one that is missing, invalid, or contradicts another, and for a
  // directory that does not exist. `gpus` is the number of GPUs of this machine; kUnsupported when one is needed.
  void validate(int gpus) const;
  // Does the part about directories; with horovod, for rank 0 only, which writes there.
  void validate_directories() const;
  // Does the same for the parameters that predict_ctl() reads.
  void validate_for_prediction() const;

  bool uses_dali() const { return dali_mode != "none"; }
  bool counts_epochs() const { return iter_unit == "epoch"; }
  // Returns "<export_dir>/saved_model_rn50.h5", the example's name for every model.
  [[nodiscard]] std::string export_path() const;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
