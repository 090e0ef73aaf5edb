// COCO's category ids are 80 of the numbers 1 to 90. Models number them without gaps: label 0 is the background, labels
// 1 to 80 are the categories in ascending order of their ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

inline constexpr int64_t kCocoLabels = 81;  // with the background
inline constexpr int64_t kCocoLargestCategory = 90;

// Returns the category id of a label in [1, kCocoLabels). Label 0, the background, gives 0. Throws kInvalidArgument for
// others.
[[nodiscard]] int64_t coco_category_of_label(int64_t label);
// Returns the label of a category id; nothing for ids that COCO does not use.
[[nodiscard]] std::optional<int64_t> coco_label_of_category(int64_t category_id);
// Returns the names by label: "background", "person", "bicycle", ..., "toothbrush".
[[nodiscard]] const std::vector<std::string>& coco_label_names();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
