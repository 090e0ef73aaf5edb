#include "trainyard/frontends/tf_cnn/detection_measure.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/train/evaluation/detection/coco_metric.h"

namespace trainyard::frontends {
namespace {

using Detections = std::vector<data::CocoDetection>;

// The boxes of a picture in pixels, as tf_cnn_benchmarks computes them: differences in float, products in double.
Detections in_pixels(const std::vector<train::Detection>& found, const data::CocoImage& image,
                     const std::function<int64_t(int64_t)>& category) {
  Detections detections;
  detections.reserve(found.size());
  for (const train::Detection& one : found) {
    detections.push_back({.image_id = image.id,
                          .category_id = category(one.label),
                          .x = double{one.xmin} * image.width,
                          .y = double{one.ymin} * image.height,
                          .width = double{one.xmax - one.xmin} * image.width,
                          .height = double{one.ymax - one.ymin} * image.height,
                          .score = one.score});
  }
  return detections;
}

std::string text_of(const std::map<int64_t, Detections>& samples) {
  core::BodyWriter body;
  body.number(std::ssize(samples));
  for (const auto& [sample, detections] : samples) {
    body.number(sample).number(std::ssize(detections));
    for (const data::CocoDetection& one : detections) {
      body.number(one.image_id).number(one.category_id);
      for (const double value : {one.x, one.y, one.width, one.height, one.score}) {
        body.number(std::bit_cast<int64_t>(value));
      }
    }
  }
  return body.take();
}

void add_text(std::string_view text, std::map<int64_t, Detections>& samples) {
  core::BodyReader body(text);
  const auto real = [&body] { return std::bit_cast<double>(body.number()); };
  for (int64_t left = body.number(); left > 0; --left) {
    Detections& detections = samples[body.number()];
    detections.clear();
    for (int64_t boxes = body.number(); boxes > 0; --boxes) {
      data::CocoDetection one;
      one.image_id = body.number();
      one.category_id = body.number();
      for (double* const value : {&one.x, &one.y, &one.width, &one.height, &one.score}) *value = real();
      detections.push_back(one);
    }
  }
}

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

class DetectionMeasure : public EvaluationMeasure {
 public:
  explicit DetectionMeasure(DetectionMeasureOptions options) : options_(std::move(options)) {}

  bool has_labels() const override { return false; }
  void begin() override { samples_.clear(); }

  void add(const data::Batch& batch, const at::Tensor& output) override {
    if (std::ssize(batch.sample_indices) != output.size(0)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "an evaluation of detections does not know which images it sees",
                         .expected = fmt::format("{} indices of samples", output.size(0)),
                         .actual = std::to_string(batch.sample_indices.size())});
    }
    const auto found = train::detect(output, *options_.default_boxes, options_.detect);
    for (size_t i = 0; i < found.size(); ++i) {
      const int64_t sample = batch.sample_indices[i];
      samples_[sample] = in_pixels(found[i], options_.image(sample), options_.category);
    }
  }

  std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup* ranks) override {
    if (ranks != nullptr) {
      for (const std::string& text : ranks->gather("the detections of an evaluation", text_of(samples_))) {
        add_text(text, samples_);
      }
    }
    const bool all = std::ssize(samples_) == options_.images;
    std::string lines = all ? fmt::format("Got results for all {} eval examples. Calculate mAP...", options_.images)
                            : fmt::format("Got {} out of {} eval examples. Calculate mAP of these...", samples_.size(),
                                          options_.images);
    const std::shared_ptr<const data::CocoAnnotations> truth = all ? options_.annotations : seen_annotations();
    Detections detections;
    for (auto& [sample, found] : samples_) detections.insert(detections.end(), found.begin(), found.end());
    samples_.clear();
    const int64_t number = evaluations_++;
    if (options_.asynchronous) {
      late_.push_back({number, std::async(std::launch::async, [truth, detections = std::move(detections)] {
                         return train::coco_metric(*truth, detections, {.threads = 1});
                       })});
      return lines;
    }
    const train::CocoMetric metric = train::coco_metric(*truth, detections);
    for (auto& value : named(metric)) evaluation.more.push_back(std::move(value));
    return lines + "\n" + lines_of(metric);
  }

  std::vector<LateNumbers> take_late_numbers(bool wait) override {
    std::vector<LateNumbers> taken;
    while (!late_.empty()) {
      Late& first = late_.front();
      if (!wait && first.metric.wait_for(std::chrono::seconds(0)) != std::future_status::ready) break;
      const int64_t number = first.evaluation;
      std::future<train::CocoMetric> ready = std::move(first.metric);
      late_.pop_front();
      const train::CocoMetric metric = ready.get();
      taken.push_back({.evaluation = number, .values = named(metric), .lines = lines_of(metric)});
    }
    return taken;
  }

 private:
  struct Late {
    int64_t evaluation;
    std::future<train::CocoMetric> metric;
  };

  // Returns the annotations of the images that were seen.
  std::shared_ptr<const data::CocoAnnotations> seen_annotations() const {
    std::set<int64_t> seen;
    for (const auto& [sample, found] : samples_) seen.insert(options_.image(sample).id);
    auto part = std::make_shared<data::CocoAnnotations>(*options_.annotations);
    std::erase_if(part->images, [&](const data::CocoImage& image) { return !seen.contains(image.id); });
    std::erase_if(part->boxes, [&](const data::CocoBox& box) { return !seen.contains(box.image_id); });
    return part;
  }

  DetectionMeasureOptions options_;
  std::map<int64_t, Detections> samples_;  // of the evaluation that runs, in the order of the data
  int64_t evaluations_ = 0;                // complete ones
  std::deque<Late> late_;                  // whose numbers are not taken yet
};

}  // namespace

std::unique_ptr<EvaluationMeasure> measure_detections(DetectionMeasureOptions options) {
  return std::make_unique<DetectionMeasure>(std::move(options));
}

}  // namespace trainyard::frontends
