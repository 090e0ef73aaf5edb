// Files in a folder of images that are not read as images, counted by how their names end, for messages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace trainyard::data {

class LeftOutFiles {
 public:
  // Counts a file that is no image by its name. Passes over hidden files and those that file managers leave behind.
  void add(std::string_view name);
  void add(const LeftOutFiles& others);

  bool empty() const { return counts_.empty(); }
  // Returns "52 .heic, 3 .txt and 1 without an extension", the most frequent kind first.
  [[nodiscard]] std::string text() const;
  // Returns what to do about pictures of formats that are not read; empty where there are none among the files.
  [[nodiscard]] std::string remedy() const;

 private:
  std::map<std::string, int64_t> counts_;  // by extension, in small letters
};

}  // namespace trainyard::data
