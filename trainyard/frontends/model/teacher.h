// The teacher of a distillation, from a checkpoint or a file of weights.
#pragma once

#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/distillation.h"

namespace trainyard::frontends {

// What the network that learns is.
struct Student {
  std::string dataset;  // as checkpoints name it
  int64_t num_classes = 0;
  ClassNames classes;
  int64_t class_count = 0;  // with names or not; 0: not known
  nn::Size2d image_size;    // of evaluation
  std::vector<data::EpochSize> epoch_sizes;
  data::Normalization normalization;
};

// Opens the teacher and loads its weights onto the CPU, at the student's image sizes. `path` is a file of weights, a
// checkpoint, or a directory whose newest one is meant; `model` is the teacher's, or empty for what the path says. Logs
// what it is; warns where it was trained with another normalization. Throws what load_trained_model() throws, and
// kInvalidArgument for other classes than the student's and for images of other sizes that it cannot take.
train::Teacher open_teacher(const std::string& path, const std::string& model, const Student& student);

}  // namespace trainyard::frontends
