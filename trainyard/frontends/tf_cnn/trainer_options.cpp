#include "trainyard/frontends/tf_cnn/trainer_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/tf_cnn/freezing.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/quantized_runs.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/frontends/tf_cnn/whitening.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/flags.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/position_embedding.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/model/model_description.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {
namespace {

std::optional<parallel::GradientReduction> reduction_of(const TfCnnOptions& options) {
  const std::string& name = options.update.gradient_reduction;
  if (name == "sum") return parallel::GradientReduction::kSum;
  if (name == "mean") return parallel::GradientReduction::kMean;
  if (options.device.many_processes() && options.device.horovod_reduce == "sum") {
    return parallel::GradientReduction::kSum;
  }
  return std::nullopt;
}

// Returns the names of the parameters of the layers of the outputs; none without a graph.
std::vector<std::string> output_parameters(const nn::Graph* graph) {
  return graph == nullptr ? std::vector<std::string>() : head_parameters(*graph);
}

std::optional<optim::NormClip> norm_clip_of(const UpdateOptions& asked, const nn::Graph* graph) {
  optim::NormClip clip;
  if (asked.clip_rule == "pytorch") clip.rule = optim::NormClipRule::kPyTorch;
  if (asked.clip_global_norm) {
    clip.bound = *asked.clip_global_norm;
    return clip;
  }
  if (asked.clip_norm) {
    clip.kind = optim::NormClipKind::kParameter;
    clip.bound = *asked.clip_norm;
    return clip;
  }
  if (!asked.adaptive_clip) return std::nullopt;
  clip.kind = optim::NormClipKind::kAdaptive;
  clip.bound = *asked.adaptive_clip;
  clip.excluded = output_parameters(graph);
  return clip;
}

// Returns the names of the matrices that muon updates as it does vectors; none for another optimizer.
std::vector<std::string> muon_exclude_of(const UpdateOptions& asked, const nn::Graph* graph) {
  return asked.has_muon_matrices() ? asked.muon_exclude.value_or(output_parameters(graph)) : std::vector<std::string>();
}

// Returns the groups with the names of the last layer's parameters in place of the word head.
std::vector<optim::ParameterGroup> groups_of(const UpdateOptions& asked, const nn::Graph* graph) {
  std::vector<optim::ParameterGroup> groups;
  for (const optim::ParameterGroup& group : asked.groups) {
    if (group.pattern != "head" || graph == nullptr) {
      groups.push_back(group);
      continue;
    }
    for (const std::string& name : head_parameters(*graph)) {
      groups.push_back(group);
      groups.back().pattern = name;
    }
  }
  return groups;
}

// `updates` are those of the whole training; empty: not known.
optim::OptimizerOptions optimizer_options(const UpdateOptions& asked, const nn::Graph* graph,
                                          std::optional<int64_t> updates) {
  optim::OptimizerOptions update;
  update.numbers = asked.all_numbers();
  update.weight_decay = asked.weight_decay;
  update.decoupled_decay = asked.decoupled_weight_decay;
  update.groups = groups_of(asked, graph);
  update.layer_decay = asked.layer_decay;
  update.gradient_clip = asked.gradient_clip;
  update.norm_clip = norm_clip_of(asked, graph);
  update.delayed = asked.delayed;
  update.muon_exclude = muon_exclude_of(asked, graph);
  if (asked.lookahead_steps > 0) {
    update.lookahead = {.steps = asked.lookahead_steps,
                        .alpha = asked.lookahead_alpha,
                        .final_alpha = updates ? asked.lookahead_final_alpha : std::nullopt,
                        .updates = updates.value_or(0)};
  }
  update.validate();
  return update;
}

std::optional<optim::WeightAverageOptions> average_of(const PreparedRun& run) {
  const AverageOptions& asked = run.options.average;
  optim::WeightAverageOptions average;
  if (asked.ema_decay) {
    average = {.decay = *asked.ema_decay, .warmup = asked.ema_warmup, .every = asked.average_every.value_or(1)};
  } else if (asked.swa_start_epoch) {
    const double epoch = batches_per_epoch(run);
    average = {.kind = optim::AverageKind::kEqual,
               .every = asked.average_every.value_or(std::max<int64_t>(1, std::llround(epoch))),
               .first_step = std::llround(*asked.swa_start_epoch * epoch)};
  } else {
    return std::nullopt;
  }
  average.validate();
  return average;
}

}  // namespace

