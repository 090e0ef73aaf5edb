// What `trainyard doctor` knows: machine, instruction sets, libraries, features. Collected apart from printed, so that
// the form has a golden test and the content its own.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/machine/machine_limits.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"

namespace trainyard::cli {

struct DoctorReport {
  struct Section {
    std::string title;
    std::vector<std::pair<std::string, std::string>> rows;  // name, finding
  };
  std::vector<Section> sections;
};

DoctorReport examine_machine();
// What is kept of this machine's limits (core/machine_limits.h), or how to measure them.
DoctorReport::Section limits_section(const std::optional<core::MachineLimits>& limits);
// What --conv_algorithm=auto has measured.
DoctorReport::Section convolutions_section(const nn::cpu::ConvolutionChoices& choices);
// What the program was built from and with; sanitizers only where it has some.
DoctorReport::Section build_section(const core::BuildInfo& info);
// What can be left out when building, and whether it was. `cuda_toolkit_found`: a build on this machine could have
// CUDA.
DoctorReport::Section features_section(const std::vector<core::OptionalPart>& parts, bool cuda_toolkit_found);
void print_report(const DoctorReport& report, std::ostream& out);

}  // namespace trainyard::cli
