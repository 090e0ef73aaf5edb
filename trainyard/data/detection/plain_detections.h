// Reads the usual form of COCO's JSON of results, several times as fast as a parser of all JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/detection/coco_annotations.h"

namespace trainyard::data {

// Returns the detections of a file that is a list of objects of "image_id", "category_id", "bbox" and "score", each
// once, in any order, and nothing else. Returns nothing for any other file, damaged ones included: a full parser then
// says what is wrong, or reads it. Uses all cores. Throws what opening and reading throw.
[[nodiscard]] std::optional<std::vector<CocoDetection>> read_plain_detections(const std::string& path,
                                                                              core::FileSystem& files);

}  // namespace trainyard::data
