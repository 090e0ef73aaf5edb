// The outlines of the data set `shapes`, each inside the unit circle.
#pragma once

#include <span>
#include <string_view>

namespace trainyard::data {

struct ShapeOutline {
  std::string_view name;
  // Whether (x, y) is inside; x to the right, y down.
  bool (*contains)(double x, double y);
};

// In the order of their labels.
std::span<const ShapeOutline> shape_outlines();

}  // namespace trainyard::data
