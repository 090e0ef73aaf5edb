// What `trainyard doctor` knows: machine, instruction sets, libraries, features. Collected apart from printed, so that
// the form has a golden test and the content its own.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::cli {

struct DoctorReport {
  struct Section {
    std::string title;
    std::vector<std::pair<std::string, std::string>> rows;  // name, finding
  };
  std::vector<Section> sections;
};

DoctorReport examine_machine();
void print_report(const DoctorReport& report, std::ostream& out);

}  // namespace trainyard::cli
