// The outlines of the data set `shapes`, each inside the unit circle.
#pragma once

#include <span>
#include <string_view>

namespace trainyard::data {

struct ShapeOutline {
  std::string_view name;
  // Returns true when (x, y) is inside; x goes to the right, y down.
  bool (*contains)(double x, double y);
};

// Returns the outlines in the order of their labels.
std::span<const ShapeOutline> shape_outlines();

}  // namespace trainyard::data
