#include "trainyard/data/sources/retried_source.h"

#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {
namespace {

class RetriedSource : public SourceDecorator {
 public:
  explicit RetriedSource(std::shared_ptr<BatchSource> source) : SourceDecorator(std::move(source)) {
    if (this->source() == nullptr) throw core::Error(core::ErrorCode::kInvalidArgument, "there is no source to retry");
  }

  std::vector<Batch> next() override {
    const Position position = source()->position();
    try {
      return source()->next();
    } catch (const core::Error& error) {
      using enum core::ErrorCode;
      if (error.code() != kIo && error.code() != kNotFound && error.code() != kCorruptData) throw;
      core::log::warning("reading a batch failed and is tried once more: {}", error.what());
    }
    source()->seek(position);
    return source()->next();
  }
};

}  // namespace

std::shared_ptr<BatchSource> retried(std::shared_ptr<BatchSource> source) {
  return std::make_shared<RetriedSource>(std::move(source));
}

}  // namespace trainyard::data
