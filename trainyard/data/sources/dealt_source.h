// Batches of one source, dealt to replicas in turn: each replica takes the source's next batch. Nothing is split, so a
// step of n replicas takes n batches, the same samples that n steps of one replica would take.
//
//   DealtSource source(std::make_shared<FunctionSource>(make, FunctionSourceOptions{.batch_size = 4}), 2);
//   source.next();  // two batches of 4
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

class DealtSource : public BatchSource {
 public:
  // `source` has one replica. One that ends begins again, with its next epoch. Throws kInvalidArgument.
  DealtSource(std::shared_ptr<BatchSource> source, int replicas);

  int64_t batch_size() const override { return source_->batch_size(); }
  int replicas() const override { return replicas_; }
  // Throws kInvalidArgument, beside what the source throws, where it has no batch at the beginning of an epoch.
  std::vector<Batch> next() override;
  double waited_seconds() const override { return source_->waited_seconds(); }
  void stop() override { source_->stop(); }
  Position position() const override { return source_->position(); }
  void seek(Position position) override { source_->seek(position); }
  int64_t bad_samples() const override { return source_->bad_samples(); }
  void save(core::StateWriter& writer) const override { source_->save(writer); }
  void load(const core::StateReader& reader) override { source_->load(reader); }

 private:
  Batch next_batch();

  std::shared_ptr<BatchSource> source_;
  int replicas_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
