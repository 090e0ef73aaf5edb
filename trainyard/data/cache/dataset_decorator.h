// A data set that wraps another one: the same samples and labels, with a read() of its own. The base of the caches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

class DatasetDecorator : public Dataset {
 public:
  int64_t size() const override { return source_->size(); }
  int64_t label_count() const override { return source_->label_count(); }
  int64_t first_label() const override { return source_->first_label(); }
  std::vector<std::string> label_names() const override { return source_->label_names(); }
  std::optional<int64_t> known_label(int64_t index) const override { return source_->known_label(index); }
  bool has_label_sets() const override { return source_->has_label_sets(); }

  const Dataset& source() const { return *source_; }

 protected:
  explicit DatasetDecorator(std::shared_ptr<const Dataset> source) : source_(std::move(source)) {}

 private:
  const std::shared_ptr<const Dataset> source_;
};

}  // namespace trainyard::data
