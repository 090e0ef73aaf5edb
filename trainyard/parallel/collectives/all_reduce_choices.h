// The measured choices of all-reduce algorithms, kept in a file of the user's cache folder, as those of convolutions
// are (nn/cpu/convolution/choice/convolution_choice.h). A description names the processors, so machines may share the
// file.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::parallel {

// What an all-reduce of a tensor of some size took by one algorithm.
struct AllReduceTime {
  int64_t bytes = 0;
  std::string algorithm;  // with its shards: "shared_memory", "chain", "shuffle#2"
  double seconds = 0;     // median, each that of the slowest rank
};

struct AllReduceChoice {
  std::string spec;                  // the algorithms by size, as measured_all_reduce.h names them
  std::vector<AllReduceTime> times;  // in the order in which they were measured: by size, then by algorithm
};

// Any thread may call the methods.
class AllReduceChoices {
 public:
  // Returns the process's choices, which are read from their file at the first use. A file that cannot be read, or is
  // of another version, counts as empty, and so does a line in it that is not whole.
  static AllReduceChoices& instance();
  // `file` is where choices are kept; empty: nowhere.
  explicit AllReduceChoices(std::string file);

  // `description`: what was measured, one line of text without tabs.
  std::optional<AllReduceChoice> find(const std::string& description) const;
  // Keeps a choice instead of an earlier one of this description, also in the file, next to what other processes have
  // kept there meanwhile. Warns when the file cannot be written.
  void keep(const std::string& description, const AllReduceChoice& choice);
  std::map<std::string, AllReduceChoice> all() const;
  const std::string& file() const { return file_; }

 private:
  void read();
  std::string text() const;

  const std::string file_;
  mutable std::mutex mutex_;
  std::map<std::string, AllReduceChoice> choices_;
};

}  // namespace trainyard::parallel
