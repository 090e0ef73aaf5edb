// Describes a run, apart from its results: its options, data, library and machine. A part of run_summary.json
// (docs/formats/metrics.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::train {

enum class RunStatus { kRunning, kFinished, kStopped, kFailed };
std::string_view run_status_name(RunStatus status);  // "running", ...

struct RunRecord {
  std::string command{};                                         // "trainyard train"
  std::vector<std::pair<std::string, core::FlagValue>> flags{};  // all flags with their values
  std::vector<std::string> given_flags{};                        // flags that the command line or a file has set
  // Choices that the program made where flags left them open: {"batch_size", "64"}, {"executor", "cpu"}.
  std::vector<std::pair<std::string, std::string>> choices{};
  std::string data_dir{};     // as a full path; empty: synthetic images
  std::string data_digest{};  // digest of the files' names, sizes and times (data::identity_of_files); empty: not known
  int64_t num_classes = 0, train_examples = 0, validation_examples = 0;
  uint64_t seed = 0;
  std::string instruction_set{};    // instruction set of the chosen kernels
  std::vector<std::string> gpus{};  // names
  double started_at = 0;            // seconds since the Unix epoch
};

}  // namespace trainyard::train
