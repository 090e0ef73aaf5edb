// Composes the commands that the end of a training prints, for using its results.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns lines as those of train::run_summary_text(), without the last line break: to see a report, to evaluate, to
// predict, to export and to continue. `complete` says that the training has done all of its steps, so that the command
// to continue requests more. `ended_early` says that --early_stop has ended it, so that the command requests more of
// that. Every word is quoted for a shell.
[[nodiscard]] std::string next_commands(const PreparedRun& run, bool complete, bool ended_early = false);

// The data of a training, by the flags that an evaluation needs again because no checkpoint holds them.
struct EvaluatedData {
  std::string data_dir{};  // empty: not known
  std::string data_name{}, labels_csv{};
  std::string on_unlabelled_file = "fail", on_unknown_class = "fail";
  bool split_class_folders = true;
};
// Returns the command that evaluates the run in `train_dir` on these data: "eval --train_dir=runs/1 --data_dir=photos".
[[nodiscard]] std::string evaluation_command(const std::string& train_dir, const EvaluatedData& data);

// Returns the flags of the command line as they were given, except for those named: " --model=lenet --batch_size=8".
[[nodiscard]] std::string given_flags(const PreparedRun& run, const std::vector<std::string_view>& without);

// Returns the word for a shell: in quotes if it has other characters than letters, digits and +,-./:=@_%.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace trainyard::frontends
