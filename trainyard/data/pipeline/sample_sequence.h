// The endless sequence of samples over the epochs of a data set, and the positions in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "trainyard/data/pipeline/balanced_order.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/repeated_sample.h"
#include "trainyard/data/pipeline/sample_order.h"

namespace trainyard::data {

// Used by one thread at a time.
//
// With `repeats` m above 1 each sample comes m times: repeated augmentation (Hoffer et al., "Augment your batch", 2020;
// Berman et al., "MultiGrain", 2019). An epoch keeps its `size` positions, as with torchvision's RASampler, so it
// visits size / m samples. The next epoch continues where it ended: m epochs are one pass over the data set, in one
// order, and so a shuffle buffer that only reaches a part of the set does not hide the rest. (RASampler takes the
// beginning of a new order in each epoch.) Samples come in pairs, A B A B A B, so that neighbours are never the same
// sample.
//
// With `balanced_labels` each class is drawn equally often (balanced_order.h). An epoch keeps its `size` positions.
class SampleSequence {
 public:
  // size > 0, repeats > 0. `balanced_labels` has the label of each sample, or is null; then repeats is 1. Throws what
  // BalancedOrder's constructor throws.
  SampleSequence(int64_t size, OrderOptions order, uint64_t seed, int64_t repeats = 1,
                 const std::vector<int64_t>* balanced_labels = nullptr);

  // Returns the same position with an offset in [0, size). Throws kInvalidArgument when there is no such position.
  [[nodiscard]] Position normalized(Position position) const;
  // Returns the position `count` samples later.
  [[nodiscard]] Position advanced(Position position, int64_t count) const;
  // Returns the index in the data set of the sample at a normalized position.
  [[nodiscard]] int64_t sample_at(Position position) { return repeated_sample_at(position).sample; }
  RepeatedSample repeated_sample_at(Position position);

 private:
  const std::vector<int64_t>& order_of(int64_t pass);
  const std::vector<RepeatedSample>& balanced_draws_of(int64_t epoch);

  int64_t size_;
  OrderOptions order_;
  uint64_t seed_;
  int64_t repeats_;
  std::map<int64_t, std::vector<int64_t>> orders_;  // orders of the passes around the last requested position
  std::optional<BalancedOrder> balanced_;
  std::map<int64_t, std::vector<RepeatedSample>> balanced_draws_;  // of the epochs around the last requested position
};

}  // namespace trainyard::data
