// Checks the class names in records: "image/class/text" of TFRecords, the folders of class folders. When two data sets
// number their classes differently, a label has different names, and a run would train or evaluate on wrong labels
// without this check.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "trainyard/core/base/stateful.h"

namespace trainyard::data {

// The names of labels, which are the model's outputs here. Any thread may use it.
class LabelTexts {
 public:
  // Sets the classes of a training whose labels have names: names[i] is label first + i. No other names are added then.
  void set_names(std::span<const std::string> names, int64_t first, const std::string& where);
  // Records that `label` is named `text` in the record at `where`. Throws kInvalidArgument, naming both records, when
  // an earlier record has another name. Warns once when two labels have the same name: ImageNet has two kinds of crane.
  void add(int64_t label, const std::string& text, const std::string& where);
  // Compares a record of another data set. Throws kInvalidArgument when the label has another name here, or when all
  // records have been added, the name belongs to another label, and the label has no name.
  void check(int64_t label, const std::string& text, const std::string& where) const;
  // Says that all records of the data set have been added.
  void set_complete();

  // Returns the label's name, or an empty text.
  [[nodiscard]] std::string text_of(int64_t label) const;
  std::map<int64_t, std::string> all() const;

  // Saves the names as "label_texts", unless there are none or they are those of set_names().
  void save(core::StateWriter& writer) const;
  // Loads the names. Messages name `where` instead of a record. Returns false, and changes nothing, when none were
  // saved.
  bool load(const core::StateReader& reader, const std::string& where);
  // Loads from the saved text itself.
  void load(const std::string& text, const std::string& where);

 private:
  struct Said {
    std::string text{}, where{};
  };

  mutable std::mutex mutex_;  // guards everything below
  std::map<int64_t, Said> said_;
  std::map<std::string, int64_t> labels_;  // the first label of each name
  bool named_ = false, complete_ = false, warned_ = false;
};

}  // namespace trainyard::data
