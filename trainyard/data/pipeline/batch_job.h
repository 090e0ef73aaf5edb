// The work on one global batch: the local replicas' part of it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/bad_samples.h"
#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

// The memory for one sample of a batch.
struct BatchSlot {
  SampleKey key;
  Position place;
  const Transform* transform = nullptr;  // makes the image
  void* image = nullptr;                 // memory of the transform's form
  int64_t* label = nullptr;              // null: the sample has a set of labels, or none
  float* label_row = nullptr;            // [label_set_size] of a set of labels; null: one label, or none
  std::vector<void*> targets;            // memory for each of the transform's targets()
  // Where mixed labels go; null: images are not mixed.
  int64_t* other_label = nullptr;
  float* label_share = nullptr;
  int64_t sample = 0;          // index in the data set of the sample that was made: another one's in place of a bad one
  std::vector<BadSample> bad;  // bad samples of this slot, in the order in which they were tried
  bool left_out = false;       // holds no sample
  std::string label_text, where;  // name and place of the record; both empty when the record has no name
  int64_t text_label = 0;         // the label that label_text belongs to
};

struct BatchJob {
  std::vector<Batch> batches;
  std::vector<BatchSlot> slots;
  size_t claimed = 0, finished = 0;
  // The error of the first bad slot, so that the same error is thrown whichever thread fails first.
  std::exception_ptr error;
  size_t error_slot = 0;

  bool complete() const { return finished == slots.size(); }
  void fail(size_t slot, std::exception_ptr failure);
  // Closes the gaps that left out samples make in each batch, and sets Batch::sample_indices.
  void leave_out();
};

}  // namespace trainyard::data
