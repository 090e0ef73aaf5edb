#include "trainyard/train/evaluation/detection/detection_evaluation.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/detection/coco_labels.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {
namespace {

using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;
using ByImage = std::map<int64_t, std::vector<data::CocoDetection>>;

// Words of 8 bytes: the image's id, the number of its detections, and of each one category, box and score.
std::string text_of(const ByImage& images) {
  std::string text;
  const auto add = [&](const auto& value) {
    static_assert(sizeof(value) == 8);
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const auto& [image, detections] : images) {
    add(image);
    add(static_cast<int64_t>(detections.size()));
    for (const data::CocoDetection& each : detections) {
      add(each.category_id);
      for (const double value : {each.x, each.y, each.width, each.height, each.score}) add(value);
    }
  }
  return text;
}

// Adds what text_of() wrote. Throws kCorruptData for another text.
void add_text(std::string_view text, ByImage& images) {
  const auto take = [&](auto& value) {
    if (text.size() < sizeof(value)) {
      throw Error(ErrorCode::kCorruptData, "the detections of another process end early");
    }
    std::memcpy(&value, text.data(), sizeof(value));
    text.remove_prefix(sizeof(value));
  };
  constexpr size_t kBytes = 48;  // of a detection
  while (!text.empty()) {
    int64_t image = 0, count = 0;
    take(image);
    take(count);
    if (count < 0 || static_cast<size_t>(count) > text.size() / kBytes) {
      throw Error(ErrorCode::kCorruptData, fmt::format("another process names {} detections of an image", count));
    }
    std::vector<data::CocoDetection> detections(static_cast<size_t>(count));
    for (data::CocoDetection& each : detections) {
      each.image_id = image;
      take(each.category_id);
      for (double* value : {&each.x, &each.y, &each.width, &each.height, &each.score}) take(*value);
    }
    images.insert_or_assign(image, std::move(detections));
  }
}

// Collective: returns the detections of all ranks on rank 0, and nothing on the others. In several parts, since a group
// shares a limited number of bytes at a time.
ByImage gather(parallel::ProcessGroup& ranks, ByImage own) {
  constexpr size_t kGatheredBytes = size_t{32} << 20;
  const std::string text = text_of(own);
  const std::string what = "the detections of an evaluation";
  size_t longest = 0;
  for (const std::string& size : ranks.gather(what, std::to_string(text.size())))
    longest = std::max<size_t>(longest, std::stoull(size));
  std::vector<std::string> texts(static_cast<size_t>(ranks.size()));
  const size_t part = kGatheredBytes / texts.size();
  for (size_t begin = 0; begin < longest; begin += part) {
    const std::vector<std::string> parts = ranks.gather(what, begin < text.size() ? text.substr(begin, part) : "");
    if (ranks.rank() != 0) continue;
    for (size_t rank = 0; rank < parts.size(); rank++) texts[rank] += parts[rank];
  }
  ByImage all;
  if (ranks.rank() != 0) return all;
  for (const std::string& each : texts) add_text(each, all);
  return all;
}

// Returns the annotations without some images and their boxes.
data::CocoAnnotations without_images(const data::CocoAnnotations& annotations, const std::unordered_set<int64_t>& ids) {
  data::CocoAnnotations others{.categories = annotations.categories};
  std::copy_if(annotations.images.begin(), annotations.images.end(), std::back_inserter(others.images),
               [&](const data::CocoImage& image) { return !ids.contains(image.id); });
  std::copy_if(annotations.boxes.begin(), annotations.boxes.end(), std::back_inserter(others.boxes),
               [&](const data::CocoBox& box) { return !ids.contains(box.image_id); });
  return others;
}

}  // namespace

std::vector<int64_t> coco_categories_of_labels(int64_t labels) {
  std::vector<int64_t> categories(static_cast<size_t>(labels));
  std::iota(categories.begin(), categories.end(), int64_t{0});
  if (labels == data::kCocoLabels) {
    std::transform(categories.begin(), categories.end(), categories.begin(), data::coco_category_of_label);
  }
  return categories;
}

std::vector<data::CocoDetection> coco_detections(std::span<const Detection> detections, const data::CocoImage& image,
                                                 const std::vector<int64_t>& categories) {
  std::vector<data::CocoDetection> converted;
  converted.reserve(detections.size());
  for (const Detection& each : detections) {
    const double width = image.width, height = image.height;
    converted.push_back({.image_id = image.id,
                         .category_id = categories.at(static_cast<size_t>(each.label)),
                         .x = static_cast<double>(each.xmin) * width,
                         .y = static_cast<double>(each.ymin) * height,
                         .width = static_cast<double>(each.xmax - each.xmin) * width,
                         .height = static_cast<double>(each.ymax - each.ymin) * height,
                         .score = static_cast<double>(each.score)});
  }
  return converted;
}

// Does the jobs in their order, on a thread of its own.
class DetectionEvaluation::Worker {
 public:
  Worker(data::CocoAnnotations annotations, const data::DefaultBoxes& boxes, const DetectionEvaluationOptions& options)
      : annotations_(std::move(annotations)),
        boxes_(boxes),
        options_(options),
        thread_({.name = "detections"}, [this] { run(); }) {
    for (const data::CocoImage& image : annotations_.images) annotated_.insert(image.id);
  }

  ~Worker() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  bool is_annotated(int64_t image) const { return annotated_.contains(image); }

