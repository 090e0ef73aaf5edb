// A source that wraps another one: the same batches and positions, with a next() of its own. The description of the
// inner source, such as its classes and how it makes images (described_source.h), applies to this one, too.
//
//   class Noisy : public data::SourceDecorator {
//    public:
//     explicit Noisy(std::shared_ptr<data::BatchSource> source) : SourceDecorator(std::move(source)) {}
//     std::vector<data::Batch> next() override { ... source()->next() ... }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

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
