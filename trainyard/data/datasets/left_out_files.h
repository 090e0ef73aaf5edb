// Counts the files in a folder of images that are not read as images, by extension, for messages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace trainyard::data {

class LeftOutFiles {
 public:
  // Counts a file that is not an image by its name. Ignores hidden files and those that file managers create.
  void add(std::string_view name);
  void add(const LeftOutFiles& others);

  bool empty() const { return counts_.empty(); }
  // Returns "52 .heic, 3 .txt, 1 without an extension", the most frequent kind first.
  [[nodiscard]] std::string text() const;
  // Returns what to do about images in formats that are not read, or an empty text when there are none.
  [[nodiscard]] std::string remedy() const;

 private:
  std::map<std::string, int64_t> counts_;  // by extension, in small letters
};

}  // namespace trainyard::data
