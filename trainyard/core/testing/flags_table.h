// A small table with a flag of each kind, for the tests of the mechanism.
#pragma once

#include <functional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

inline FlagTable small_table() {
  FlagTable table;
  table.boolean("eval", false, "evaluate").group("Run");
  table.integer("batch_size", 0, "images a step").group("Run").bounds(0);
  table.integer("num_batches", std::nullopt, "steps").group("Run");
  table.boolean("normalize", true, "subtract means").group("Run");
  table.boolean("unified", std::nullopt, "managed memory").group("Memory");
  table.real("momentum", 0.9, "momentum").group("Training").bounds(0, 1);
  table.real("clip", std::nullopt, "clip by value").group("Training");
  table.choice("optimizer", "sgd", {"momentum", "sgd", "adam"}, "the optimizer").group("Training");
  table.text("data_dir", std::nullopt, "where the data is").group("Data");
  table.text("spec", "a|b", "a text with a bar").group("Data");
  table.list("eval_steps", "steps of evaluation").group("Run");
  table.choice("device", "gpu", {"cpu", "gpu"}, "where it runs")
      .group("Run")
      .automatic("gpu if there is one, else cpu");
  table.boolean("barrier", false, "another runtime's barrier").group("Run").warned("barriers are ours");
  table.boolean("mkl", false, "oneDNN").group("Run").translated("oneDNN is always used");
  table.text("config", std::nullopt, "a YAML file of flags").group("Run");
  table.boolean("dump_config", false, "print the flags").group("Run");
  return table;
}

// The error that `call` throws, as its problem text and as the whole line.
struct FlagError {
  std::string problem, line, code;
};
inline FlagError flag_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.detail().problem, error.what(), std::string(error_code_name(error.code()))};
  }
  return {};
}

}  // namespace trainyard::core
