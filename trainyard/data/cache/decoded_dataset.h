// A data set whose images are decoded once, and then kept in memory up to a limit, in files for later runs, or in both.
//
// Whole images are kept, at their own size, so that a run with this cache makes the same bytes as one without. What
// does not fit is decoded again each time.
#pragma once

#include <memory>
#include <string>

#include "trainyard/data/cache/dataset_decorator.h"
#include "trainyard/data/cache/decoded_store.h"
#include "trainyard/data/cache/record_memory.h"

namespace trainyard::data {

struct DecodedCacheOptions {
  int64_t memory_bytes = 0;       // bytes of pixels to keep in memory; 0: none
  std::string directory;          // empty: no files
  std::string identity;           // identifies the data set that the files in `directory` belong to (decoded_store.h)
  bool exif_orientation = false;  // passed to decoding
  core::FileSystem* files = &core::local_file_system();
};

class DecodedDataset : public DatasetDecorator {
 public:
  // Throws kInvalidArgument when `directory` holds the images of another data set.
  DecodedDataset(std::shared_ptr<const Dataset> source, const DecodedCacheOptions& options);

  // Returns decoded records (Encoding::kDecoded); raw ones are returned unchanged. Returns an error for an image that
  // cannot be decoded.
  core::Result<Record> read(int64_t index) const override;

 private:
  const bool exif_orientation_;
  const std::unique_ptr<DecodedStore> store_;   // null: none
  const std::unique_ptr<RecordMemory> memory_;  // null: none
};

}  // namespace trainyard::data
