#include "trainyard/frontends/tf_cnn/next_commands.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/files/file_system.h"

namespace trainyard::frontends {
namespace {

std::string flag(std::string_view name, const std::string& value) {
  return shell_word(fmt::format("--{}={}", name, value));
}

// Returns the flags of the command line as they were given, except for those that a continued run sets differently.
std::string flags_of_training(const PreparedRun& run, bool complete) {
  std::vector<std::string_view> without = {"train_dir", "existing_run", "stop_after_epochs"};
  if (complete) without.insert(without.end(), {"num_batches", "num_epochs"});
  std::string flags = given_flags(run, without);
  flags += " " + flag("train_dir", run.train_dir());
  if (!complete) return flags;
  const double epochs = run.options.steps.num_epochs.value_or(0);
  flags += " " + (epochs > 0 ? flag("num_epochs", fmt::format("{:g}", 2 * epochs))
                             : flag("num_batches", std::to_string(2 * run.plan.num_batches)));
  return flags;
}

}  // namespace

std::string given_flags(const PreparedRun& run, const std::vector<std::string_view>& without) {
  std::string flags;
  for (const auto& [name, value] : run.options.flags.command) {
    if (std::find(without.begin(), without.end(), name) == without.end()) flags += " " + flag(name, value);
  }
  return flags;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("+,-./:=@_%").find(c) != std::string::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string next_commands(const PreparedRun& run, bool complete) {
  const std::string from = " " + flag("train_dir", run.train_dir());
  std::string text;
  const auto line = [&](const char* what, const std::string& command) {
    text += fmt::format("{}{:<14}trainyard {}", text.empty() ? "" : "\n", what, command);
  };
  line("Report:", "report " + shell_word(run.train_dir()));
  std::string data = " " + flag("data_dir", run.input.data_dir);
  if (!run.input.labels_csv.empty()) data += " " + flag("labels_csv", run.input.labels_csv);
  if (run.input.on_unlabelled_file == data::OnUnlabelledFile::kSkip) data += " --on_unlabelled_file=skip";
  if (!run.input.synthetic()) line("Evaluate:", "eval" + from + data);
  line("Predict:", "predict" + from + " IMAGE...");
  std::string name = run.model->name;
  std::replace(name.begin(), name.end(), '/', '-');
  line("Export:",
       "export" + from + " --format=onnx " + flag("output", core::join_path(run.train_dir(), name + ".onnx")));
  line("Continue:", "train" + flags_of_training(run, complete));
  return text;
}

}  // namespace trainyard::frontends
