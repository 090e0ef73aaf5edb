// What an evaluation's predictions look like as files: evaluation.json, tables and pictures
// (docs/formats/evaluation.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/train/evaluation/prediction_counts.h"

namespace trainyard::train {

// One of the wrong predictions as people see it.
struct WrongPicture {
  std::string file{};   // where the image is
  std::string image{};  // JPEG in base64; empty: it could not be read
};

struct EvaluationReport {
  const PredictionCounts& counts;
  std::vector<std::string> names{};  // of classes by output; an output without a name is called by its number
  std::string checkpoint{};          // empty: weights that were not saved
  int64_t global_step = 0;
  double loss = 0, top_1 = 0, top_5 = 0;
  std::vector<WrongPicture> most_wrong{};  // as many as counts.most_wrong(), in its order

  [[nodiscard]] std::string name_of(int64_t output) const;
};

// Returns one JSON object. Text that is not UTF-8 has U+FFFD in place of wrong bytes.
[[nodiscard]] std::string evaluation_json(const EvaluationReport& report);

// Returns a row for each class and a column for each predicted class, and one more for images that predict nothing when
// there are such; empty without a confusion matrix. Lines and fields of RFC 4180.
[[nodiscard]] std::string confusion_csv(const EvaluationReport& report);
// Returns a row for each class: name, images, predicted, right, precision, recall, f1.
[[nodiscard]] std::string per_class_csv(const EvaluationReport& report);

// Draws the confusion matrix, each row in shares of its class's images: with names and counts for up to 30 classes,
// with names for up to 60, else as a picture of one pixel a cell. Empty without a confusion matrix.
[[nodiscard]] std::string confusion_svg(const EvaluationReport& report);
// Draws the reliability diagram: accuracy by confidence, and how many images have which confidence. Guo et al. 2017,
// figure 1.
[[nodiscard]] std::string calibration_svg(const EvaluationReport& report);

}  // namespace trainyard::train
