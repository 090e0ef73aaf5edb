#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/frontends/tf_cnn/mlperf/detector_lines.h"
#include "trainyard/frontends/tf_cnn/mlperf/model_lines.h"
#include "trainyard/frontends/tf_cnn/output/step_lines.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kStepsBetweenRates = 100;
constexpr double kResizedPart = 1.145;  // of tf_cnn_benchmarks' evaluation: the sides in front of the central crop

std::string number(int64_t value) {
  return fmt::format("{}", value);
}

// A whole number without its fraction, as tf_cnn_benchmarks writes the offset.
std::string shortest(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? number(static_cast<int64_t>(value)) : python_number(value);
}

// A real number with a point, as MLPerf's logger writes it. Text that makes the same float again.
std::string decimal(float value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Epochs that are complete behind `global_step`, and the part of the next one.
double epochs_of(const ComplianceFacts& facts, int64_t global_step) {
  return static_cast<double>(global_step) * static_cast<double>(facts.batch_size) /
         static_cast<double>(facts.train_examples);
}

}  // namespace

ComplianceRun::ComplianceRun(std::shared_ptr<const ComplianceLog> log, ComplianceFacts facts)
    : log_(std::move(log)), facts_(std::move(facts)) {}

void ComplianceRun::begin_training() {
  if (facts_.detector) write_detector(*log_);
  if (facts_.eval_epoch_offset) {
    // MLPerf's library calls its constant eval_epoch_offset and the tag eval_offset: readers look for either.
    log_->write("eval_offset", shortest(*facts_.eval_epoch_offset));
    log_->write("eval_epoch_offset", shortest(*facts_.eval_epoch_offset));
  }
  log_->write("run_set_random_seed", number(static_cast<int64_t>(facts_.seed)));
  log_->write("input_order");
  log_->write("input_batch_size", number(facts_.batch_size));
  log_->write("input_bn_span", number(facts_.batch_norm_span));
  log_->write("preproc_num_train_examples", number(facts_.train_examples));
  if (facts_.detector) {
    write_default_boxes(*log_);
    if (facts_.images) write_detector_images(*log_, /*training=*/true);
    if (facts_.images) log_->write("input_shard", number(facts_.shuffle_buffer));
  } else {
    if (facts_.images) write_images(*facts_.images);
    write_model_lines(*log_, facts_.graph, {.training = facts_.updates, .channels_last = facts_.channels_last});
  }
  if (facts_.updates) write_optimizer();
}

void ComplianceRun::write_images(const data::TransformOptions& images) {
  log_->write("input_shard", number(facts_.shuffle_buffer));
  const data::CropOptions& crop = images.crop;
  if (images.training && crop.method == data::CropMethod::kDistortedBoundingBox) {
    log_->write("input_crop_uses_bboxes", json_boolean(images.use_boxes));
    log_->write("input_distorted_crop_min_object_covered", decimal(crop.min_object_covered));
    log_->write("input_distorted_crop_aspect_ratio_range",
                fmt::format("[{}, {}]", decimal(crop.min_aspect_ratio), decimal(crop.max_aspect_ratio)));
    log_->write("input_distorted_crop_area_range",
                fmt::format("[{}, {}]", decimal(crop.min_area), decimal(crop.max_area)));
    log_->write("input_distorted_crop_max_attempts", number(crop.max_attempts));
  }
  if (images.training) log_->write("input_random_flip");
  log_->write("input_resize", fmt::format("[{}, {}]", images.height, images.width));
  write_mean(images);
}

void ComplianceRun::write_mean(const data::TransformOptions& images) {
  const data::Normalization& normalization = images.normalization;
  if (normalization.scale != data::Rgb{1, 1, 1}) return;
  const data::Rgb& shift = normalization.shift;
  log_->write("input_mean_subtraction",
              fmt::format("[{}, {}, {}]", decimal(0 - shift[0]), decimal(0 - shift[1]), decimal(0 - shift[2])));
}

void ComplianceRun::write_optimizer() {
  if (!facts_.own_loss) log_->write("model_hp_loss_fn", json_text("categorical_cross_entropy"));
  log_->write("model_exclude_bn_from_l2", json_boolean(true));
  log_->write("opt_weight_decay", python_number(facts_.weight_decay));
  if (facts_.weight_decay != 0) log_->write("model_l2_regularization", python_number(facts_.weight_decay));
  log_->write("opt_learning_rate_warmup_steps", number(facts_.warmup_steps));
  const std::string& name = facts_.optimizer;
  const bool momentum = name.ends_with("momentum");
  const char* const sgd = momentum ? "stochastic_gradient_descent_with_momentum"
                                   : (name == "sgd" ? "stochastic_gradient_descent" : nullptr);
  log_->write("opt_name", json_text(sgd == nullptr ? name : sgd));
  if (momentum) log_->write("opt_momentum", python_number(facts_.momentum));
}

