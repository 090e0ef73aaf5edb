// Maps a model's outputs to classes: reads them from a checkpoint, and checks that data have the same classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {
struct CheckpointFacts;
}

namespace trainyard::frontends {

struct ClassNames {
  std::vector<std::string>
      names{};               // names of the classes in the order of their outputs; empty: classes have numbers only
  int64_t first_output = 0;  // output of the first class; 1: output 0 is the background
  bool operator==(const ClassNames&) const = default;

  // Returns the names by output, with empty ones before the first class.
  [[nodiscard]] std::vector<std::string> by_output() const;
};

// Returns the names of a data set's labels in a model of that many classes. Throws as label_offset() does.
[[nodiscard]] ClassNames class_names_of(const data::Dataset& dataset, const models::DatasetInfo& info,
                                        int64_t num_classes);

// Returns how many classes a data set has, with names or not.
[[nodiscard]] int64_t class_count_of(const data::Dataset& dataset);

// Throws kInvalidArgument, naming the difference, when `now` has other classes than `before`. When only one of the two
// has names, both must have the same number of classes (`count` of the nameless one) and the same first output, and a
// warning says that they are assumed to be the same.
struct ClassSide {
  const ClassNames& classes;
  std::string where{};  // "out/run1/model.ckpt-500", "the training images"
  int64_t count = 0;    // number of classes, with names or not; 0: not known
};
void check_same_classes(const ClassSide& before, const ClassSide& now, const std::string& remedy);

// The classes that a checkpoint, or a file of weights, stores.
struct SavedClasses {
  train::CheckpointInfo checkpoint{};
  train::CheckpointIdentity identity{};
  ClassNames classes{};
  std::string label_texts{};  // data::LabelTexts; empty: none

  bool same_classes(const SavedClasses& other) const {
    return classes == other.classes && identity.num_classes == other.identity.num_classes;
  }
};

// Returns the classes in a checkpoint's facts.
[[nodiscard]] SavedClasses saved_classes(const train::CheckpointFacts& facts, const train::CheckpointInfo& checkpoint);

// Returns the class names in the data's records, by output, for data whose labels have no other names.
[[nodiscard]] std::vector<std::string> names_of_texts(const std::string& label_texts);
// Returns the texts of a file's names, the first of which is of `first_output`, as SavedClasses::label_texts: without
// those that are empty, and those with a character that the file could not hold, which no record's text equals.
[[nodiscard]] std::string texts_of_names(const std::vector<std::string>& names, int64_t first_output = 0);

}  // namespace trainyard::frontends
