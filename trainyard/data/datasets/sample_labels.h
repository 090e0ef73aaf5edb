// The labels of all samples of a data set, and what follows from how many each class has.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

// Returns the label of each sample, by index; -1 for a sample that cannot be read. Reads all records, and says so,
// where a data set does not know its labels (Dataset::known_label). Throws kUnsupported for a data set with
// has_label_sets(), and errors of the operating system.
[[nodiscard]] std::vector<int64_t> sample_labels(const Dataset& dataset);

// Returns how many of `labels` + offset are each of `classes` outputs; labels of no output are not counted.
[[nodiscard]] std::vector<int64_t> class_counts(const std::vector<int64_t>& labels, int64_t offset, int64_t classes);

// Returns a weight for each class: all samples / (classes with samples * samples of the class), so that each class has
// the same weight in a sum over all samples; 0 for a class without samples. scikit-learn's
// compute_class_weight("balanced").
[[nodiscard]] std::vector<double> balanced_class_weights(const std::vector<int64_t>& counts);

}  // namespace trainyard::data
