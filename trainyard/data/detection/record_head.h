// Reads the small features of a tf.Example in a TFRecord, without its image: of a record of 150 KB, one or two.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {

// Returns a tf.Example with the features of the record but image/encoded, where that is long. Checks no checksum.
// Returns the record itself where it is encoded in an unusual way, as read_tfrecord() does, and its errors. Throws
// errors of the operating system.
core::Result<std::string> read_record_head(const core::ReadableFile& file, formats::RecordSpan span);

}  // namespace trainyard::data
