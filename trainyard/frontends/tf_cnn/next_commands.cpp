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
std::string flags_of_training(const PreparedRun& run, bool complete, bool ended_early) {
  std::vector<std::string_view> without = {"train_dir", "existing_run", "stop_after_epochs"};
  if (complete) without.insert(without.end(), {"num_batches", "num_epochs"});
  if (ended_early) without.emplace_back("early_stop");
  std::string flags = given_flags(run, without);
  flags += " " + flag("train_dir", run.train_dir());
  if (ended_early) flags += " " + flag("early_stop", std::to_string(2 * run.options.early_stop.value_or(1)));
  if (!complete) return flags;
  const double epochs = run.options.steps.num_epochs.value_or(0);
  flags += " " + (epochs > 0 ? flag("num_epochs", fmt::format("{:g}", 2 * epochs))
                             : flag("num_batches", std::to_string(2 * run.plan.num_batches)));
  return flags;
}

EvaluatedData evaluated_data(const PreparedRun& run) {
  const InputSettings& input = run.input;
  return {.data_dir = input.data_dir,
          .data_name = run.options.input.data_name,
          .labels_csv = input.labels_csv,
          .on_unlabelled_file = input.on_unlabelled_file == data::OnUnlabelledFile::kSkip ? "skip" : "fail",
          .on_unknown_class = input.on_unknown_class == data::OnUnknownClass::kSkip ? "skip" : "fail",
          .split_class_folders = input.split_class_folders};
}

}  // namespace

std::string evaluation_command(const std::string& train_dir, const EvaluatedData& data) {
  std::string command = "eval " + flag("train_dir", train_dir);
  const auto add = [&command](const char* name, const std::string& value, const char* otherwise) {
    if (value != otherwise) command += " " + flag(name, value);
  };
  add("data_dir", data.data_dir, "");
  add("data_name", data.data_name, "");
  add("labels_csv", data.labels_csv, "");
  add("on_unlabelled_file", data.on_unlabelled_file, "fail");
  add("on_unknown_class", data.on_unknown_class, "fail");
  if (!data.split_class_folders) command += " --nosplit_class_folders";
  return command;
}

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

std::string next_commands(const PreparedRun& run, bool complete, bool ended_early) {
  const std::string from = " " + flag("train_dir", run.train_dir());
  std::string text;
  const auto line = [&](const char* what, const std::string& command) {
    text += fmt::format("{}{:<14}trainyard {}", text.empty() ? "" : "\n", what, command);
  };
  line("Report:", "report " + shell_word(run.train_dir()));
  if (!run.input.synthetic()) line("Evaluate:", evaluation_command(run.train_dir(), evaluated_data(run)));
  line("Predict:", "predict" + from + " IMAGE...");
  std::string name = run.model->name;
  std::replace(name.begin(), name.end(), '/', '-');
  line("Export:",
       "export" + from + " --format=onnx " + flag("output", core::join_path(run.train_dir(), name + ".onnx")));
  line("Continue:", "train" + flags_of_training(run, complete, ended_early));
  return text;
}

}  // namespace trainyard::frontends
