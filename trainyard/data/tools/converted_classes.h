// What the classes of a data set are called while it is written anew in another form: by the names that it has, else by
// what its records say.
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
  // `names`: of the labels of the source, where it has a list of them. `label_count`: how many labels there may be.
  ConvertedClasses(std::vector<std::string> names, int64_t label_count);

  // Takes a sample down, whose record calls its class `text` (empty: nothing), and returns the name of its class; empty
  // where it is not known. Throws kInvalidArgument where the label has another name already, kCorruptData where it is
  // none of the source's.
  std::string add(int64_t label, const std::string& text, const std::string& where);

  // Returns the names of all classes, once all samples were added. Empty where they are not all known: no record has a
  // text, or labels between those that were added have none.
  [[nodiscard]] std::vector<std::string> names() const;

  // Returns different names of all classes that folders can have. A class without a name has its number, "00012". A '/'
  // becomes '_', as does a dot in front; a name that another class has, too, gets its number behind it.
  [[nodiscard]] std::vector<std::string> folder_names() const;

  // Returns true for a class that belongs to the data set, with images or not: one that the source lists, or has.
  [[nodiscard]] bool has(int64_t label) const;

 private:
  std::vector<std::string> by_number() const;
  int64_t count() const;

  const std::vector<std::string> listed_;
  const int64_t label_count_;
  LabelTexts texts_;
  mutable std::mutex mutex_;  // of used_
  std::set<int64_t> used_;
};

}  // namespace trainyard::data
