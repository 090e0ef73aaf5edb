// Stores decoded images in files for later runs (docs/formats/decoded_cache.md).
//
// Each run writes the images that it decodes to a segment of its own, pixels and an index, and reads the segments of
// earlier runs. So several processes may share a folder. An entry that is incomplete after a crash, or whose checksum
// differs, is not found.
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

// Returns a line of text that changes when one of the files changes: their number, their bytes, and a hash of their
// names, sizes and times. Descends into folders, whose own names do not count. Throws what the file system throws.
std::string identity_of_files(core::FileSystem& files, const std::vector<std::string>& paths);

// Thread-safe.
class DecodedStore {
 public:
  // Makes the folder. Throws kInvalidArgument when a segment there is for another `identity`. `turns_images`: images,
  // and their boxes, are turned as their EXIF data say. What earlier releases stored with boxes, which they did not
  // turn, is not found then.
  DecodedStore(core::FileSystem& files, const std::string& directory, const std::string& identity,
               bool turns_images = false);
  ~DecodedStore();

  // Returns the sample that add() has stored, in this run or an earlier one. Its `where` names the folder.
  std::optional<Record> find(int64_t sample);
  // Keeps a record, which must be kDecoded. When a file cannot be written, warns and writes no more: it is only a
  // cache.
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
  const bool turns_images_;
  std::mutex mutex_;  // guards everything below
  std::unordered_map<int64_t, Entry> entries_;
  std::vector<std::unique_ptr<Segment>> segments_;  // the last one may be this run's
  Segment* own_ = nullptr;
  bool writes_ = true;
};

}  // namespace trainyard::data