namespace {

// Weights to start from, and the size of the images that they were trained on; 0: not known.
struct StartWeights {
  formats::TensorFile file;
  nn::Size2d image_size;
  std::vector<std::string> classes;  // empty: not known
};

// Opens a file, or takes the model of a checkpoint's folder or of a run, whose newest checkpoint counts. `auxiliary`:
// beginnings of names of the auxiliary classifiers that the training has; empty: it has none.
StartWeights open_start(const std::string& path, const std::string& model, std::optional<bool> averaged_weights,
                        const std::vector<std::string>& auxiliary) {
  core::FileSystem& files = core::local_file_system();
  if (!files.exists(path) || !files.info(path).is_directory || holds_tensorflow_weights(path)) {
    formats::TensorFile file = formats::open_tensor_file(path);
    const nn::Size2d size = train::image_size_in(file.metadata(), path);
    std::vector<std::string> classes = train::described_in(file.metadata(), path).classes;
    return {std::move(file), size, std::move(classes)};
  }
  TrainedModelOptions options{.path = path, .averaged_weights = averaged_weights};
  const OpenedModel opened = open_model(options);
  if (opened.identity.model != model) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the weights are of another model",
                                                          .where = opened.checkpoint.path,
                                                          .expected = model,
                                                          .actual = opened.identity.model,
                                                          .remedy = "pass --model=" + opened.identity.model});
  }
  const bool had_auxiliary = std::any_of(auxiliary.begin(), auxiliary.end(), [&](const std::string& beginning) {
    return !opened.reader->names("model/" + beginning).empty();
  });
  if (had_auxiliary && !opened.description.graph) {  // else the model would be its main output alone
    options.build = [&identity = opened.identity](models::ModelOptions wanted) {
      wanted.auxiliary_heads = true;
      return models::build_model(identity.model, identity.dataset, wanted);
    };
  }
  const TrainedModel trained = load_trained_model(opened, options);
  core::log::info("the training starts from the weights of {}", trained.checkpoint.path);
  return {train::tensor_file_of(*trained.parameters, trained.checkpoint.path),
          {trained.input.height, trained.input.width},
          trained.classes.names};
}

// Returns the parameters and statistics of the network's auxiliary classifiers, if the file has none of them: a run may
// have trained the main output alone, and some files were published without.
std::vector<std::string> new_auxiliary(const formats::TensorFile& file, const nn::Graph& graph,
                                       const std::vector<std::string>& beginnings) {
  const auto is_auxiliary = [&](const std::string& name) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const std::string& beginning) { return name.starts_with(beginning); });
  };
  std::vector<std::string> names;
  for (const formats::StoredTensor& stored : file.tensors()) {
    if (is_auxiliary(stored.name)) return names;
  }
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& each : node.parameters) {
      if (is_auxiliary(each.name)) names.push_back(each.name);
    }
    for (const nn::BufferSpec& each : node.buffers) {
      if (is_auxiliary(each.name)) names.push_back(each.name);
    }
  }
  return names;
}

