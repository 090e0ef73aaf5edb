// What records themselves call their classes: "image/class/text" of TFRecords, the folders of class folders. Two data
// sets that number their classes differently say different things of one label; without a look at it they would train
// or evaluate on wrong labels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "trainyard/core/base/stateful.h"

namespace trainyard::data {

// Labels here are outputs of the model. Any thread.
class LabelTexts {
 public:
  // Starts with the classes of a training whose labels have names: names[i] is label first + i. Nothing else follows.
  void set_names(std::span<const std::string> names, int64_t first, const std::string& where);
  // Takes down that the record at `where` says `text` of `label`. Throws kInvalidArgument, naming both records, when an
  // earlier one said something else. Two labels with one text are a warning, once: ImageNet has two kinds of crane.
  void add(int64_t label, const std::string& text, const std::string& where);
  // Compares a record of another data set with what is here. Throws kInvalidArgument when the label has another text
  // here; or when everything has been seen, and the text belongs to another label and the label to no text.
  void check(int64_t label, const std::string& text, const std::string& where) const;
  // Says that all records of the data set have been added.
  void set_complete();

  // What was said of the label; empty: nothing.
  std::string text_of(int64_t label) const;
  std::map<int64_t, std::string> all() const;

  // As the text "label_texts", where there are any that are not set_names()'s.
  void save(core::StateWriter& writer) const;
  // `where` stands for the records in messages. Returns false where nothing was saved; then nothing is changed.
  bool load(const core::StateReader& reader, const std::string& where);
  // The same of the text alone.
  void load(const std::string& text, const std::string& where);

 private:
  struct Said {
    std::string text, where;
  };

  mutable std::mutex mutex_;  // of all below
  std::map<int64_t, Said> said_;
  std::map<std::string, int64_t> labels_;  // of each text the first one
  bool named_ = false, complete_ = false, warned_ = false;
};

}  // namespace trainyard::data
