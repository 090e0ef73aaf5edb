// Makes batches with a function of the caller: random numbers, a simulation, tensors in memory. Each batch is a
// function of its position alone, so a run resumes from any position with the batches that it would have had.
//
//   FunctionSource source([](const BatchPlace& place) -> core::NamedTensors {
//     return {{"x", inputs_of(place.batch)}, {"y", targets_of(place.batch)}};
//   }, {.replicas = 2, .batch_size = 16});
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/core/base/wrong_type.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/sized_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct BatchPlace {
  int64_t epoch = 0;  // from 0
  int64_t batch = 0;  // of this epoch, from 0
  int replica = 0;
};
// Any tensors; there may be none.
using MakeBatch = std::function<core::NamedTensors(const BatchPlace& place)>;

struct FunctionSourceOptions {
  int replicas = 1;
  int total_replicas = 0;  // replicas of all processes that train together, for positions; 0: only the local ones
  int64_t batch_size = 1;  // number of samples in a batch: positions and rates count these
  int64_t batches_per_epoch = 0;  // 0: the first epoch has no end
  void validate() const;          // throws kInvalidArgument
};

class FunctionSource : public BatchSource, public SizedSource {
 public:
  // `make` is called on the thread that calls next(), for one replica after the other.
  FunctionSource(MakeBatch make, const FunctionSourceOptions& options);
  template <typename Wrong>
  requires(!std::convertible_to<Wrong, MakeBatch>) FunctionSource(Wrong&&, const FunctionSourceOptions&) {
    static_assert(core::kRightType<Wrong>,
                  "FunctionSource takes a function of const data::BatchPlace& that returns core::NamedTensors, such as "
                  "{{\"images\", images}, {\"labels\", labels}}");
  }

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.replicas; }
  int64_t batches_per_epoch() const override { return options_.batches_per_epoch; }
  std::vector<Batch> next() override;
  double waited_seconds() const override { return waited_seconds_; }
  void stop() override {}
  Position position() const override { return position_; }
  // Continues with the batch that contains the position's sample.
  void seek(Position position) override;

 private:
  int64_t samples_a_batch() const {
    return options_.batch_size * (options_.total_replicas > 0 ? options_.total_replicas : options_.replicas);
  }

  MakeBatch make_;
  FunctionSourceOptions options_;
  Position position_;
  double waited_seconds_ = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
