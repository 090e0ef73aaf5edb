#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kMostBatchImages = int64_t{1} << 20;  // of a batch of a device
constexpr int64_t kMostIterations = int64_t{1} << 53;   // up to here a double counts single steps
constexpr int64_t kMostDevices = 1024;

template <typename Value>
void require_given(const std::optional<Value>& value, const char* name, const char* expected) {
  if (value) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the parameter {} is missing", name),
                                            .where = "train_ctl",
                                            .expected = expected,
                                            .actual = "none"});
}

void require(bool good, const char* name, const std::string& expected, const std::string& actual) {
  if (good) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the parameter {} cannot be used", name),
                                            .where = "train_ctl",
                                            .expected = expected,
                                            .actual = actual});
}

void require_count(const std::optional<int64_t>& value, const char* name, int64_t most) {
  const std::string expected = fmt::format("a number from 1 to {}", most);
  require_given(value, name, expected.c_str());
  require(*value >= 1 && *value <= most, name, expected, std::to_string(*value));
}

void require_choice(const std::string& value, const char* name, std::initializer_list<const char*> choices) {
  const bool known = std::any_of(choices.begin(), choices.end(), [&](const char* choice) { return value == choice; });
  require(known, name, fmt::format("one of {}", fmt::join(choices, ", ")), fmt::format("'{}'", value));
}

void require_directory(const std::string& path, const char* name) {
  if (path.empty()) return;
  core::FileSystem& files = core::local_file_system();
  if (!files.exists(path)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the directory {} does not exist", name),
                                              .where = "train_ctl",
                                              .actual = path,
                                              .remedy = "make it first"});
  }
  require(files.info(path).is_directory, name, "a directory", path + ", a file");
}

void require_data(bool asked, const std::string& data_dir, const char* name) {
  if (!asked || !data_dir.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} needs data_dir: it is of real images", name),
                                            .where = "train_ctl",
                                            .remedy = "give data_dir, or leave it out"});
}

void require_gpu(bool asked, int gpus, const char* name, const std::string& value, const std::string& remedy) {
  if (!asked || gpus > 0) return;
  throw Error(ErrorCode::kUnsupported, {.problem = fmt::format("{}={} needs a GPU", name, value),
                                        .where = "train_ctl",
                                        .actual = "there is none, or this build has no CUDA",
                                        .remedy = remedy});
}

}  // namespace

void TrainCtlParams::validate(int gpus) const {
  require_count(image_width, "image_width", models::kLongestImageSide);
  require_count(image_height, "image_height", models::kLongestImageSide);
  require_choice(image_format, "image_format", {"channels_last", "channels_first"});
  require_given(momentum, "momentum", "a number from 0 to 1");
  require(*momentum >= 0 && *momentum <= 1, "momentum", "a number from 0 to 1", fmt::format("{}", *momentum));
  require_given(loss_scale, "loss_scale", "a number above 0");
  require(*loss_scale > 0 && std::isfinite(*loss_scale), "loss_scale", "a number above 0",
          fmt::format("{}", *loss_scale));
  require_count(batch_size, "batch_size", kMostBatchImages);
  require_count(num_iter, "num_iter", kMostIterations);
  require_given(iter_unit, "iter_unit", "epoch or batch");
  require_choice(*iter_unit, "iter_unit", {"epoch", "batch"});
  require_count(display_every, "display_every", kMostIterations);
  require_given(precision, "precision", "fp32, fp16 or bf16");
  require_choice(*precision, "precision", {"fp32", "fp16", "bf16"});
  require_choice(dali_mode, "dali_mode", {"none", "CPU", "GPU"});
  require_given(use_xla, "use_xla", "true or false");
  require(!dali_threads || (*dali_threads >= 1 && *dali_threads <= kMostDevices), "dali_threads",
          fmt::format("a number from 1 to {}", kMostDevices), std::to_string(dali_threads.value_or(0)));
  require(devices >= 1 && devices <= kMostDevices, "devices", fmt::format("a number from 1 to {}", kMostDevices),
          std::to_string(devices));
  require(!horovod || devices == 1, "devices", "1 with horovod: each process has one", std::to_string(devices));
  require_data(!log_dir.empty(), data_dir, "log_dir");
  require_data(uses_dali(), data_dir, "dali_mode");
  require_data(!data_idx_dir.empty(), data_dir, "data_idx_dir");
  require_data(distort_color, data_dir, "distort_color");
  require(!distort_color || !uses_dali(), "distort_color", "false with dali_mode, whose pipeline changes no colours",
          "true");
  if (!horovod) validate_directories();
  require_gpu(precision == "fp16", gpus, "precision", "fp16", "use fp32 or bf16");
  require_gpu(dali_mode == "GPU", gpus, "dali_mode", "GPU", "use CPU or none");
  require_gpu(*use_xla, gpus, "use_xla", "true", "leave it false: steps are captured on GPUs only");
}

void TrainCtlParams::validate_directories() const {
  require_directory(log_dir, "log_dir");
  require_directory(export_dir, "export_dir");
  require_directory(tensorboard_dir, "tensorboard_dir");
}

void TrainCtlParams::validate_for_prediction() const {
  require_count(image_width, "image_width", models::kLongestImageSide);
  require_count(image_height, "image_height", models::kLongestImageSide);
  require_count(batch_size, "batch_size", kMostBatchImages);
  if (export_dir.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the parameter export_dir is missing",
                                              .where = "predict_ctl",
                                              .expected = "the directory into which a training has exported its model",
                                              .actual = "none"});
  }
  require_directory(export_dir, "export_dir");
}

std::string TrainCtlParams::export_path() const {
  return core::join_path(export_dir, "saved_model_rn50.h5");
}

}  // namespace trainyard::frontends
