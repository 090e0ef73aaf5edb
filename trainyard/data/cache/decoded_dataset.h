// A data set whose images are decoded once, and then kept in memory up to a limit, in files that later runs find again,
// or in both.
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
  int64_t memory_bytes = 0;       // of pixels; 0: none in memory
  std::string directory;          // empty: no files
  std::string identity;           // of what the files in `directory` are for (decoded_store.h)
  bool exif_orientation = false;  // of decoding
  core::FileSystem* files = &core::local_file_system();
};

class DecodedDataset : public DatasetDecorator {
 public:
  // Throws kInvalidArgument when `directory` holds the images of another data set.
  DecodedDataset(std::shared_ptr<const Dataset> source, const DecodedCacheOptions& options);

  // Returns decoded records (Encoding::kDecoded); raw ones come as they are. An image that cannot be decoded is an
  // error here.
  core::Result<Record> read(int64_t index) const override;

 private:
  const bool exif_orientation_;
  const std::unique_ptr<DecodedStore> store_;   // null: none
  const std::unique_ptr<RecordMemory> memory_;  // null: none
};

}  // namespace trainyard::data
