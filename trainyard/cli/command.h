// The sub-commands of the program. Each is one file, cli/command_<name>.cpp; the table in cli.cpp names them all.
#pragma once

#include "trainyard/cli/program.h"

namespace trainyard::cli {

// A command below one of these, as a table lists it.
struct NamedCommand {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&, Console&);
};

// Returns whether the command with these arguments looks at Console::stop. The first signal ends another one at once.
bool stops_on_request(const Arguments& arguments);

int run_flags_alone(const Arguments& arguments, Console& console);  // the dialect of tf_cnn_benchmarks
int run_train(const Arguments& arguments, Console& console);
int run_train_ctl(const Arguments& arguments, Console& console);
int run_find_lr(const Arguments& arguments, Console& console);
int run_eval(const Arguments& arguments, Console& console);
int run_eval_detections(const Arguments& arguments, Console& console);
int run_launch(const Arguments& arguments, Console& console);
int run_launch_rank(const Arguments& arguments, Console& console);    // parallel/launch/agent.h
int run_launch_keeper(const Arguments& arguments, Console& console);  // parallel/launch/keeper.h
int run_program(const Arguments& arguments, Console& console);
int run_predict(const Arguments& arguments, Console& console);
int run_data(const Arguments& arguments, Console& console);
int run_export(const Arguments& arguments, Console& console);
int run_models(const Arguments& arguments, Console& console);
int run_bench(const Arguments& arguments, Console& console);
int run_report(const Arguments& arguments, Console& console);
int run_simulate(const Arguments& arguments, Console& console);
int run_suite(const Arguments& arguments, Console& console);
int run_quantize(const Arguments& arguments, Console& console);
int run_sparsity(const Arguments& arguments, Console& console);
int run_doctor(const Arguments& arguments, Console& console);
int run_tune_command(const Arguments& arguments, Console& console);
int run_completion(const Arguments& arguments, Console& console);
int run_help(const Arguments& arguments, Console& console);

}  // namespace trainyard::cli
