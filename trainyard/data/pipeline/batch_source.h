// The source of a training's batches: one for each local replica, with the position after them. Implementations:
// Pipeline (real data), SyntheticSource, and those of data/sources. SourceDecorator is the base of those that change
// the batches of another source.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/base/tensors.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The next sample to take, as the k-th of an epoch's order. It does not depend on the number of replicas and threads.
struct Position {
  int64_t epoch = 0;
  int64_t offset = 0;  // samples of this epoch already taken, over all replicas
  bool operator==(const Position&) const = default;
};

// The batch of one replica for a step: any tensors, by name, in an order. By convention the classifiers' are "images"
// [N, 3, H, W], of the source's form (float32, CPU where nothing else is asked for), and "labels" [N] int64, CPU.
struct Batch {
  core::NamedTensors tensors{};
  int64_t first_sample = 0;  // index of this batch's first sample in the global batch
  Position after{};          // after the whole global batch
  // Index of each sample in the data set, in the order of the tensors' rows. Empty when the source does not know it.
  std::vector<int64_t> sample_indices{};

  // Throw kNotFound, which lists the names, when the batch has no such tensor.
  const at::Tensor& images() const { return tensors["images"]; }
  const at::Tensor& labels() const { return tensors["labels"]; }
  // Returns the size of the first tensor's first dimension, the number of samples by convention; 1 when that tensor is
  // a scalar, 0 when the batch is empty.
  [[nodiscard]] int64_t samples() const;
};

// A source of batches. One thread at a time may call next() and the Stateful methods, any thread stop().
class BatchSource : public core::Stateful {
 public:
  virtual int64_t batch_size() const = 0;  // per replica
  virtual int replicas() const = 0;        // number of local replicas

  // Blocks until there is one batch for each local replica, and returns them. Throws what a worker threw (a bad sample:
  // kCorruptData with shard and offset), or kCancelled after stop(). The last batches of an exact evaluation are
  // shorter, possibly empty; after them the result is empty.
  virtual std::vector<Batch> next() = 0;

  // Returns the seconds that next() has waited for input so far.
  [[nodiscard]] virtual double waited_seconds() const = 0;

  // Wakes next(), ends and joins all workers. May be called twice.
  virtual void stop() = 0;

  // Returns the position after the last batch that next() returned.
  [[nodiscard]] virtual Position position() const = 0;
  // Makes next() continue at `position`. Discards batches that were made ahead.
  virtual void seek(Position position) = 0;

  // Returns how many different samples of the batches so far were bad and were skipped or replaced.
  [[nodiscard]] virtual int64_t bad_samples() const { return 0; }

  void save(core::StateWriter& writer) const override;  // "epoch", "offset"
  void load(const core::StateReader& reader) override;
};

// A source that knows its number of batches per epoch.
class SizedSource {
 public:
  virtual ~SizedSource() = default;
  // Returns how often next() returns full batches in an epoch, at least 1; 0 when an epoch has no end.
  [[nodiscard]] virtual int64_t batches_per_epoch() const = 0;
};

// A source that wraps another one: the same batches and positions, with a next() of its own. The description of the
// inner source, such as its classes and how it makes images (described_source.h), applies to this one, too.
//
//   class Noisy : public data::SourceDecorator {
//    public:
//     explicit Noisy(std::shared_ptr<data::BatchSource> source) : SourceDecorator(std::move(source)) {}
//     std::vector<data::Batch> next() override { ... source()->next() ... }
//   };
class SourceDecorator : public BatchSource {
 public:
  int64_t batch_size() const override { return source_->batch_size(); }
  int replicas() const override { return source_->replicas(); }
  double waited_seconds() const override { return source_->waited_seconds(); }
  void stop() override { source_->stop(); }
  Position position() const override { return source_->position(); }
  void seek(Position position) override { source_->seek(position); }
  int64_t bad_samples() const override { return source_->bad_samples(); }
  void save(core::StateWriter& writer) const override { source_->save(writer); }
  void load(const core::StateReader& reader) override { source_->load(reader); }

  // Returns the wrapped source.
  [[nodiscard]] const BatchSource* inner() const { return source_.get(); }

 protected:
  // `source` must not be null.
  explicit SourceDecorator(std::shared_ptr<BatchSource> source) : source_(std::move(source)) {}
  BatchSource* source() const { return source_.get(); }

 private:
  std::shared_ptr<BatchSource> source_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
