// Distributes the batches of one source to replicas in turn: each replica takes the source's next batch. Nothing is
// split, so a step of n replicas takes n batches, the same samples that n steps of one replica would take.
//
//   RoundRobinSource source(std::make_shared<FunctionSource>(make, FunctionSourceOptions{.batch_size = 4}), 2);
//   source.next();  // two batches of 4
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

class RoundRobinSource : public SourceDecorator {
 public:
  // `source` has one replica. With `repeat`, a source that ends is restarted with its next epoch; else this source ends
  // when a replica would get no batch. Throws kInvalidArgument.
  RoundRobinSource(std::shared_ptr<BatchSource> source, int replicas, bool repeat = true);

  int replicas() const override { return replicas_; }
  // Throws what the source throws, and kInvalidArgument when it repeats and an epoch has no batch.
  std::vector<Batch> next() override;

 private:
  // Returns the source's next batch, or nothing when it has ended.
  [[nodiscard]] std::optional<Batch> taken_batch();
  Batch repeated_batch();

  int replicas_;
  bool repeat_;
};

}  // namespace trainyard::data
