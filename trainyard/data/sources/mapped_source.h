// A source whose batches are changed on their way.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"

namespace trainyard::data {

class MappedSource : public SourceDecorator {
 public:
  // `change` gets each batch that holds samples.
  MappedSource(std::shared_ptr<BatchSource> source, std::function<void(Batch&)> change)
      : SourceDecorator(std::move(source)), change_(std::move(change)) {}

  std::vector<Batch> next() override {
    std::vector<Batch> batches = source()->next();
    for (Batch& batch : batches) {
      if (!batch.tensors.empty()) change_(batch);
    }
    return batches;
  }

 private:
  const std::function<void(Batch&)> change_;
};

}  // namespace trainyard::data
