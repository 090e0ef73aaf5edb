// Writes MLPerf's description of SSD300 and of its input, as tf_cnn_benchmarks does: numbers of its ssd_constants.py.
#pragma once

#include <string_view>

#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"

namespace trainyard::frontends {

// Returns whether MLPerf's benchmark of SSD has the tag: SSD_TAGS of mlperf_compliance 0.0.10.
[[nodiscard]] bool is_ssd_tag(std::string_view tag);

// Writes the backbone, the channels that its predictions are made of, and how many default boxes a pixel has.
void write_detector(const ComplianceLog& log);
// Writes the default boxes.
void write_default_boxes(const ComplianceLog& log);
// Writes how images are made; in training, how they are cropped and mirrored, too.
void write_detector_images(const ComplianceLog& log, bool training);
// Writes how overlapping detections are suppressed.
void write_suppression(const ComplianceLog& log);

}  // namespace trainyard::frontends
