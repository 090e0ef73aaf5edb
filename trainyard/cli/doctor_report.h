// The report of `trainyard doctor`: machine, instruction sets, libraries, features. It is collected and printed
// separately, so that each part has its own tests.
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

struct AllReduceCheck;  // doctor_all_reduce.h

// `all_reduces`: what was measured now of all-reduces between processes.
DoctorReport examine_machine(const std::vector<AllReduceCheck>& all_reduces);
// Describes the saved limits of this machine (core/machine/machine_limits.h), or how to measure them.
DoctorReport::Section limits_section(const std::optional<core::MachineLimits>& limits);
// Describes the measurements of --conv_algorithm=auto.
DoctorReport::Section convolutions_section(const nn::cpu::ConvolutionChoices& choices);
// Describes what the program was built from and with; sanitizers only when it has some.
DoctorReport::Section build_section(const core::BuildInfo& info);
// Lists the optional parts of a build, and whether they are built in. `cuda_toolkit_found` says that a build on this
// machine could have CUDA.
DoctorReport::Section features_section(const std::vector<core::OptionalPart>& parts, bool cuda_toolkit_found);
void print_report(const DoctorReport& report, std::ostream& out);

}  // namespace trainyard::cli
