// A source that also says how many batches an epoch has: for decorators of sources that know it.
#pragma once

#include <cstdint>
#include <utility>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

template <typename Source>
class WithEpochSize : public Source, public SizedSource {
 public:
  // The further arguments are those of Source.
  template <typename... Arguments>
  explicit WithEpochSize(int64_t batches, Arguments&&... arguments)
      : Source(std::forward<Arguments>(arguments)...), batches_(batches) {}

  int64_t batches_per_epoch() const override { return batches_; }

 private:
  int64_t batches_;
};

}  // namespace trainyard::data
