// Which data set TFRecords are of, where neither a flag nor the path says it.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// By the first record of `shard`: "shapes" or "cifar10" where it names a class of theirs (and CIFAR's images have 32 x
// 32 pixels) or, of 32 x 32 pixels, names none; else "imagenet": labelled images of any size. Throws kCorruptData with
// what is wrong where the file is no TFRecord, its first record no tf.Example with an image and a label.
std::string recognise_tfrecords(core::FileSystem& files, const std::string& shard);

}  // namespace trainyard::data
