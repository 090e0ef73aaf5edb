// A data set of one image with any number of three labels, for tests that only ask what a data set says of itself.
#pragma once

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

class LabelSets : public Dataset {
 public:
  int64_t size() const override { return 1; }
  core::Result<Record> read(int64_t) const override { return Record(); }
  int64_t label_count() const override { return 3; }
  bool has_label_sets() const override { return true; }
};

}  // namespace trainyard::data
