// A source that knows its number of batches per epoch.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

class SizedSource {
 public:
  virtual ~SizedSource() = default;
  // Returns how often next() returns full batches in an epoch, at least 1; 0 when an epoch has no end.
  [[nodiscard]] virtual int64_t batches_per_epoch() const = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
