// The teacher of a distillation, from a checkpoint or a file of weights.
#pragma once

#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {

// The network that is trained.
struct Student {
  std::string dataset;  // name in checkpoints
  int64_t num_classes = 0;
  ClassNames classes;
  int64_t class_count = 0;  // number of classes, with names or not; 0: not known
  nn::Size2d image_size;    // image size of evaluation
  std::vector<data::EpochSize> epoch_sizes;
  data::Normalization normalization;
};

// Opens the teacher and loads its weights onto the CPU, at the student's image sizes. `path` is a file of weights, a
// checkpoint, or a directory with checkpoints, of which the newest is used; `model` is the teacher's, or empty to take
// it from the file. Logs the teacher; warns when it was trained with another normalization. Throws what
// load_trained_model() throws, and kInvalidArgument for other classes than the student's and for image sizes that it
// does not support.
train::Teacher open_teacher(const std::string& path, const std::string& model, const Student& student);

}  // namespace trainyard::frontends
