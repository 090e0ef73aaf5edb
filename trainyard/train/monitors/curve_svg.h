// The curves of a run as an SVG picture: panels in rows of two, each with a few series over the global step.
//
//   std::string svg = curve_svg("resnet20 on cifar10", {{"loss", "total loss", {{"train", steps, losses}}}});
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct CurveSeries {
  std::string name;
  std::vector<double> x, y;  // same length; points that are not finite are left out
};

struct CurvePanel {
  std::string title;
  std::vector<CurveSeries> series;
};

// Returns the picture. Panels without a point are left out; without any panel the result is empty.
std::string curve_svg(const std::string& title, const std::vector<CurvePanel>& panels);

// Returns the panels of a metrics.jsonl text: loss, accuracy, learning rate, images a second (docs/formats/metrics.md).
// Lines that are not metrics are skipped.
std::vector<CurvePanel> curve_panels(const std::string& metrics_jsonl);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
