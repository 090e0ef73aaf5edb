// What sources made of other sources share: their places, errors and waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The sources may be of different lengths, so a position tells no place in them: it counts the samples that were given
// out, in an epoch 0 without an end. save() writes "batches", "samples", and the state of source i under "i/"; load()
// throws kInvalidArgument where another number of sources was saved.
class CombinedSource : public BatchSource {
 public:
  int64_t batch_size() const override;  // the largest of its sources'
  std::vector<Batch> next() final;
  double waited_seconds() const override;  // of all sources together
  void stop() override;
  Position position() const override { return {0, samples_}; }
  // {} begins all sources anew; the position at which it is changes nothing. Throws kUnsupported for others: only
  // load() brings them back.
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

  // Makes next()'s batches but for Batch::after.
  virtual std::vector<Batch> next_batches() = 0;

  BatchSource& source(size_t index) const { return *sources_[index]; }
  int64_t batches() const { return batches_; }  // global ones that were given out

 private:
  std::vector<std::shared_ptr<BatchSource>> sources_;
  int64_t batches_ = 0, samples_ = 0;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