std::function<void(nn::ParameterSet&)> initial_weights(const PreparedRun& run) {
  if (const std::string& backbone = run.options.backbone_model_path; !backbone.empty() && run.device.is_chief()) {
    return [backbone, graph = run.graph](nn::ParameterSet& parameters) {
      const int64_t tensors = train::load_tensorflow_backbone(backbone, graph, parameters);
      core::log::info("the backbone begins with {} tensors of {}", tensors, backbone);
    };
  }
  auto whitening = make_whitening(run);
  if (!run.device.is_chief()) return {};  // the others begin as rank 0
  if (run.options.weights.empty()) return whitening;
  return [path = run.options.weights, model = run.model->name, averaged = run.options.average.averaged_weights,
          classes = run.num_classes, graph = run.graph, fine_tunes = run.options.fine_tune.has_value(),
          names = run.classes.names, has_auxiliary = run.options.auxiliary_heads,
          auxiliary = run.model->auxiliary](nn::ParameterSet& parameters) {
    const StartWeights start =
        open_start(path, model, averaged, has_auxiliary ? auxiliary : std::vector<std::string>());
    const formats::TensorFile file = train::named_for_graph(start.file, graph);
    // A head that a fine-tuning keeps is for the same classes in the same order.
    const bool same_classes = !start.classes.empty() && start.classes == names;
    std::vector<std::string> new_head =
        fine_tunes && !same_classes ? head_parameters(graph) : std::vector<std::string>();
    if (has_auxiliary) {
      const std::vector<std::string> all = new_auxiliary(file, graph, auxiliary);
      new_head.insert(new_head.end(), all.begin(), all.end());
    }
    const train::LoadedWeights loaded =
        train::load_weights(file, parameters, classes, train::position_grids(graph, start.image_size), new_head);
    const std::string heads = fmt::format("{}", fmt::join(loaded.head, ", "));
    if (fine_tunes) {
      core::log::info("{} tensors are taken from {}; new, for {} classes: {}", loaded.tensors, path, classes,
                      heads.empty() ? "none, since the weights are for these classes" : heads);
    } else if (loaded.file_classes > 0) {
      core::log::warning("{} is for {} classes: the head is new, for {} ({})", path, loaded.file_classes, classes,
                         heads);
    } else if (!loaded.head.empty()) {
      core::log::warning("{} gives no auxiliary classifiers: they begin with new values ({})", path, heads);
    }
  };
}

}  // namespace

std::function<void(nn::ParameterSet&)> make_start(const PreparedRun& run) {
  return with_training_scales(run, initial_weights(run));
}

int64_t recalibration_batches(const PreparedRun& run) {
  const AverageOptions& asked = run.options.average;
  const bool has_norms = std::any_of(run.graph.nodes.begin(), run.graph.nodes.end(), [](const nn::Node& node) {
    return std::holds_alternative<nn::BatchNorm>(node.op);
  });
  const int64_t wanted = asked.recalibrate_batch_norm.value_or(0);
  if (wanted > 0 && !has_norms) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "there are no batch norms to recalibrate",
                                                          .where = run.model->name,
                                                          .remedy = "leave --recalibrate_batch_norm out"});
  }
  const bool stale = asked.swa_start_epoch || run.options.update.is_schedule_free();
  // A quantization-aware training does not change statistics.
  if (asked.recalibrate_batch_norm || !stale || !has_norms || run.options.qat) return wanted;
  constexpr int64_t kBatches = 200;  // fvcore's default
  return std::clamp<int64_t>(std::llround(batches_per_epoch(run)), 1, kBatches);
}

optim::MakeOptimizer make_optimizer(const TfCnnOptions& options, const nn::Graph* graph,
                                    std::optional<int64_t> updates) {
  return [name = optim::optimizer_of_flag(options.update.optimizer),
          update = optimizer_options(options.update, graph, updates)](nn::ParameterSet& parameters) {
    return optim::optimizers().get(name)(parameters, update);
  };
}

