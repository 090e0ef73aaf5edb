// Checks a run's evaluation.json, which `trainyard eval` writes, before a report shows what it says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::cli {

inline constexpr uint64_t kLargestEvaluation = uint64_t{1} << 26;  // bytes of the file

// Returns the parts of the evaluation that are what they should be, in the form that the page reads; null when nothing
// is left. What is wrong is left out, and a sentence about it added to `problems`.
//
//   {"images": 60, "top_1": 0.5, "top_5": 0.9, "step": 100, "ece": 0.1,
//    "names": [names], "count": [images of the class], "precision": [..], "recall": [..],   // null: not defined
//    "cells": [true, predicted, images, ...],     // the confusion matrix without zeros, largest first
//    "bins": [[confidence, accuracy, images]],
//    "wrong": [{"file", "true", "predicted", "confidence", "image": "data:image/png;base64,..."}]}
nlohmann::ordered_json checked_evaluation(const nlohmann::ordered_json& file, std::vector<std::string>& problems);

// Leaves out the smallest cells and the last images, until at most `cells` cells and `image_bytes` bytes of images are
// left. What is left out is counted in "cells_left_out" and "wrong_left_out".
void shorten_evaluation(nlohmann::ordered_json& evaluation, size_t cells, size_t image_bytes);

}  // namespace trainyard::cli
