// Draws boxes and their names into pictures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct DrawnBox {
  Box box{};           // parts of the field; what leaves it is cut off
  int64_t label = 0;   // decides the colour
  std::string text{};  // UTF-8, of which ASCII is drawn; empty: only the box
};

// Draws the boxes, in their order, into the part `field` of a picture: the edges two pixels wide, the texts inside of
// the upper edges. Coordinates that are not finite draw nothing. Throws kCorruptData (check_inside()) for a field
// outside of the picture.
void draw_boxes(Image& picture, const CropWindow& field, const std::vector<DrawnBox>& boxes);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
