// Runs a trained model on images or arrays: the command `trainyard predict`.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "trainyard/cli/predict_detections.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/image_options.h"

namespace trainyard::cli {

struct PredictOptions {
  frontends::TrainedModelOptions model;
  // Image files; folders, of which all images count, by name; "-" for a list on `standard_input`.
  std::vector<std::string> images;
  std::string images_from;                 // a file with one path per line, or "-"
  std::istream* standard_input = nullptr;  // needed with a "-"
  int64_t top = 5;
  bool json = false;
  std::string array_input, array_output;  // .npy files, instead of images
  // How images become input; unset options are those of the training run's evaluation.
  frontends::EvaluationImageOptions input;
  DetectionOutputOptions detection;  // of a detector
  void validate() const;             // throws kInvalidArgument
};

struct PredictOutcome {
  int64_t images = 0;  // images that were classified
  int64_t failed = 0;  // images that could not be read; each is logged as an error
  bool stopped = false;
};

// Writes one line per image, in order: "cat.jpg: 3 cat 0.912, 5 dog 0.051, ...", or with json {"image": "cat.jpg",
// "top": [{"class": 3, "name": "cat", "probability": 0.912}, ...]}. Images go through the evaluation transform of the
// data set that the model was trained on, and probabilities of a model of several labels an image are sigmoids; 32 at a
// time. For a detector the lines are those of DetectionOutput. Images that cannot be read are logged and skipped.
PredictOutcome predict(const PredictOptions& options, std::ostream& out,
                       const core::StopToken& stop = core::StopSource().token());

}  // namespace trainyard::cli
