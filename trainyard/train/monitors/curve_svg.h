// Draws the curves of a run as an SVG image: panels in rows of two, each with a few series over the global step.
//
//   std::string svg = curve_svg("resnet20 on cifar10", {{"loss", "total loss", {{"train", steps, losses}}}});
#pragma once

#include <string>
#include <vector>

namespace trainyard::train {

struct CurveSeries {
  std::string name;
  std::vector<double> x, y;  // same length; points that are not finite are left out
  bool joined = true;        // by a line; false: single points
};

// A row of ticks below a panel, for x divided by `unit`.
struct CurveAxis {
  std::string name;
  double unit = 1;  // more than 0: steps of an epoch, for ticks in epochs
};

struct CurvePanel {
  std::string title;
  std::vector<CurveSeries> series;
  std::vector<CurveAxis> x_axes = {{"step", 1}};  // one or two
  // Draws x on a logarithmic scale, with ticks at powers of ten. Points that are not above 0 are left out. One x axis.
  bool logarithmic = false;
};

// Returns the image. Panels without a point are left out; without any panel the result is empty.
std::string curve_svg(const std::string& title, const std::vector<CurvePanel>& panels);

// Returns the panels of a metrics.jsonl text: loss, accuracy, learning rate, images a second, and a detector's average
// precision (docs/formats/metrics.md).
// Lines that are not metrics are skipped.
std::vector<CurvePanel> curve_panels(const std::string& metrics_jsonl);

}  // namespace trainyard::train
