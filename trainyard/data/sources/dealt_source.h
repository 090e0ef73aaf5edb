// Batches of one source, dealt to replicas in turn: each replica takes the source's next batch. Nothing is split, so a
// step of n replicas takes n batches, the same samples that n steps of one replica would take.
//
//   DealtSource source(std::make_shared<FunctionSource>(make, FunctionSourceOptions{.batch_size = 4}), 2);
//   source.next();  // two batches of 4
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/sources/source_around.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

class DealtSource : public SourceAround {
 public:
  // `source` has one replica. One that ends begins again, with its next epoch. Throws kInvalidArgument.
  DealtSource(std::shared_ptr<BatchSource> source, int replicas);

  int replicas() const override { return replicas_; }
  // Throws kInvalidArgument, beside what the source throws, where it has no batch at the beginning of an epoch.
  std::vector<Batch> next() override;

 private:
  Batch next_batch();

  int replicas_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
