// One global batch in the making: the local replicas' part of it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/bad_samples.h"
#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

// Where a sample goes.
struct BatchSlot {
  SampleKey key;
  Position place;
  const Transform* transform = nullptr;  // which makes the image
  void* image = nullptr;                 // of the transform's form
  int64_t* label = nullptr;
  // Where mixed labels go; null: images are not mixed.
  int64_t* other_label = nullptr;
  float* label_share = nullptr;
  std::vector<BadSample> bad;     // met here, in the order in which they were tried
  bool left_out = false;          // holds no sample
  std::string label_text, where;  // of the record; without a text neither
  int64_t text_label = 0;         // the label that label_text belongs to
};

struct BatchJob {
  std::vector<Batch> batches;
  std::vector<BatchSlot> slots;
  size_t claimed = 0, finished = 0;
  // The error of the first bad slot, so that the same error comes out whichever thread meets its own first.
  std::exception_ptr error;
  size_t error_slot = 0;

  bool complete() const { return finished == slots.size(); }
  void fail(size_t slot, std::exception_ptr failure);
  // Moves the samples of each batch together where some are left out.
  void leave_out();
};

}  // namespace trainyard::data
