#include "trainyard/frontends/tf_cnn/detection_measure.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"

namespace trainyard::frontends {
namespace {

std::vector<std::pair<std::string, double>> named(const train::CocoMetric& metric) {
  std::vector<std::pair<std::string, double>> values;
  for (size_t i = 0; i < metric.values.size(); ++i) {
    values.emplace_back(fmt::format("COCO/{}", train::CocoMetric::kNames[i]), metric.values[i]);
  }
  return values;
}

std::string lines_of(const train::CocoMetric& metric) {
  return fmt::format("{}Current AP: {:.5f}", train::coco_metric_lines(metric), metric.ap());
}

// Collective: returns the metric that rank 0 has computed.
train::CocoMetric metric_of_first(parallel::ProcessGroup& ranks, const std::vector<train::DetectionResult>& own) {
  core::BodyWriter body;
  if (ranks.rank() == 0) {
    for (const double value : own.at(0).metric.values) body.real(value);
  }
  const std::string text = ranks.from_first("the numbers of an evaluation", body.take());
  core::BodyReader reader(text);
  train::CocoMetric metric;
  for (double& value : metric.values) value = reader.real();
  return metric;
}

class DetectionMeasure : public EvaluationMeasure {
 public:
  explicit DetectionMeasure(DetectionMeasureOptions options)
      : options_(std::move(options)),
        detection_(std::move(options_.annotations), *options_.default_boxes, options_.detection) {}

  bool has_labels() const override { return false; }
  void begin() override {}

  void add(const data::Batch& batch, const at::Tensor& output) override {
    if (std::ssize(batch.sample_indices) != output.size(0)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "an evaluation of detections does not know which images it sees",
                         .expected = fmt::format("{} indices of samples", output.size(0)),
                         .actual = std::to_string(batch.sample_indices.size())});
    }
    std::vector<data::CocoImage> images;
    for (const int64_t sample : batch.sample_indices) images.push_back(options_.image(sample));
    detection_.add(output, images);
  }

  std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup* ranks) override {
    // An exact evaluation leaves bad samples out.
    const int64_t seen = evaluation.samples > 0 ? std::min(options_.images, evaluation.samples) : options_.images;
    const std::string line =
        seen == options_.all_images
            ? fmt::format("Got results for all {} eval examples. Calculate mAP...", seen)
            : fmt::format("Got {} out of {} eval examples. Calculate mAP of these...", seen, options_.all_images);
    detection_.finish(evaluations_++, ranks);
    if (options_.asynchronous) return line;
    const std::vector<train::DetectionResult> results = detection_.wait();
    const train::CocoMetric metric = ranks == nullptr ? results.at(0).metric : metric_of_first(*ranks, results);
    for (auto& value : named(metric)) evaluation.more.push_back(std::move(value));
    return line + "\n" + lines_of(metric);
  }

  std::vector<LateNumbers> take_late_numbers(bool wait) override {
    std::vector<LateNumbers> taken;
    for (const train::DetectionResult& result : wait ? detection_.wait() : detection_.take_results()) {
      taken.push_back(
          {.evaluation = result.global_step, .values = named(result.metric), .lines = lines_of(result.metric)});
    }
    return taken;
  }

 private:
  DetectionMeasureOptions options_;
  train::DetectionEvaluation detection_;
  int64_t evaluations_ = 0;  // complete ones
};

}  // namespace

std::unique_ptr<EvaluationMeasure> measure_detections(DetectionMeasureOptions options) {
  return std::make_unique<DetectionMeasure>(std::move(options));
}

data::CocoAnnotations annotations_of_images(data::CocoAnnotations annotations, const std::vector<int64_t>& image_ids) {
  const std::set<int64_t> ids(image_ids.begin(), image_ids.end());
  std::erase_if(annotations.images, [&](const data::CocoImage& image) { return !ids.contains(image.id); });
  std::erase_if(annotations.boxes, [&](const data::CocoBox& box) { return !ids.contains(box.image_id); });
  return annotations;
}

}  // namespace trainyard::frontends
