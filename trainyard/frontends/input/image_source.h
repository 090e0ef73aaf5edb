// Makes the input of a run: batches of images from a data set, or synthetic ones.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/input_settings.h"

namespace trainyard::frontends {

struct ImageSourceOptions {
  std::shared_ptr<const data::Dataset> dataset{};  // of input.data_dir; null where images are synthetic
  int64_t num_classes = 0;  // outputs of the model; labels of the background count (label_offset)
  int64_t batch_size = 32;  // a replica
  int replicas = 1;
  // When several processes share the global batch: the index of the first local replica, and the number of all
  // replicas.
  int first_replica = 0;
  int total_replicas = 0;  // 0: only the local replicas
  // The labels of the data set's samples, for input.balanced_sampling in training; else null.
  std::shared_ptr<const std::vector<int64_t>> balanced_labels{};
  bool training = true;                // images are distorted, mixed and drawn in a random order
  bool repeat = true;                  // false: one pass, the last batch shorter
  int64_t epoch_size = 1;              // samples of synthetic images,
  data::SyntheticSamples synthetic{};  // and their distribution
  // As in data::PipelineOptions; null: not recorded, or not compared.
  std::shared_ptr<data::LabelTexts> label_texts{};
  std::shared_ptr<const data::LabelTexts> known_texts{};
};

// Returns the source for `device`, which decodes if the input requests it, and whose pinned memory holds the batches.
// Throws what data::Pipeline and label_offset() throw.
std::shared_ptr<data::BatchSource> make_image_source(const InputSettings& input, const train::OpenDevices& device,
                                                     const ImageSourceOptions& options);

}  // namespace trainyard::frontends
