// Decorates a source: retries a failed read once.
#pragma once

#include <memory>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

// Returns a source with the batches, positions and saved state of `source`. When its next() cannot read (kIo,
// kNotFound, kCorruptData), warns and makes the batch once more from the same position; a second error is thrown.
[[nodiscard]] std::shared_ptr<BatchSource> retried(std::shared_ptr<BatchSource> source);

}  // namespace trainyard::data
