// The order in which an epoch visits a data set: a pure function of (options, seed, epoch), replayed on indices without
// reading anything.
//
// Shuffling follows tf.data's shuffle buffer: the files' records in order (rotated by `shift`), a buffer of
// `shuffle_buffer` indices, each draw replaced by the next index. A buffer as large as the set is a full shuffle.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data {

// Returns the indices of the samples in the epoch's order, `size` of them at 8 bytes each (10 MB for ImageNet).
[[nodiscard]] std::vector<int64_t> epoch_order(int64_t size, const OrderOptions& options, uint64_t seed, int64_t epoch);

}  // namespace trainyard::data
