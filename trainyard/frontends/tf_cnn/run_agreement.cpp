#include "trainyard/frontends/tf_cnn/run_agreement.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/frontends/input/data_digest.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/session/start_facts.h"

namespace trainyard::frontends {
namespace {

void add_data_facts(const PreparedRun& run, train::StartFacts& facts) {
  facts.push_back({"the data set", run.input.dataset});
  facts.push_back({"training images", std::to_string(run.train_examples)});
  facts.push_back({"validation images", std::to_string(run.validation_examples)});
  facts.push_back({"outputs of the model", std::to_string(run.num_classes)});
  train::add_class_facts(run.classes.names, facts);
  if (run.input.synthetic()) return;
  facts.push_back({"files of --data_dir (names, sizes)", data_digest(run.input.file_system(), run.input.data_dir)});
  if (run.input.labels_csv.empty()) return;
  const std::string table = run.input.file_system().read_file(run.input.labels_csv);
  facts.push_back(
      {"the table of --labels_csv", fmt::format("{} bytes, {:016x}", table.size(), core::stable_hash(table))});
}

}  // namespace

void require_same_flags(const PreparedRun& run) {
  train::StartFacts facts;
  train::add_program_facts(facts);
  facts.push_back({"the mode of the run", std::string(run_mode_name(run.options.mode))});
  facts.push_back({"replicas of a process (--num_gpus)", std::to_string(run.replicas)});
  train::add_flag_facts(run.options.flags.all, facts);
  parallel::require_same_facts(*run.device.processes, facts);
}

void require_same_model_and_data(const PreparedRun& run) {
  parallel::ProcessGroup& ranks = *run.device.processes;
  train::StartFacts facts;
  parallel::together(ranks, "looking at the data", [&] {
    facts.push_back({"the model", run.model->name});
    facts.push_back({"images a replica and step (--batch_size)", std::to_string(run.batch_size)});
    facts.push_back({"what computes the model (--executor)", run.device.executor});
    facts.push_back({"the floats of activations", at::toString(run.device.dtype)});
    facts.push_back({"the device of the replicas", run.device.accelerators.empty() ? "cpu" : "gpu"});
    add_data_facts(run, facts);
    train::add_graph_facts(run.graph, facts);
    if (run.teacher) train::add_teacher_facts(*run.teacher, facts);
  });
  parallel::require_same_facts(ranks, facts);
}

nn::Size2d size_of_first(parallel::ProcessGroup& ranks, const std::string& what,
                         const std::function<nn::Size2d()>& size) {
  const std::string text = parallel::on_first(ranks, what, [&size] {
    const nn::Size2d own = size();
    return core::BodyWriter().number(own.height).number(own.width).take();
  });
  core::BodyReader body(text);
  const int64_t height = body.number();
  return {height, body.number()};
}

int64_t smallest_of_ranks(parallel::ProcessGroup& ranks, int64_t own) {
  for (const std::string& text : ranks.gather("numbers of images", core::BodyWriter().number(own).take())) {
    own = std::min(own, core::BodyReader(text).number());
  }
  return own;
}

}  // namespace trainyard::frontends
