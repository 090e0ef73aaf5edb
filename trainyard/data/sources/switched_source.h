// A source whose inner source can be changed between two steps, or whose batches the caller passes. For a trainer,
// which keeps its source, in a program that changes sources.
//
//   auto source = std::make_shared<SwitchedSource>(/*batch_size=*/32, /*replicas=*/1);
//   source->hand({batch});        // the next next() returns it
//   source->attach(pipeline);     // those behind it are the pipeline's
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

// Saves and loads the position of the attached source. A position that is loaded, or sought, before a source is
// attached is applied when it is. Batches that the caller passes move no position.
class SwitchedSource : public BatchSource {
 public:
  SwitchedSource(int64_t batch_size, int replicas);

  // Takes one batch for each replica, which next() returns once. Throws kInvalidArgument for another number of them.
  void hand(std::vector<Batch> batches);
  // Takes the batches of `source` from now on; the same one again changes nothing. Throws kInvalidArgument for another
  // number of replicas.
  void attach(std::shared_ptr<BatchSource> source);

  int64_t batch_size() const override { return batch_size_; }
  int replicas() const override { return replicas_; }
  // Throws kInvalidArgument when there is neither a batch nor a source.
  std::vector<Batch> next() override;
  double waited_seconds() const override { return source_ == nullptr ? 0 : source_->waited_seconds(); }
  void stop() override;
  Position position() const override;
  void seek(Position position) override;
  int64_t bad_samples() const override { return source_ == nullptr ? 0 : source_->bad_samples(); }

 private:
  int64_t batch_size_;
  int replicas_;
  std::vector<Batch> handed_;
  std::shared_ptr<BatchSource> source_;
  Position position_;  // while there is no source
};

}  // namespace trainyard::data
