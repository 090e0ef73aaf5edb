#include "trainyard/frontends/paddle/program.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/training_options.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends::program {

using core::Error;
using core::ErrorCode;

namespace {

void refuse(std::string problem, const std::string& program, std::string remedy) {
  throw Error(
      ErrorCode::kInvalidArgument,
      {.problem = std::move(problem), .where = fmt::format("program '{}'", program), .remedy = std::move(remedy)});
}

// Gives the layers of ResNet50 what they start with in the example.
void start_as_paddle(nn::Graph& graph) {
  for (nn::Node& node : graph.nodes) {
    for (nn::ParameterSpec& parameter : node.parameters) {
      if (std::holds_alternative<nn::Convolution>(node.op)) {
        parameter.init = nn::Initializer::he_normal(nn::Initializer::Fan::kIn);
      } else if (std::holds_alternative<nn::Linear>(node.op)) {
        const bool weight = parameter.shape.size() == 2;
        parameter.init = weight ? nn::Initializer::uniform(1 / std::sqrt(static_cast<double>(parameter.shape[1])))
                                : nn::Initializer::zeros();
      }
    }
  }
}

// Paddle's optimizers decay every parameter that has no regularizer of its own.
void set_decay(nn::Graph& graph, bool of_batch_norms) {
  for (nn::Node& node : graph.nodes) {
    const bool norm = std::holds_alternative<nn::BatchNorm>(node.op);
    for (nn::ParameterSpec& parameter : node.parameters) parameter.decay = !norm || of_batch_norms;
  }
}

std::vector<int64_t> fed_shape(const Arguments& args) {
  std::vector<int64_t> shape = args.image_shape;
  if (args.data_layout == "NHWC") std::rotate(shape.begin(), shape.begin() + 1, shape.end());
  return shape;
}

}  // namespace

std::string AverageMeter::total() const {
  return fmt::format(fmt::runtime("{:" + format_ + "}{}"), sum_, postfix_);
}

Feeds create_feeds(const std::vector<int64_t>& image_shape) {
  Variable data{"data", {-1}, at::kFloat};
  data.shape.insert(data.shape.end(), image_shape.begin(), image_shape.end());
  return {data, {"label", {-1, 1}, at::kLong}};
}

Fetch& Fetchs::operator[](const std::string& name) {
  for (Fetch& fetch : all) {
    if (fetch.variable.name == name) return fetch;
  }
  throw core::unknown_name("fetch", name, names());
}

std::vector<std::string> Fetchs::names() const {
  std::vector<std::string> names;
  for (const Fetch& fetch : all) names.push_back(fetch.variable.name);
  return names;
}

Fetchs create_fetchs(const Variable& out, const Feeds& feeds, int64_t class_num, double label_smoothing, Mode mode) {
  if (out.shape != std::vector<int64_t>{-1, class_num}) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the model's output has no value for each class",
                                              .where = out.name,
                                              .expected = fmt::format("[-1, {}]", class_num),
                                              .actual = nn::to_string(out.shape)});
  }
  if (std::none_of(feeds.begin(), feeds.end(), [](const Variable& feed) { return feed.name == "label"; })) {
    throw Error(ErrorCode::kInvalidArgument, "a loss and accuracies need a feed 'label'");
  }
  const bool training = mode == Mode::kTrain;
  Fetchs fetchs{.label_smoothing = training ? label_smoothing : 0};
  if (!training) fetchs.all.push_back({{"label", {-1}, at::kLong}, std::nullopt});
  for (const char* name : {"loss", "top1", "top5"}) {
    fetchs.all.push_back({{name, {}, at::kFloat}, AverageMeter(name, "7.4f")});
  }
  return fetchs;
}

Strategy create_strategy(const Arguments& args, bool is_train) {
  return {.fuse_bn_act_ops = true,
          .fuse_elewise_add_act_ops = true,
          .fuse_bn_add_act_ops = true,
          .fuse_resunit = args.amp && args.fuse_resunit && is_train};
}

