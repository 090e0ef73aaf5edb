// Sources that are made of several other sources: JoinedSource has one for each replica, ZippedSource has the tensors
// of all of them in each batch, MixedSource draws one of them for each batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The common part of sources that are made of other sources: positions, errors and waiting times.
//
// The sources may have different lengths, so a position does not identify one in each of them: it counts the samples
// that were returned, in an epoch 0 without an end. save() writes "batches", "samples", and the state of source i under
// "i/"; load() throws kInvalidArgument when another number of sources was saved. After a next() that threw, save()
// first lets the sources that had made a batch for it go back, so that all are saved at the same place.
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

  // Returns the next batches of a source, which is asked once for each next() that succeeds. Where another source
  // throws, the batches that were taken before are there for the next() that tries again: else the sources would be
  // one batch apart from then on.
  [[nodiscard]] const std::vector<Batch>& taken(size_t index);

  BatchSource& source(size_t index) const { return *sources_[index]; }
  int64_t batches() const { return batches_; }  // global batches that were returned

 private:
  // Gives batches back that were taken before another source threw. Throws what seek() of their source throws.
  void put_back_taken() const;

  std::vector<std::shared_ptr<BatchSource>> sources_;
  // By source, until next() has succeeded. Also save() gives them back.
  mutable std::vector<std::optional<std::vector<Batch>>> taken_;
  std::vector<Position> before_;  // of each source, in front of the batches in taken_
  int64_t batches_ = 0, samples_ = 0;
};

// Has one source for each replica: source r makes the batches of replica r. The batches may have different sizes,
// shapes and tensors: images of 48 x 48 on one device and of 32 x 32 on another. When a source ends before the others,
// its replica gets empty batches, without tensors; the joined source ends with its last source.
class JoinedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument for a source that has more than one replica.
  explicit JoinedSource(std::vector<std::shared_ptr<BatchSource>> sources);

  int replicas() const override { return static_cast<int>(size()); }

 private:
  std::vector<Batch> next_batches() override;
};

// Each replica's batch holds the tensors of all sources' batches for it, in the sources' order. It ends with the first
// source that ends. Samples are counted as the first source's.
class ZippedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument when the sources have different numbers of replicas. next() throws it when two sources have
  // tensors of the same name.
  explicit ZippedSource(std::vector<std::shared_ptr<BatchSource>> sources);

  int replicas() const override { return source(0).replicas(); }

 private:
  std::vector<Batch> next_batches() override;
};

struct MixedPart {
  std::shared_ptr<BatchSource> source{};
  double weight = 1;  // its share of the batches, relative to the other weights
};

struct MixedSourceOptions {
  uint64_t seed = 0;
  // false: the mix ends when it draws a source that has ended. true: that source is skipped from then on; the mix ends
  // with its last source.
  bool continue_without_ended = false;
};

// A mix of sources: each global batch comes from one of them, drawn by weight.
//
//   MixedSource source({{.source = photos, .weight = 3}, {.source = drawings}}, {.seed = 1});  // three of four photos
//
// The source of global batch i is a function of (seed, i), and of the sources that have ended before.
class MixedSource : public CombinedSource {
 public:
  // Throws kInvalidArgument where the sources have different numbers of replicas, and for weights that are not positive
  // and finite. Batch sizes may differ.
  MixedSource(const std::vector<MixedPart>& parts, const MixedSourceOptions& options);

  int replicas() const override { return source(0).replicas(); }
  void seek(Position position) override;
  // Saves CombinedSource's state and "ended/i" of each source.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  std::vector<Batch> next_batches() override;
  // Returns the source at `fraction`, in [0, 1), of the cumulated weights of the sources that have not ended.
  [[nodiscard]] size_t drawn(double fraction) const;

  std::vector<double> weights_;
  MixedSourceOptions options_;
  std::vector<bool> ended_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
