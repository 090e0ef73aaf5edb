#include "trainyard/train/evaluation/detection/detections.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/detection/default_boxes.h"

namespace trainyard::train {
namespace {

struct Candidate {
  float score = 0;
  int32_t box = 0;  // default box
};

// The boxes of a class's candidates, the best score first, each coordinate by itself for the loops over them.
struct Boxes {
  std::vector<float> ymin, xmin, ymax, xmax;
  std::vector<uint8_t> suppressed;

  void resize(size_t count) {
    for (std::vector<float>* side : {&ymin, &xmin, &ymax, &xmax}) side->resize(count);
    suppressed.assign(count, 0);
  }

  // Marks the boxes behind `best` that overlap it too much.
  void suppress_behind(size_t best, BoxOverlap overlap, float threshold) {
    overlap == BoxOverlap::kTfCnn ? suppress<BoxOverlap::kTfCnn>(best, threshold)
                                  : suppress<BoxOverlap::kIntersectionOverUnion>(best, threshold);
  }

 private:
  template <BoxOverlap kOverlap>
  void suppress(size_t best, float threshold) {
    const float top = ymin[best], left = xmin[best], bottom = ymax[best], right = xmax[best];
    const float area = (bottom - top) * (right - left);
    const size_t count = ymin.size();
    for (size_t i = best + 1; i < count; i++) {
      const float height = std::max(std::min(bottom, ymax[i]) - std::max(top, ymin[i]), 0.0F);
      const float width = std::max(std::min(right, xmax[i]) - std::max(left, xmin[i]), 0.0F);
      const float both = height * width;
      if constexpr (kOverlap == BoxOverlap::kTfCnn) {
        const float between = (bottom - ymin[i]) * (right - xmin[i]);
        // Written so that 0 / 0 suppresses.
        suppressed[i] |= static_cast<uint8_t>(!(both / (between + between - both) < threshold));
      } else {
        const float other = (ymax[i] - ymin[i]) * (xmax[i] - xmin[i]);
        suppressed[i] |= static_cast<uint8_t>(both / (area + other - both) > threshold);
      }
    }
  }
};

bool comes_first(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.box < b.box;
}

// Finds the scores above the least one by class. `scores` is [D, classes].
std::vector<std::vector<Candidate>> candidates_by_class(const float* scores, int64_t boxes, int64_t classes,
                                                        float least) {
  std::vector<std::vector<Candidate>> found(static_cast<size_t>(classes));
  for (int64_t d = 0; d < boxes; d++) {
    const float* const row = scores + d * classes;
    int any = 0;  // most boxes are background
    for (int64_t c = 1; c < classes; c++) any |= static_cast<int>(row[c] > least);
    if (any == 0) continue;
    for (int64_t c = 1; c < classes; c++)
      if (row[c] > least) found[static_cast<size_t>(c)].push_back({row[c], static_cast<int32_t>(d)});
  }
  return found;
}

// `scores` is [D, classes], `corners` [D, 4], both contiguous float on the CPU.
std::vector<Detection> detect_in_picture(const at::Tensor& scores, const at::Tensor& corners,
                                         const DetectOptions& options) {
  const float* const corner = corners.const_data_ptr<float>();
  const auto side = [&](const Candidate& candidate, int of) {
    const float value = corner[4 * candidate.box + of];
    return options.clip ? std::clamp(value, 0.0F, 1.0F) : value;
  };
  std::vector<std::vector<Candidate>> by_class =
      candidates_by_class(scores.const_data_ptr<float>(), scores.size(0), scores.size(1), options.min_score);
  std::vector<Detection> detections;
  Boxes boxes;
  for (size_t label = 1; label < by_class.size(); label++) {
    std::vector<Candidate>& candidates = by_class[label];
    std::erase_if(candidates, [&](const Candidate& candidate) {
      const std::span<const float> box(corner + 4 * candidate.box, 4);
      return !std::all_of(box.begin(), box.end(), [](float value) { return std::isfinite(value); });
    });
    const size_t count = std::min(candidates.size(), static_cast<size_t>(options.candidates));
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count), candidates.end(),
                      comes_first);
    boxes.resize(count);
    for (size_t i = 0; i < count; i++) {
      boxes.ymin[i] = side(candidates[i], 0);
      boxes.xmin[i] = side(candidates[i], 1);
      boxes.ymax[i] = side(candidates[i], 2);
      boxes.xmax[i] = side(candidates[i], 3);
    }
    for (size_t i = 0; i < count; i++) {
      if (boxes.suppressed[i] != 0) continue;
      detections.push_back({boxes.ymin[i], boxes.xmin[i], boxes.ymax[i], boxes.xmax[i], candidates[i].score,
                            static_cast<int64_t>(label)});
      boxes.suppress_behind(i, options.overlap, options.overlap_threshold);
    }
  }
  // Classes come in order, and the boxes of a class by score.
  std::stable_sort(detections.begin(), detections.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  if (detections.size() > static_cast<size_t>(options.detections))
    detections.resize(static_cast<size_t>(options.detections));
  return detections;
}

}  // namespace

void DetectOptions::validate() const {
  const auto refuse = [](const char* what, auto actual, const char* expected) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("detections cannot be made: {}", what),
                                                          .expected = expected,
                                                          .actual = fmt::format("{}", actual)});
  };
  if (!(min_score >= 0)) refuse("the least score", min_score, "0 or more");
  if (!(overlap_threshold >= 0 && overlap_threshold <= 1))
    refuse("the threshold of overlaps", overlap_threshold, "0 to 1");
  if (candidates < 1) refuse("the candidates of a class", candidates, "1 or more");
  if (detections < 1) refuse("the detections of a picture", detections, "1 or more");
  if (threads < 0) refuse("the threads", threads, "0 or more");
}

DetectOptions DetectOptions::tf_cnn() {
  return {.overlap = BoxOverlap::kTfCnn};
}

DetectOptions DetectOptions::torchvision() {
  return {.min_score = 0.01F, .overlap_threshold = 0.45F, .candidates = 400, .clip = true};
}

std::vector<std::vector<Detection>> detect(const at::Tensor& output, const data::DefaultBoxes& boxes,
                                           const DetectOptions& options) {
  options.validate();
  constexpr int64_t kFewestColumns = 6;  // four offsets, the background and a class
  if (output.dim() != 3 || output.size(1) != boxes.size() || output.size(2) < kFewestColumns ||
      !output.is_floating_point())
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the output is not that of a detection model",
         .expected = fmt::format("[N, {}, 4 + classes] of a float type, two classes or more", boxes.size()),
         .actual = fmt::format("[{}] of {}", fmt::join(output.sizes(), ", "), at::toString(output.scalar_type()))});
  const at::Tensor values = output.detach().to(at::kCPU);
  std::vector<std::vector<Detection>> detections(static_cast<size_t>(values.size(0)));
  const int threads = options.threads > 0 ? options.threads : core::available_cores();
  core::for_each_parallel(detections.size(), threads, [&](size_t n) {
    const at::Tensor picture = values.select(0, static_cast<int64_t>(n)).to(at::kFloat);
    const at::Tensor corners = boxes.decode(picture.narrow(1, 0, 4)).contiguous();
    const at::Tensor scores = picture.narrow(1, 4, picture.size(1) - 4).softmax(1).contiguous();
    detections[n] = detect_in_picture(scores, corners, options);
  });
  return detections;
}

}  // namespace trainyard::train