std::shared_ptr<LrScheduler> build_lr_scheduler(const Arguments& args, int64_t step_each_epoch) {
  const double rate = args.lr * static_cast<double>(std::max<int64_t>(1, args.trainers()));
  const int64_t warmup_epochs = std::min(args.warmup_epochs, args.epochs);
  const int64_t warmup = warmup_epochs * step_each_epoch, falling = (args.epochs - warmup_epochs) * step_each_epoch;
  optim::LearningRate schedule = falling > 0 ? optim::cosine(rate, warmup + falling, warmup) : optim::constant(rate);
  if (warmup > 0) schedule = optim::with_warmup(std::move(schedule), rate, warmup, args.warmup_start_lr);
  return std::make_shared<LrScheduler>(std::move(schedule), args.start_epoch * step_each_epoch);
}

Optimizer build_optimizer(const Arguments& args, std::shared_ptr<LrScheduler> learning_rate) {
  return {.name = "tf_momentum",
          .options = {.numbers = {{"momentum", args.momentum}}, .weight_decay = args.weight_decay},
          .learning_rate = std::move(learning_rate)};
}

Optimizer dist_optimizer(const Arguments& args, Optimizer optimizer) {
  optimizer.amp = args.amp;
  optimizer.loss_scale = {
      .scale = args.scale_loss, .automatic = args.use_dynamic_loss_scaling, .rule = optim::LossScaleRule::kPaddle};
  optimizer.strategy = create_strategy(args);
  return optimizer;
}

Program Program::clone(bool for_test) const {
  Program copy(body_->name);
  *copy.body_ = *body_;
  if (for_test) {
    copy.body_->is_train = false;
    copy.body_->optimizer.reset();
  }
  return copy;
}

Built build(const Arguments& args, Program& main_prog, Program& startup_prog, int64_t step_each_epoch, bool is_train) {
  nn::Graph network = models::build_model(
      args.model_name(), "imagenet",
      {.num_classes = args.num_of_class, .image_size = {args.image_shape.at(1), args.image_shape.at(2)}});
  if (args.model_arch_name == "ResNet50") start_as_paddle(network);
  return build(args, std::move(network), main_prog, startup_prog, step_each_epoch, is_train);
}

Built build(const Arguments& args, nn::Graph network, Program& main_prog, Program& startup_prog,
            int64_t step_each_epoch, bool is_train) {
  Program::Body& main = *main_prog.body();
  Program::Body& startup = *startup_prog.body();
  if (main_prog.built()) refuse("a program is built once", main.name, "make another Program");
  if (startup_prog.built() || main_prog == startup_prog) {
    refuse("a startup program computes nothing itself", startup.name, "make a Program for it alone");
  }
  const bool second =
      std::any_of(startup.mains.begin(), startup.mains.end(), [](const auto& m) { return m->is_train; });
  if (is_train && second) refuse("it has a training program already", startup.name, "make another startup program");

  set_decay(network, args.bn_weight_decay);
  const Variable out{network.outputs.front().name, {-1, network.output_shape().at(0)}, at::kFloat};
  const nn::Node* const last = nn::last_layer(network, network.outputs.front());
  Built built;
  built.feeds = create_feeds(fed_shape(args));
  built.fetchs =
      create_fetchs(out, built.feeds, args.num_of_class, args.label_smoothing, is_train ? Mode::kTrain : Mode::kEval);
  if (is_train) {
    built.lr_scheduler = build_lr_scheduler(args, step_each_epoch);
    built.optimizer = dist_optimizer(args, build_optimizer(args, built.lr_scheduler));
    main.strategy = built.optimizer->strategy;
  }
  main.is_train = is_train;
  main.nhwc = args.data_layout == "NHWC";
  main.zeros = args.image_shape.at(0) - network.input_shape()[0];
  main.batch_size = args.batch_size;
  main.excluded = last == nullptr ? "" : last->name;
  main.amp = args.amp;
  main.graph = std::move(network);
  main.feeds = built.feeds;
  main.fetchs = built.fetchs;
  main.optimizer = built.optimizer;
  main.startup = startup_prog.body();
  main.startup_name = startup.name;
  startup.mains.push_back(main_prog.body());
  return built;
}

Program compile_prog(const Arguments& args, const Program& program, const std::string& loss_name, bool is_train) {
  if (!program.built()) refuse("a program is compiled after it was built", program.name(), "call build() first");
  Program compiled = program.clone(/*for_test=*/false);
  if (!loss_name.empty()) compiled.body()->fetchs[loss_name];
  compiled.body()->strategy = create_strategy(args, is_train);
  return compiled;
}

}  // namespace trainyard::frontends::program
