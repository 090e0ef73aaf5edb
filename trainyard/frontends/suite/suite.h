// The suite of tf_cnn_benchmarks (its leading_indicators_test.py): named command lines, scaled to what the machine can
// do and to the time that there is, with their results beside those of the run before.
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
  bool searches_batch = false;  // it looks for the largest batch that there is memory for
};
// Returns all entries, in the original's order.
std::span<const SuiteEntry> suite_entries();

// What entries are scaled to.
struct SuiteMachine {
  int gpus = 0;
  int cores = 1;
  bool bfloat16 = false;  // the CPU multiplies it
  std::string data_dir;   // of entries with data; empty: there is none
};
// Returns what this machine is.
SuiteMachine suite_machine(std::string data_dir);

struct ScaledEntry {
  std::vector<std::string> arguments;
  std::vector<std::string> changes;    // "use_fp16 -> use_bf16"; empty: it runs as the original does
  std::string refusal;                 // why it cannot run here; empty: it can
  std::vector<std::string> not_built;  // "--gradient_repacking": flags that it needs and that are not built yet
};
// Changes what the machine cannot do: devices that it lacks, 16-bit floats, captured steps, all-reduce algorithms. What
// the program would refuse of the result it refuses here, by the same checks: flags, model, data and devices.
ScaledEntry scale_entry(const SuiteEntry& entry, const SuiteMachine& machine);

// Returns what the program reads of an entry's arguments. Throws what it would throw.
TfCnnOptions read_suite_options(const std::vector<std::string>& arguments);

struct SuiteResult {
  std::string name;
  std::vector<std::string> arguments, changes;
  // As the original reports them: steps, seconds a step, images a second of the steps after the warm-up.
  int64_t iters = 0;
  double wall_time = 0, examples_per_sec = 0;
  std::optional<int64_t>
      max_batch_size;  // of an entry that searches it: images a device, before it was cut to the time
  std::optional<double> last_average_loss, top_1, top_5;
  std::string error;                   // why there are no numbers; empty: there are
  std::vector<std::string> not_built;  // of ScaledEntry
};
// Scales the entry, runs a few steps of small batches to see what an image costs, then the entry with as many steps,
// and at most the batch, for which `seconds` suffice; both are among the changes. Never throws a core::Error but
// kCancelled.
SuiteResult run_suite_entry(const SuiteEntry& entry, const SuiteMachine& machine, double seconds,
                            const core::StopToken& stop);

// Results of earlier runs, by the text of their file; empty for an empty text. Throws kCorruptData.
class SuiteHistory {
 public:
  explicit SuiteHistory(const std::string& text);
  // Returns the newest speed of the entry; nothing where it has none.
  std::optional<double> examples_per_sec(const std::string& name) const;
  // Returns the text of the file with these results behind all others.
  std::string with(const std::vector<SuiteResult>& results, const SuiteMachine& machine) const;

 private:
  std::string text_;
};

// Returns a line for each result: name, images a second, those of the run before and the ratio, what was changed.
std::string suite_table(const std::vector<SuiteResult>& results, const SuiteHistory& before);

}  // namespace trainyard::frontends
