// Programs of a static graph, as in PaddlePaddle: the computation of a training or an evaluation is declared first,
// then run by an Executor (executor.h).
//
//   Program startup("startup"), main("train");
//   Built train = build(args, main, startup, loader.steps(), /*is_train=*/true);
//   Executor exe(args.places);
//   exe.run(startup);                                             // initializes the parameters, once
//   exe.run(main, {{"data", images}, {"label", labels}}, {"loss", "top1"});
//
// A training and an evaluation program that were built with one startup program share parameters by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/paddle/arguments.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/optim/schedules/learning_rate.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

// A running sum, mean and last value of a number.
class AverageMeter {
 public:
  // `format` is the format specification of the value: "7.4f".
  explicit AverageMeter(std::string name = "", std::string format = "f", std::string postfix = "")
      : name_(std::move(name)), format_(std::move(format)), postfix_(std::move(postfix)) {}

  void reset() { val_ = avg_ = sum_ = 0, count_ = 0; }
  // Adds a value for `n` samples.
  void update(double value, int64_t n = 1) {
    val_ = value;
    sum_ += value * static_cast<double>(n);
    count_ += n;
    avg_ = sum_ / static_cast<double>(count_);
  }

  const std::string& name() const { return name_; }
  double val() const { return val_; }  // the last one
  double avg() const { return avg_; }
  double sum() const { return sum_; }
  int64_t count() const { return count_; }
  // Returns the sum as text, with the postfix: "12.34567 s,".
  [[nodiscard]] std::string total() const;

 private:
  std::string name_, format_, postfix_;
  double val_ = 0, avg_ = 0, sum_ = 0;
  int64_t count_ = 0;
};

// A value of a program.
struct Variable {
  std::string name{};
  std::vector<int64_t> shape{};  // -1: any extent
  at::ScalarType dtype = at::kFloat;
};

using Feeds = std::vector<Variable>;
// Returns "data", float32 [-1] + image_shape, and "label", int64 [-1, 1].
[[nodiscard]] Feeds create_feeds(const std::vector<int64_t>& image_shape);

struct Fetch {
  Variable variable{};
  std::optional<AverageMeter> meter{};
};
// The results of a program's run, in this order, with a meter for values that are averaged over an epoch. Copies have
// meters of their own.
struct Fetchs {
  std::vector<Fetch> all{};
  double label_smoothing = 0;  // of "loss"
  // Throws kNotFound with the nearest name.
  Fetch& operator[](const std::string& name);
  std::vector<std::string> names() const;
};
// Returns "loss", "top1" and "top5" of the logits `out`, [-1, class_num]; in evaluation also "label", int64 [-1], the
// predicted class of each sample, without a meter. The training's loss is cross-entropy with targets smoothed by
// `label_smoothing`, evenly over all classes; that of an evaluation is not smoothed. Throws kInvalidArgument for an
// `out` of another shape or without a feed "label".
[[nodiscard]] Fetchs create_fetchs(const Variable& out, const Feeds& feeds, int64_t class_num,
                                   double label_smoothing = 0, Mode mode = Mode::kTrain);

// Which operations are fused.
struct Strategy {
  bool fuse_bn_act_ops = false;           // batch norm + activation
  bool fuse_elewise_add_act_ops = false;  // add + activation
  bool fuse_bn_add_act_ops = false;       // batch norm + add + activation
  bool fuse_resunit = false;              // convolution + batch norm + add + activation, forward and back
  // Returns the name of the executor (nn::executors()): "cpu" fuses all of it, "reference" runs layer after layer.
  [[nodiscard]] std::string executor() const {
    return fuse_bn_act_ops || fuse_elewise_add_act_ops || fuse_bn_add_act_ops || fuse_resunit ? "auto" : "reference";
  }
};
// The example fuses with AMP alone, because only cuDNN's 16-bit kernels do; here 32-bit floats gain as much, so fusion
// does not depend on AMP.
Strategy create_strategy(const Arguments& args, bool is_train = true);