  // Adds a batch, after at most `waiting_batches` others.
  void add(at::Tensor output, std::span<const data::CocoImage> images) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ != nullptr || jobs_.size() < options_.waiting_batches; });
    push({.output = std::move(output), .images = {images.begin(), images.end()}});
  }

  // Blocks until all batches have become detections, and returns these.
  ByImage take_detections() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ != nullptr || (jobs_.empty() && !busy_); });
    throw_failure();
    return std::exchange(detected_, {});
  }

  void measure(int64_t global_step, ByImage detections) {
    const std::scoped_lock lock(mutex_);
    push({.measures = true, .global_step = global_step, .detections = std::move(detections), .begin = Clock::now()});
  }

  std::vector<DetectionResult> take_results(bool waits) {
    std::unique_lock lock(mutex_);
    if (waits) changed_.wait(lock, [&] { return failure_ != nullptr || (jobs_.empty() && !busy_); });
    throw_failure();
    return std::exchange(results_, {});
  }

 private:
  struct Job {
    // A batch to detect in.
    at::Tensor output{};
    std::vector<data::CocoImage> images{};
    // The end of an evaluation.
    bool measures = false;
    int64_t global_step = 0;
    ByImage detections{};
    Clock::time_point begin{};
  };

  // Under the lock.
  void push(Job job) {
    throw_failure();
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void throw_failure() {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      const bool measures = job.measures;
      lock.unlock();
      ByImage detected;
      DetectionResult result;
      std::exception_ptr failure;
      try {
        if (measures) {
          result = measured(std::move(job));
        } else {
          detected = detected_in(job);
        }
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      if (failure != nullptr) {
        failure_ = failure;
        jobs_.clear();
      } else if (measures) {
        results_.push_back(std::move(result));
      } else {
        for (auto& [image, detections] : detected) detected_.insert_or_assign(image, std::move(detections));
      }
      changed_.notify_all();
    }
  }

  ByImage detected_in(const Job& job) const {
    ByImage found;
    const auto rows = static_cast<int64_t>(job.images.size());
    const auto detections = detect(job.output.narrow(0, 0, rows), boxes_, options_.detect);
    for (size_t row = 0; row < job.images.size(); row++) {
      found.insert_or_assign(job.images[row].id,
                             coco_detections(detections[row], job.images[row], options_.categories));
    }
    return found;
  }

  DetectionResult measured(Job job) const {
    DetectionResult result{.global_step = job.global_step, .images = static_cast<int64_t>(job.detections.size())};
    for (auto& [image, detections] : job.detections) {
      result.detections.insert(result.detections.end(), detections.begin(), detections.end());
    }
    std::unordered_set<int64_t> left_out;
    for (const int64_t image : options_.counted_if_added) {
      if (!job.detections.contains(image)) left_out.insert(image);
    }
    const CocoMetricOptions metric{.threads = options_.threads};
    result.metric = left_out.empty() ? coco_metric(annotations_, result.detections, metric)
                                     : coco_metric(without_images(annotations_, left_out), result.detections, metric);
    result.seconds = core::seconds_since(job.begin);
    return result;
  }

  const data::CocoAnnotations annotations_;
  std::unordered_set<int64_t> annotated_;
  const data::DefaultBoxes& boxes_;
  const DetectionEvaluationOptions& options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, closed_ = false;
  ByImage detected_;  // of the batches since the last end
  std::vector<DetectionResult> results_;
  std::exception_ptr failure_;
  core::Thread thread_;  // last: it uses the others
};

DetectionEvaluation::DetectionEvaluation(data::CocoAnnotations annotations, const data::DefaultBoxes& boxes,
                                         DetectionEvaluationOptions options)
    : options_(std::move(options)), boxes_(boxes.size()) {
  options_.detect.validate();
  if (options_.waiting_batches < 1) {
    throw Error(ErrorCode::kInvalidArgument, "an evaluation of detections needs one waiting batch or more");
  }
  worker_ = std::make_unique<Worker>(std::move(annotations), boxes, options_);
}

DetectionEvaluation::~DetectionEvaluation() = default;

void DetectionEvaluation::add(const at::Tensor& output, std::span<const data::CocoImage> images) {
  constexpr int64_t kOffsets = 4, kLeastLabels = 2;  // the background and one more
  const int64_t labels = output.dim() == 3 ? output.size(2) - kOffsets : 0;
  const auto known = static_cast<int64_t>(options_.categories.size());  // 0: the first batch says it
  if (labels < kLeastLabels || output.size(1) != boxes_ || output.size(0) < static_cast<int64_t>(images.size()) ||
      (known > 0 && labels != known)) {
    const std::string columns =
        known > 0 ? std::to_string(known + kOffsets) : fmt::format("{} or more", kLeastLabels + kOffsets);
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the output is not that of the evaluated detection model",
                 .expected = fmt::format("[{} or more, {}, {}]", images.size(), boxes_, columns),
                 .actual = fmt::format("[{}]", fmt::join(output.sizes(), ", "))});
  }
  if (known == 0) options_.categories = coco_categories_of_labels(labels);
  for (const data::CocoImage& image : images) {
    if (worker_->is_annotated(image.id)) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("image {} is not annotated", image.id),
                                              .remedy = "evaluate with the annotations of the images"});
  }
  if (images.empty()) return;
  worker_->add(output.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true), images);
}

void DetectionEvaluation::finish(int64_t global_step, parallel::ProcessGroup* ranks) {
  ByImage detections = worker_->take_detections();
  if (ranks != nullptr) {
    detections = gather(*ranks, std::move(detections));
    if (ranks->rank() != 0) return;
  }
  worker_->measure(global_step, std::move(detections));
}

std::vector<DetectionResult> DetectionEvaluation::take_results() {
  return worker_->take_results(/*waits=*/false);
}

std::vector<DetectionResult> DetectionEvaluation::wait() {
  return worker_->take_results(/*waits=*/true);
}

}  // namespace trainyard::train
