// The endless sequence of samples that the epochs of a data set make, and the places in it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/sample_order.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// One thread at a time.
class SampleSequence {
 public:
  // size > 0.
  SampleSequence(int64_t size, OrderOptions order, uint64_t seed) : size_(size), order_(order), seed_(seed) {}

  // Returns the same place with an offset in [0, size). Throws kInvalidArgument when there is no such place.
  Position normalized(Position position) const;
  // Returns the place `count` samples further.
  Position advanced(Position position, int64_t count) const;
  // Returns the index in the data set of the sample at a normalized place.
  int64_t sample_at(Position position);

 private:
  int64_t size_;
  OrderOptions order_;
  uint64_t seed_;
  std::map<int64_t, std::vector<int64_t>> orders_;  // of the epochs around the last place asked for
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
