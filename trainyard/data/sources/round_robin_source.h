// Batches of one source, dealt to replicas in turn: each replica takes the source's next batch. Nothing is split, so a
// step of n replicas takes n batches, the same samples that n steps of one replica would take.
//
//   RoundRobinSource source(std::make_shared<FunctionSource>(make, FunctionSourceOptions{.batch_size = 4}), 2);
//   source.next();  // two batches of 4
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/sources/source_decorator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

class RoundRobinSource : public SourceDecorator {
 public:
  // `source` has one replica. With `repeat`, one that ends begins again, with its next epoch; else this one ends, too,
  // where a replica would get no batch. Throws kInvalidArgument.
  RoundRobinSource(std::shared_ptr<BatchSource> source, int replicas, bool repeat = true);

  int replicas() const override { return replicas_; }
  // Throws kInvalidArgument, beside what the source throws, where it repeats and has no batch at the beginning of an
  // epoch.
  std::vector<Batch> next() override;

 private:
  // Returns the source's next batch; nothing: it has ended.
  [[nodiscard]] std::optional<Batch> taken_batch();
  Batch repeated_batch();

  int replicas_;
  bool repeat_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