// A schedule with its current step. A training reads the rate in each step; only step() advances it.
class LrScheduler {
 public:
  explicit LrScheduler(optim::LearningRate rate, int64_t step = 0) : rate_(std::move(rate)), step_(step) {}
  double get_lr() const { return rate_(step_); }
  void step() { ++step_; }
  void seek(int64_t step) { step_ = step; }
  int64_t last_step() const { return step_; }

 private:
  optim::LearningRate rate_;
  int64_t step_;
};
// Returns a linear warm-up from warmup_start_lr over warmup_epochs, then a cosine to 0 at the last step, at the first
// step of args.start_epoch. The rate is args.lr times the number of trainers. The warm-up is at most as long as the
// training; without a decay after it the rate is constant.
[[nodiscard]] std::shared_ptr<LrScheduler> build_lr_scheduler(const Arguments& args, int64_t step_each_epoch);

struct Optimizer {
  std::string name = "tf_momentum";  // of optim::optimizers(): v = m v + g + weight_decay w; w -= lr v
  optim::OptimizerOptions options{};
  std::shared_ptr<LrScheduler> learning_rate{};
  // Set by dist_optimizer().
  bool amp = false;
  optim::LossScalerOptions loss_scale{};  // with amp
  Strategy strategy{};
};
Optimizer build_optimizer(const Arguments& args, std::shared_ptr<LrScheduler> learning_rate);
// Returns the optimizer with 16-bit floats and Paddle's loss scale, if the arguments request them, and the strategy of
// a training. Gradients are always averaged over the executor's places, and pruned weights always keep their zeros.
[[nodiscard]] Optimizer dist_optimizer(const Arguments& args, Optimizer optimizer);

// A program is a handle: copies are the same program.
class Program {
 public:
  struct Body {
    std::string name{};
    bool is_train = false;
    nn::Graph graph{};  // without nodes before build()
    Feeds feeds{};
    Fetchs fetchs{};
    bool nhwc = false;       // of the feed "data"
    int64_t zeros = 0;       // channels of "data" after those of the graph, filled with zeros
    int64_t batch_size = 0;  // a place
    std::string excluded{};  // excluded from pruning: the layer of the logits
    std::optional<Optimizer> optimizer{};
    bool amp = false;
    std::optional<Strategy> strategy{};  // unset before compile_prog()
    std::weak_ptr<Body> startup{};       // startup program, which initializes its parameters and owns this
    std::string startup_name{};
    std::vector<std::shared_ptr<Body>> mains{};  // for a startup program: the programs that it initializes
  };

  explicit Program(std::string name) : body_(std::make_shared<Body>()) { body_->name = std::move(name); }
  const std::string& name() const { return body_->name; }
  bool is_startup() const { return !body_->mains.empty(); }
  bool built() const { return !body_->graph.nodes.empty(); }
  // Returns a separate program that computes the same, without the optimizer.
  [[nodiscard]] Program clone(bool for_test = true) const;
  const std::shared_ptr<Body>& body() const { return body_; }
  bool operator==(const Program&) const = default;

 private:
  std::shared_ptr<Body> body_;
};

struct Built {
  Fetchs fetchs{};
  std::shared_ptr<LrScheduler> lr_scheduler{};  // null in an evaluation program
  Feeds feeds{};
  std::optional<Optimizer> optimizer{};  // none in an evaluation program
};
// Builds feeds, model, fetches and, for a training, the optimizer into main_prog, whose parameters startup_prog will
// initialize. Throws kInvalidArgument for a program that was built before, and for a second training program.
Built build(const Arguments& args, Program& main_prog, Program& startup_prog, int64_t step_each_epoch,
            bool is_train = true);
// Does the same with a network of the caller.
Built build(const Arguments& args, nn::Graph network, Program& main_prog, Program& startup_prog,
            int64_t step_each_epoch, bool is_train = true);

// Returns the program with fused operators, which computes the same faster. Throws kInvalidArgument for a program that
// was not built, and for a loss_name that it does not have.
[[nodiscard]] Program compile_prog(const Arguments& args, const Program& program, const std::string& loss_name = "",
                                   bool is_train = true);

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
