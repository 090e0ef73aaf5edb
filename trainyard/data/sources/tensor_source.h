// Makes batches of samples from tensors in memory.
//
//   TensorSource source(images, labels, {.batch_size = 64, .shuffle = true});
//   TensorSource source({{"images", images}, {"labels", labels}, {"weights", weights}}, {.batch_size = 64});
//
// The k-th sample of an epoch is a function of (seed, epoch, k) (pipeline/sample_order.h), whatever the number of
// replicas; a run resumes in mid-epoch with the batches that it would have had.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {
class SampleSequence;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Returns the rows `samples` of each tensor, in that order: new memory on the tensor's device.
[[nodiscard]] core::NamedTensors select_samples(const core::NamedTensors& tensors, const std::vector<int64_t>& samples);

// Makes one replica's batch of its samples: pairs, triplets, tensors without a batch dimension, or data that is looked
// up by the samples' numbers. `random` is a function of the seed and of the first sample's position, so a resumed run
// draws the same numbers.
using MakeSamples = std::function<core::NamedTensors(const core::NamedTensors& tensors,
                                                     const std::vector<int64_t>& samples, core::RandomStream& random)>;

struct TensorSourceOptions {
  int64_t batch_size = 32;  // a replica
  int replicas = 1;         // local replicas, whose batches next() returns
  int first_replica = 0;    // index of the first local replica among all
  int total_replicas = 0;   // replicas of all processes; 0: only the local ones
  bool shuffle = false;     // in a new order each epoch
  uint64_t seed = 0;
  // true: endless epochs; a global batch continues into the next one. false: one epoch, whose last batch is shorter; a
  // replica without samples gets an empty batch.
  bool repeat = true;
  bool drop_last = false;    // ends each epoch with its last full global batch
  MakeSamples make_batch{};  // empty: select_samples()
  void validate() const;     // throws kInvalidArgument
};

// The source calls make_batch on the thread that calls next(), for one replica after the other, and never without
// samples: a replica without samples gets a batch without tensors.
class TensorSource : public BatchSource, public SizedSource {
 public:
  // The tensors have one first dimension, the samples. They are not copied, so they must not be written to. Throws
  // kInvalidArgument for bad options, for no samples, and for tensors of different first dimensions.
  TensorSource(core::NamedTensors tensors, TensorSourceOptions options);
  // Does the same with two tensors, "images" and "labels".
  TensorSource(const at::Tensor& images, const at::Tensor& labels, TensorSourceOptions options = {});

  int64_t batch_size() const override { return options_.batch_size; }
  int replicas() const override { return options_.replicas; }
  int64_t batches_per_epoch() const override { return std::max<int64_t>(size_ / global_batch_, 1); }
  std::vector<Batch> next() override;
  double waited_seconds() const override { return waited_seconds_; }
  // Returns whether the next epoch begins where one ends.
  [[nodiscard]] bool repeats() const { return options_.repeat; }
  void stop() override {}
  Position position() const override { return position_; }
  // Throws kInvalidArgument for a position that the tensors do not have.
  void seek(Position position) override;

 private:
  // Returns the position of the next batch: with `repeat`, the beginning of the next epoch when this one has no batch
  // left.
  [[nodiscard]] Position of_next_batch(Position position) const;
  core::NamedTensors make(int64_t first, int64_t count);

  core::NamedTensors tensors_;
  TensorSourceOptions options_;
  int64_t size_;          // samples
  int64_t global_batch_;  // samples
  std::shared_ptr<SampleSequence> sequence_;
  Position position_;
  double waited_seconds_ = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
