// Measures a detection model with COCO's numbers while something else runs: a thread makes detections of each batch's
// output and computes the metric at the end, so that neither the next batch nor further training waits for it.
//
//   DetectionEvaluation evaluation(annotations, data::DefaultBoxes::ssd300(), DetectionEvaluationOptions{});
//   for (batch : set) evaluation.add(output, images);     // data::CocoImage of each row of the output
//   evaluation.finish(global_step);                       // all batches of this evaluation are there
//   train_further();
//   for (const DetectionResult& result : evaluation.take_results()) report(result.global_step, result.metric);
//   ...
//   for (const DetectionResult& result : evaluation.wait()) ...;    // blocks until the last one is there
//
// wait() directly after finish() gives the same numbers at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/train/evaluation/detection/coco_metric.h"
#include "trainyard/train/evaluation/detection/detections.h"

namespace trainyard::parallel {
class ProcessGroup;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct DetectionEvaluationOptions {
  DetectOptions detect = DetectOptions::tf_cnn();
  // COCO's category id of each label, the background's unused. Empty: COCO's 80 categories for 81 labels
  // (data/detection/coco_labels.h), and else the label is the id.
  std::vector<int64_t> categories{};
  int threads = 0;             // of the metric; 0: the cores that this process may use
  size_t waiting_batches = 2;  // batches that add() takes before it waits for the thread, 1 or more
  // Ids of images whose annotations count in those evaluations alone that add them: images that may be damaged, or are
  // not part of each evaluation. The annotations of all other images always count.
  std::vector<int64_t> counted_if_added{};
};

// An evaluation that has ended.
struct DetectionResult {
  int64_t global_step = 0;
  CocoMetric metric{};
  int64_t images = 0;  // of all ranks; an image that was added twice counts once
  // By image in ascending order of ids, the best first.
  std::vector<data::CocoDetection> detections{};
  double seconds = 0;  // from finish() to the numbers
};

// Returns the detections of a picture in pixels, with category ids.
[[nodiscard]] std::vector<data::CocoDetection> coco_detections(std::span<const Detection> detections,
                                                               const data::CocoImage& image,
                                                               const std::vector<int64_t>& categories);
// Returns the category id of each of `labels` labels, as DetectionEvaluationOptions::categories describes.
[[nodiscard]] std::vector<int64_t> coco_categories_of_labels(int64_t labels);

// One thread at a time calls it. An error of its own thread is thrown by all later calls.
class DetectionEvaluation {
 public:
  // `annotations` are what detections are compared with. `boxes` must outlive the evaluation.
  DetectionEvaluation(data::CocoAnnotations annotations, const data::DefaultBoxes& boxes,
                      DetectionEvaluationOptions options);
  // Waits for the batches and evaluations that were added.
  ~DetectionEvaluation();

  // Adds a batch's output [N, D, 4 + labels], on any device, which is copied, and the image of each of its first
  // images.size() rows; further rows are ignored. An image that comes again replaces the earlier one. Blocks while
  // `waiting_batches` batches wait. Throws kInvalidArgument for another shape and for images that are not annotated.
  void add(const at::Tensor& output, std::span<const data::CocoImage> images);

  // Ends an evaluation: the batches from here on belong to the next one. With `ranks` it is collective: rank 0 gets the
  // detections of all ranks and computes the numbers, which do not depend on which rank had which image; the others
  // get no result. It then waits for the detections of this rank, and on rank 0 not for the numbers.
  void finish(int64_t global_step, parallel::ProcessGroup* ranks = nullptr);

  // Returns the results that are ready, oldest first, each once.
  [[nodiscard]] std::vector<DetectionResult> take_results();
  // Blocks until the numbers of all finished evaluations are there, and returns those that were not taken yet.
  [[nodiscard]] std::vector<DetectionResult> wait();

 private:
  class Worker;

  DetectionEvaluationOptions options_;
  int64_t boxes_;  // default boxes of an output
  std::unique_ptr<Worker> worker_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
