// Collects the class names of a data set that is being converted: from its list of names, or else from its records.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trainyard/data/datasets/label_texts.h"

namespace trainyard::data {

// Labels are counted from 0. Any thread.
class ConvertedClasses {
 public:
  // `names` are the source's names by label, when it has a list. `label_count` is the largest number of labels.
  ConvertedClasses(std::vector<std::string> names, int64_t label_count);

  // Adds a sample, whose record names its class `text` (empty: no name), and returns the name of its class; empty when
  // unknown. Throws kInvalidArgument when the label already has another name, kCorruptData when the source has no such
  // label.
  std::string add(int64_t label, const std::string& text, const std::string& where);

  // Returns the names of all classes, once all samples were added. Empty when some are unknown: no record has a name,
  // or labels between those that were added have none.
  [[nodiscard]] std::vector<std::string> names() const;

  // Returns the names of all classes; one without a name has its number, "00012".
  [[nodiscard]] std::vector<std::string> names_or_numbers() const;

  // Returns different names of all classes that are valid as folder names. A class without a name has its number,
  // "00012". A '/' becomes '_', as does a dot in front; a name that another class has, too, gets its number appended.
  [[nodiscard]] std::vector<std::string> folder_names() const;

  // Returns true for a class that belongs to the data set, with images or not: one that the source lists, or has.
  [[nodiscard]] bool has(int64_t label) const;

 private:
  std::vector<std::string> by_number() const;
  int64_t count() const;

  const std::vector<std::string> listed_;
  const int64_t label_count_;
  LabelTexts texts_;
  mutable std::mutex mutex_;  // guards used_
  std::set<int64_t> used_;
};

}  // namespace trainyard::data
