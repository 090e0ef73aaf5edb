// Writes what an evaluation explains into a folder: evaluation.json, confusion.csv and .svg, per_class.csv,
// calibration.svg and most_wrong.png (docs/formats/evaluation.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/prediction_counts.h"

namespace trainyard::frontends {

struct ExplainedEvaluation {
  const train::Evaluation& evaluation;
  const train::PredictionCounts& counts;
  std::vector<std::string> names{};  // of classes, by output
  std::string checkpoint{};          // empty: weights that were not saved
  int64_t global_step = 0;
  const data::Dataset* images = nullptr;  // the evaluated ones; null: pictures are left out
  bool exif_orientation = false;          // pictures are turned as their EXIF data say
};

// Writes the files, each of them atomically, and removes those of an earlier evaluation that this one does not have.
// Returns the names of the written ones. An image that cannot be read any more has no picture. Throws kIo, kNoSpace.
std::vector<std::string> write_evaluation_files(const std::string& directory, const ExplainedEvaluation& explained);

// Returns lines for people: the top-k accuracies, if some are counted, and the calibration error.
[[nodiscard]] std::vector<std::string> evaluation_detail_lines(const train::PredictionCounts& counts);

}  // namespace trainyard::frontends
