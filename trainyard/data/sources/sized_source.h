// Sources of batches that know how many there are in an epoch.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

class SizedSource {
 public:
  virtual ~SizedSource() = default;
  // Returns how often next() gives full batches in an epoch, at least 1; 0: an epoch has no end.
  [[nodiscard]] virtual int64_t batches_per_epoch() const = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
