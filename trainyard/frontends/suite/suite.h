// The suite of tf_cnn_benchmarks (its leading_indicators_test.py): named command lines, scaled to the machine and to
// the available time, with their results compared with those of the previous run.
//
//   for (const SuiteEntry& entry : suite_entries()) {
//     results.push_back(run_suite_entry(entry, suite_machine(""), 60, stop));
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::frontends {

struct TfCnnOptions;

struct SuiteEntry {
  std::string_view name;        // "Resnet50Benchmarks.synth_1gpu_gpuparams"
  std::string_view arguments;   // of tf_cnn_benchmarks, with spaces between them
  bool searches_batch = false;  // it searches the largest batch that fits into memory
};
// Returns all entries, in the original's order.
std::span<const SuiteEntry> suite_entries();

// The machine to which entries are scaled.
struct SuiteMachine {
  int gpus = 0;
  int cores = 1;
  bool bfloat16 = false;  // the CPU multiplies bfloat16
  std::string data_dir;   // data of entries that need some; empty: none
};
// Returns the description of this machine.
SuiteMachine suite_machine(std::string data_dir);

struct ScaledEntry {
  std::vector<std::string> arguments;
  std::vector<std::string> changes;  // "use_fp16 -> use_bf16"; empty: unchanged
  std::string refusal;               // why it cannot run here; empty if it can
};
// Replaces what the machine does not support: devices, 16-bit floats, captured steps, all-reduce algorithms. Runs the
// program's checks of the result, so that it is rejected here for the same reasons: flags, model, data and devices.
ScaledEntry scale_entry(const SuiteEntry& entry, const SuiteMachine& machine);

// Returns the options that the program reads from an entry's arguments. Throws what the program would throw.
TfCnnOptions read_suite_options(const std::vector<std::string>& arguments);

struct SuiteResult {
  std::string name;
  std::vector<std::string> arguments, changes;
  // As the original reports them: steps, seconds a step, images a second of the steps after the warm-up.
  int64_t iters = 0;
  double wall_time = 0, examples_per_sec = 0;
  std::optional<int64_t>
      max_batch_size;  // for an entry that searches it: images per device, before it was reduced to the available time
  std::optional<double> last_average_loss, top_1, top_5;
  std::string error;     // why there are no numbers; empty if there are
  bool refused = false;  // with an error: this machine cannot run the entry, which was not begun
};
// Scales the entry, runs a few steps of small batches to measure the time per image, then runs the entry with the steps
// and the batch that fit into `seconds`; both are listed in the changes. Throws no core::Error except kCancelled.
SuiteResult run_suite_entry(const SuiteEntry& entry, const SuiteMachine& machine, double seconds,
                            const core::StopToken& stop);

// Results of earlier runs, from the text of their file; empty for an empty text. Throws kCorruptData.
class SuiteHistory {
 public:
  explicit SuiteHistory(const std::string& text);
  // Returns the newest speed of the entry, or nothing.
  std::optional<double> examples_per_sec(const std::string& name) const;
  // Returns the text of the file with these results appended.
  std::string with(const std::vector<SuiteResult>& results, const SuiteMachine& machine) const;

 private:
  std::string text_;
};

// Returns a line for each result: name, images per second, those of the previous run and the ratio, and the changes; or
// the error, after "failed: " unless the entry was refused.
std::string suite_table(const std::vector<SuiteResult>& results, const SuiteHistory& before);

}  // namespace trainyard::frontends
