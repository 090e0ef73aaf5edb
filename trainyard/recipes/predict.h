// A trained model on images or arrays: what `trainyard predict` does.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "trainyard/data/transform.h"
#include "trainyard/recipes/trained_model.h"

namespace trainyard::recipes {

struct PredictOptions {
  TrainedModelOptions model;
  std::vector<std::string> images;  // JPEG or PNG files
  int64_t top = 5;
  bool json = false;
  std::string array_input, array_output;  // .npy files, instead of images
  // Changes how images become input, which is otherwise as in the evaluation of the training run.
  std::function<void(data::TransformOptions&)> adjust_input;
  void validate() const;  // throws kInvalidArgument
};

// One line an image, in their order: "cat.jpg: 3 cat 0.912, 5 dog 0.051, ...", or with json
// {"image": "cat.jpg", "top": [{"class": 3, "name": "cat", "probability": 0.912}, ...]}. Images go through the
// evaluation transform of the data set that the model was trained on. An image that cannot be read ends the run with an
// error that names it, after the lines of those before it.
void predict(const PredictOptions& options, std::ostream& out);

}  // namespace trainyard::recipes
