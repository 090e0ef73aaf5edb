// A source around another one that tries a bad read once more.
#pragma once

#include <memory>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Returns a source with the batches, positions and saved state of `source`. Where its next() cannot read (kIo,
// kNotFound, kCorruptData), a warning says so, and the batch is made once more from the same position; what that
// throws is thrown.
[[nodiscard]] std::shared_ptr<BatchSource> retried(std::shared_ptr<BatchSource> source);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
