// Decoded images in files, for the next run (docs/formats/decoded_cache.md).
//
// Each run that decodes anything writes a segment of its own, pixels and an index of them, and reads those of earlier
// runs. So several processes may share a folder. An entry that a crash left incomplete is not found; nor is one whose
// checksum differs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {

// Returns a line of text that differs when one of the files does: how many there are, their bytes, and a hash of their
// names, sizes and times. Looks into folders, whose own names do not count. Throws what the file system does.
std::string identity_of_files(core::FileSystem& files, const std::vector<std::string>& paths);

// Thread-safe.
class DecodedStore {
 public:
  // Makes the folder. Throws kInvalidArgument when a segment there is for another `identity`.
  DecodedStore(core::FileSystem& files, const std::string& directory, const std::string& identity);
  ~DecodedStore();

  // Returns the sample as an earlier add() got it, of this run or of another one; its `where` names the folder.
  std::optional<Record> find(int64_t sample);
  // Keeps a record, which must be kDecoded. When a file cannot be written there is a warning and nothing more is
  // written: it is only a cache.
  void add(int64_t sample, const Record& record);

 private:
  struct Entry;
  struct Segment;
  void load(const std::string& index_path);
  // Needs mutex_.
  void open_segment();
  void give_up(Segment& segment, const core::Error& error);

  core::FileSystem& files_;
  const std::string directory_, identity_;
  std::mutex mutex_;  // of all below
  std::unordered_map<int64_t, Entry> entries_;
  std::vector<std::unique_ptr<Segment>> segments_;  // the last one may be this run's
  Segment* own_ = nullptr;
  bool writes_ = true;
};

}  // namespace trainyard::data
