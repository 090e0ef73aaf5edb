#include <chrono>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/train/evaluation/detection/coco_metric.h"

namespace trainyard::cli {
namespace {

std::string as_json(const train::CocoMetric& metric) {
  nlohmann::ordered_json numbers;
  for (size_t i = 0; i < metric.values.size(); i++) {
    numbers[std::string(train::CocoMetric::kNames[i])] = metric.values[i];
  }
  return numbers.dump(2) + "\n";
}

}  // namespace

int run_eval_detections(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  table.text("output", std::nullopt, "write the numbers into this file, as a JSON object, too").group("Output");
  const auto parsed =
      parse_command({"eval-detections", "COCO's twelve numbers of detected boxes, as pycocotools has them",
                     "ANNOTATIONS.json DETECTIONS.json"},
                    table, arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->positional.size() != 2) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "trainyard eval-detections takes a file of annotations and one of detections",
                       .expected = "ANNOTATIONS.json DETECTIONS.json",
                       .actual = fmt::format("{} arguments", parsed->positional.size())});
  }
  const std::string output = parsed->values.text("output");
  if (!output.empty()) require_no_folder("output", output);

  core::FileSystem& files = core::local_file_system();
  const auto begin = std::chrono::steady_clock::now();
  const data::CocoAnnotations annotations = data::read_coco_annotations(parsed->positional[0], files);
  const std::vector<data::CocoDetection> detections = data::read_coco_detections(parsed->positional[1], files);
  const auto measured_from = std::chrono::steady_clock::now();
  const train::CocoMetric metric = train::coco_metric(annotations, detections);
  const double read_seconds = core::seconds_between(begin, measured_from);
  const double measured_seconds = core::seconds_since(measured_from);
  core::log::info("{} images, {} boxes, {} detections: {:.3f} s to read, {:.3f} s to measure",
                  annotations.images.size(), annotations.boxes.size(), detections.size(), read_seconds,
                  measured_seconds);
  console.out << train::coco_metric_lines(metric);
  if (!output.empty()) core::write_user_output(output, as_json(metric));
  return kSuccess;
}

}  // namespace trainyard::cli
