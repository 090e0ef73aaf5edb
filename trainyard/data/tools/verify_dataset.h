// Reads and decodes every sample of a data set.
#pragma once

#include <functional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::data {

struct VerifyOptions {
  std::string name;  // of the data set: "imagenet"
  std::string directory;
  std::string index_directory;  // as DatasetOptions
  int threads = 1;
  // Called for each bad sample with what is wrong and where: in the order of the shards and samples, from one thread at
  // a time.
  std::function<void(const core::Error&)> on_bad;
  core::FileSystem* files = &core::local_file_system();
  core::StopToken stop = core::StopSource().token();
};

struct VerifiedSamples {
  int64_t train = 0, validation = 0;  // samples that were checked
  // How many samples of both subsets are bad. A shard whose records cannot be found counts as one bad sample, and so do
  // the classes of validation images that the training set does not have.
  int64_t bad = 0;
};

// Checks both subsets, as far as they exist: checksums of records, labels, and each image decoded whole. A shard whose
// records cannot be found, or whose index file belongs to another shard, is bad as a whole; the check continues with
// the other shards. Throws kNotFound when there is neither subset or no index_directory, kCancelled after a stop, and
// errors of the operating system.
VerifiedSamples verify_dataset(const VerifyOptions& options);

}  // namespace trainyard::data
