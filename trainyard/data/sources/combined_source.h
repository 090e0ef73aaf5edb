// The common part of sources that are made of other sources: positions, errors and waiting times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The sources may have different lengths, so a position does not identify one in each of them: it counts the samples
// that were returned, in an epoch 0 without an end. save() writes "batches", "samples", and the state of source i under
// "i/"; load() throws kInvalidArgument when another number of sources was saved.
class CombinedSource : public BatchSource {
 public:
  int64_t batch_size() const override;  // the largest of the sources'
  std::vector<Batch> next() final;
  double waited_seconds() const override;  // of all sources together
  void stop() override;
  Position position() const override { return {0, samples_}; }
  // {} restarts all sources; the current position changes nothing. Throws kUnsupported for other positions: only load()
  // restores them.
  void seek(Position position) override;
  int64_t bad_samples() const override;  // of all sources together
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

  // Return how many sources there are, and each of them.
  [[nodiscard]] size_t size() const { return sources_.size(); }
  [[nodiscard]] const BatchSource& part(size_t index) const { return *sources_.at(index); }

 protected:
  // Throws kInvalidArgument for no sources, and for one that is null.
  explicit CombinedSource(std::vector<std::shared_ptr<BatchSource>> sources);
  // Throws kInvalidArgument where the sources have different numbers of replicas.
  void require_same_replicas() const;

  // Makes the batches of next(), without Batch::after.
  virtual std::vector<Batch> next_batches() = 0;

  BatchSource& source(size_t index) const { return *sources_[index]; }
  int64_t batches() const { return batches_; }  // global batches that were returned

 private:
  std::vector<std::shared_ptr<BatchSource>> sources_;
  int64_t batches_ = 0, samples_ = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
