#include "trainyard/frontends/tf_cnn/mlperf/detector_lines.h"

#include <algorithm>
#include <array>

#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/frontends/tf_cnn/output/step_lines.h"
#include "trainyard/train/evaluation/detection/detections.h"

namespace trainyard::frontends {
namespace {

// In ascending order.
constexpr std::array<std::string_view, 36> kTags = {"aspect_ratios",
                                                    "backbone",
                                                    "data_normalization_mean",
                                                    "data_normalization_std",
                                                    "eval_accuracy",
                                                    "eval_iteration_accuracy",
                                                    "eval_size",
                                                    "eval_start",
                                                    "eval_stop",
                                                    "eval_target",
                                                    "feature_sizes",
                                                    "input_batch_size",
                                                    "input_bn_span",
                                                    "input_order",
                                                    "input_shard",
                                                    "input_size",
                                                    "loc_conf_out_channels",
                                                    "nms_max_detections",
                                                    "nms_threshold",
                                                    "num_cropping_iterations",
                                                    "num_default_boxes",
                                                    "num_defaults_per_cell",
                                                    "opt_learning_rate",
                                                    "opt_learning_rate_warmup_steps",
                                                    "opt_momentum",
                                                    "opt_name",
                                                    "opt_weight_decay",
                                                    "random_flip_probability",
                                                    "run_clear_caches",
                                                    "run_final",
                                                    "run_start",
                                                    "run_stop",
                                                    "scales",
                                                    "steps",
                                                    "train_epoch",
                                                    "train_loop"};

}  // namespace

bool is_ssd_tag(std::string_view tag) {
  return std::binary_search(kTags.begin(), kTags.end(), tag);
}

void write_detector(const ComplianceLog& log) {
  log.write("backbone", json_text("resnet34"));
  log.write("loc_conf_out_channels", "[256, 512, 512, 256, 256, 256]");
  log.write("num_defaults_per_cell", "[4, 6, 6, 6, 4, 4]");
}

void write_default_boxes(const ComplianceLog& log) {
  log.write("feature_sizes", "[38, 19, 10, 5, 3, 1]");
  log.write("steps", "[8, 16, 32, 64, 100, 300]");
  log.write("scales", "[21, 45, 99, 153, 207, 261, 315]");
  log.write("aspect_ratios", "[[2], [2, 3], [2, 3], [2, 3], [2], [2]]");
  log.write("num_default_boxes", std::to_string(data::DefaultBoxes::ssd300().size()));
}

void write_detector_images(const ComplianceLog& log, bool training) {
  if (training) {
    log.write("num_cropping_iterations", "50");
    log.write("input_size", "300");
    log.write("random_flip_probability", "0.5");
  }
  log.write("data_normalization_mean", "[0.485, 0.456, 0.406]");
  log.write("data_normalization_std", "[0.229, 0.224, 0.225]");
}

void write_suppression(const ComplianceLog& log) {
  const train::DetectOptions options = train::DetectOptions::tf_cnn();
  log.write("nms_threshold", python_number(options.overlap_threshold));
  log.write("nms_max_detections", std::to_string(options.detections));
}

}  // namespace trainyard::frontends