void ComplianceRun::begin_evaluations() {
  log_->write("run_set_random_seed", number(static_cast<int64_t>(facts_.seed)));
  log_->write("input_order");
  log_->write("preproc_num_eval_examples", number(facts_.validation_examples));
  if (facts_.detector) {
    if (facts_.images) write_detector_images(*log_, /*training=*/false);
    return;
  }
  if (facts_.images) write_evaluation_images(*facts_.images);
  write_model_lines(*log_, facts_.graph, {.training = false, .channels_last = facts_.channels_last});
}

void ComplianceRun::write_evaluation_images(const data::TransformOptions& images) {
  if (images.eval_central_part == 0) {
    const auto side = static_cast<double>(std::min(images.height, images.width));
    const auto resized =
        images.eval_resize_size > 0 ? images.eval_resize_size : static_cast<int64_t>(side * kResizedPart);
    log_->write("input_resize_aspect_preserving", fmt::format("{{\"min\": {}}}", resized));
  }
  log_->write("input_central_crop", fmt::format("[{}, {}]", images.height, images.width));
  log_->write("input_resize", fmt::format("[{}, {}]", images.height, images.width));
  write_mean(images);
}

void ComplianceRun::enter_loop(int64_t global_step) {
  last_evaluated_ = global_step;
  log_->write("train_loop");
}

void ComplianceRun::note_rate(int64_t global_step, double learning_rate) {
  if (global_step % kStepsBetweenRates == 0) log_->write("opt_learning_rate", python_number(learning_rate));
}

void ComplianceRun::write_trained(int64_t global_step) {
  // May differ from preproc_num_train_examples: batches are whole, and evaluations come when they are asked for.
  log_->write("input_size", number((global_step - last_evaluated_) * facts_.batch_size));
  last_evaluated_ = global_step;
}

void ComplianceRun::begin_evaluation_in_loop(int64_t global_step) {
  write_trained(global_step);
  begin_evaluation(global_step);
}

std::string ComplianceRun::epoch_of_evaluation(int64_t global_step) const {
  return facts_.detector ? number(static_cast<int64_t>(epochs_of(facts_, global_step))) : std::string();
}

void ComplianceRun::begin_evaluation(int64_t global_step) {
  log_->write("eval_start", epoch_of_evaluation(global_step));
}

void ComplianceRun::write_accuracy(double accuracy, int64_t global_step) {
  const auto epoch = static_cast<int64_t>(epochs_of(facts_, global_step));
  log_->write("eval_accuracy", fmt::format(R"({{"epoch": {}, "value": {}}})", epoch, python_number(accuracy)));
  if (!facts_.detector) return;
  log_->write("eval_iteration_accuracy",
              fmt::format(R"({{"iteration": {}, "value": {}}})", global_step, python_number(accuracy)));
}

void ComplianceRun::end_evaluation(int64_t samples, std::optional<double> accuracy, int64_t global_step) {
  if (facts_.detector) {
    // It decodes and measures before the evaluation stops.
    write_suppression(*log_);
    if (accuracy) write_accuracy(*accuracy, global_step);
  }
  log_->write("eval_stop", epoch_of_evaluation(global_step));
  log_->write("eval_size", number(samples));
  if (accuracy && !facts_.detector) write_accuracy(*accuracy, global_step);
  if (facts_.eval_target) log_->write("eval_target", python_number(*facts_.eval_target));
}

void ComplianceRun::leave_loop(int64_t global_step) {
  if (global_step > last_evaluated_) write_trained(global_step);
  const double epochs = epochs_of(facts_, global_step);
  const auto whole = static_cast<int64_t>(epochs);
  // MLPerf allows to name them all at once.
  for (int64_t i = 0; i < whole; ++i) log_->write("train_epoch", number(i));
  if (const double part = epochs - static_cast<double>(whole); part != 0) {
    log_->write("train_epoch",
                json_text(fmt::format("{}, but this epoch only has {}% of the examples of a normal epoch", whole,
                                      python_number(100 * part))));
  }
}

void ComplianceRun::write_empty_loop(int64_t global_step) {
  enter_loop(global_step);
  leave_loop(global_step);
  end(false);
}

void ComplianceRun::end(bool success) {
  log_->write("run_stop", fmt::format("{{\"success\": {}}}", json_boolean(success)));
  log_->write("run_final");
}

}  // namespace trainyard::frontends