void check_served_update(const TfCnnOptions& options) {
  const auto refuse = [](bool holds, const std::string& what, const char* remedy) {
    if (!holds) return;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = what + " does not work with parameter servers", .remedy = remedy});
  };
  const UpdateOptions& update = options.update;
  const bool several = options.device.cluster.ps_hosts.size() > 1;
  refuse(update.lookahead_final_alpha.has_value(),
         "--lookahead_final_alpha, whose servers do not know the number of steps,", "leave it out");
  refuse(update.adaptive_clip.has_value(), "--adaptive_clip", "use --clip_norm or --gradient_clip");
  refuse(update.sam_rho > 0, "--sam_rho, whose gradients servers would complete for a second time,",
         "leave it out, or train with --variable_update=horovod");
  refuse(several && (update.clip_norm || update.clip_global_norm), "a clip by norms over several servers",
         "start one server, or use --gradient_clip");
  refuse(options.fine_tune.has_value(), "--finetune", "fine-tune in one process, or with --variable_update=horovod");
  refuse(options.qat, "--qat", "train in one process, or with --variable_update=horovod");
  refuse(update.sparsity.has_value(), "--asp", "prune in one process, or with --variable_update=horovod");
  refuse(update.is_schedule_free(),
         fmt::format("--optimizer={}, whose server alone knows what is evaluated,", update.optimizer),
         "use --variable_update=horovod");
  refuse(several && (update.optimizer == "lars" || update.optimizer == "lamb"),
         fmt::format("--optimizer={}, which needs norms of whole parameters, over several servers", update.optimizer),
         "start one server");
  refuse(several && update.has_muon_matrices(),
         fmt::format("--optimizer={}, which needs whole matrices, over several servers", update.optimizer),
         "start one server");
  refuse(std::any_of(update.groups.begin(), update.groups.end(),
                     [](const optim::ParameterGroup& group) { return group.pattern == "head"; }),
         "--parameter_groups=head:..., whose servers do not know the layer of the output,",
         "name it on all of them: --parameter_groups=LAYER.*:...");
  refuse(update.has_muon_matrices() && !update.muon_exclude,
         fmt::format("--optimizer={}, whose servers do not know the layer of the output,", update.optimizer),
         "name it on all of them: --muon_exclude=LAYER");
}

train::TowerTrainerOptions make_trainer_options(const PreparedRun& run) {
  const UpdateOptions& asked = run.options.update;
  train::TowerTrainerOptions options;
  options.graph = run.graph;
  options.devices = run.device;
  options.devices.replicas = run.replicas;
  options.on_nan = asked.on_nan;
  options.micro_steps = run.options.micro_steps;
  options.threads.intra_op_threads = run.threads.intra_op_threads;
  options.threads.placement = run.threads.replica;
  options.seed = run.input.seed;
  options.start = make_start(run);
  options.exchange.variable_update = run.options.device.staged_vars ? "staged_parameter_server"
                                     : run.own_pace()               ? "asynchronous"
                                                                    : run.options.device.variable_update;
  options.exchange.reduction = reduction_of(run.options);
  options.exchange.packing = gradient_packing(run.options.device);
  options.exchange.sharded_update = sharding_use(run.options.device);
  options.exchange.compression = gradient_compression(run.options.device);
  options.exchange.sync_batch_norm = run.options.device.sync_batch_norm;
  RunSchedule schedule = make_schedule(run);
  options.learning_rate = std::move(schedule.learning_rate);
  if (schedule.momentum) options.schedules = {{{"momentum", "beta1"}, std::move(schedule.momentum)}};
  if (asked.sam_rho > 0) options.sharpness_aware = optim::SharpnessAwareOptions{.rho = asked.sam_rho};
  if (run.device.servers != nullptr) check_served_update(run.options);
  options.make_optimizer = make_optimizer(run.options, &run.graph, updates_of(run));
  options.average = average_of(run);
  options.other_sizes = run.other_sizes;
  options.loss = task_of(run).loss(run);
  if (run.teacher) options.loss = train::distilled(options.loss, *run.teacher, run.options.distillation.loss);
  return options;
}

}  // namespace trainyard::frontends
