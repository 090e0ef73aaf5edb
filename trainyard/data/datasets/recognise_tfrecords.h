// Finds out which data set TFRecords belong to, when neither a flag nor the path says it.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Returns the name of the data set, by the first record of `shard`. "shapes" or "cifar10" where the record names a
// class of theirs (and CIFAR's images have 32 x 32 pixels), or has 32 x 32 pixels and names none; "coco" where
// it has the id of an image and no label; else "imagenet", which is labelled images of any size. Throws kCorruptData
// when the file is not a TFRecord, or its first record not a tf.Example with an image and a label.
std::string recognise_tfrecords(core::FileSystem& files, const std::string& shard);

}  // namespace trainyard::data
