// What records themselves call their classes: "image/class/text" of TFRecords, the folders of class folders. Two data
// sets that number their classes differently say different things of one label. If nobody compared that, a run would
// train or evaluate on wrong labels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// The texts of labels, which are outputs of the model here. Any thread.
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

  // Returns what was said of the label; empty where nothing was.
  [[nodiscard]] std::string text_of(int64_t label) const;
  std::map<int64_t, std::string> all() const;

  // Saves the texts as "label_texts", where there are any that are not those of set_names().
  void save(core::StateWriter& writer) const;
  // Loads them. `where` stands for the records in messages. Returns false, and changes nothing, where nothing was
  // saved.
  bool load(const core::StateReader& reader, const std::string& where);
  // Loads from the saved text itself.
  void load(const std::string& text, const std::string& where);

 private:
  struct Said {
    std::string text{}, where{};
  };

  mutable std::mutex mutex_;  // of all below
  std::map<int64_t, Said> said_;
  std::map<std::string, int64_t> labels_;  // of each text the first one
  bool named_ = false, complete_ = false, warned_ = false;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
