// Programs and their numbers: against PaddlePaddle itself and against the formulas in PyTorch's float64
// (tools/golden/program_steps.py), and against each other.
#include "trainyard/frontends/paddle/program.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::program::program_test {
namespace {

constexpr int64_t kBatch = 6, kClasses = 7, kSide = 6;

std::vector<std::vector<std::string>> golden_lines(const std::string& name) {
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/frontends/testdata/" + name)));
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    if (!cells.empty() && cells[0] != "#") lines.push_back(cells);
  }
  return lines;
}

at::Tensor sines(at::IntArrayRef shape, double frequency, double phase, double size, double mean = 0) {
  return at::arange(c10::multiply_integers(shape), at::kDouble)
      .mul(frequency)
      .add(phase)
      .sin()
      .mul(size)
      .add(mean)
      .reshape(shape);
}

// The network of tools/golden/program_steps.py.
nn::Graph network() {
  nn::GraphBuilder b({.image = {3, kSide, kSide}, .name = "small"});
  const nn::Convolution convolution{.out_channels = 4, .kernel = 3, .padding = nn::Padding::all(1)};
  const auto h = b.activation("relu1", b.batch_norm("bn1", b.convolution("conv1", b.input(), convolution)));
  const auto sum = b.add("add", {b.batch_norm("bn2", b.convolution("conv2", h, convolution)), h});
  return b.build(b.linear("fc", b.global_average_pool("pool", b.activation("relu2", sum)), {.out_features = kClasses}));
}

Arguments small_arguments() {
  Arguments args;
  args.image_shape = {3, kSide, kSide};
  args.batch_size = kBatch;
  args.num_of_class = kClasses;
  args.epochs = 5;
  args.warmup_epochs = 2;
  args.warmup_start_lr = 0.01;
  args.weight_decay = 64 * std::exp2(-15);
  args.places = {"cpu:0"};
  return args;
}

Feed feed_of(int64_t step, at::ScalarType dtype = at::kDouble) {
  const at::Tensor images =
      sines({kBatch, 3, kSide, kSide}, 0.7 + 0.01 * static_cast<double>(step), 0.3 * static_cast<double>(step), 1);
  return {{"data", images.to(dtype)}, {"label", at::arange(kBatch).mul(3).add(step).remainder(kClasses).unsqueeze(1)}};
}

// A training and an evaluation of the small network, with the weights that the script begins with.
struct Small {
  explicit Small(Arguments arguments = small_arguments(), at::ScalarType dtype = at::kDouble)
      : args(std::move(arguments)), exe(args.places, {.dtype = dtype, .intra_op_threads = 1}) {
    training = build(args, network(), train, startup, /*step_each_epoch=*/4, /*is_train=*/true);
    evaluation = build(args, network(), eval, startup, 1, /*is_train=*/false);
    for (Program* program : {&train, &eval}) program->body()->feeds[0].dtype = dtype;
    exe.run(startup);
    exe.trainer(train).change_parameters([](nn::ParameterSet& set) {
      int index = 0;
      for (const char* name : {"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias",
                               "fc.weight", "fc.bias"}) {
        const at::Tensor value = set.value(*set.find(name));
        const double mean = std::string(name).starts_with("bn") && std::string(name).ends_with("weight") ? 1 : 0;
        value.copy_(sines(value.sizes(), 1.1 + 0.1 * index, 0.5 * index, 0.4, mean));
        ++index;
      }
      set.values_changed();
    });
  }

  std::vector<double> step(const Feed& feed, const std::vector<std::string>& fetches = {"loss", "top1", "top5"}) {
    std::vector<double> values;
    for (const at::Tensor& value : exe.run(train, feed, fetches)) values.push_back(value.item<double>());
    training.lr_scheduler->step();
    return values;
  }
  at::Tensor value(const char* name) { return exe.scope().value(*exe.scope().find(name)); }

  Arguments args;
  Program startup{"startup"}, train{"train"}, eval{"eval"};
  Built training, evaluation;
  Executor exe;
};

class ProgramSteps : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramSteps, AreThoseOfTheOriginal) {
  Small small;
  constexpr double kTolerance = 1e-11;
  int64_t steps = 0, parameters = 0;
  for (const std::vector<std::string>& line : golden_lines(GetParam())) {
    if (line.size() == 5) {
      EXPECT_NEAR(small.training.lr_scheduler->get_lr(), std::stod(line[1]), 1e-15) << steps;
      const std::vector<double> values = small.step(feed_of(steps));
      EXPECT_NEAR(values[0], std::stod(line[2]), kTolerance) << "the loss of step " << steps;
      EXPECT_NEAR(values[1], std::stod(line[3]), 1e-15) << "top1 of step " << steps;
      EXPECT_NEAR(values[2], std::stod(line[4]), 1e-15) << "top5 of step " << steps;
      ++steps;
    } else {
      const at::Tensor value = small.value(line.at(0).c_str());
      EXPECT_NEAR(value.sum().item<double>(), std::stod(line.at(1)), 100 * kTolerance) << line[0];
      EXPECT_NEAR(value.mul(value).sum().item<double>(), std::stod(line.at(2)), 100 * kTolerance) << line[0];
      ++parameters;
    }
  }
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(parameters, 8);
}

INSTANTIATE_TEST_SUITE_P(Originals, ProgramSteps,
                         ::testing::Values("program_steps_torch.txt", "program_steps_paddle.txt"),
                         [](const auto& file) { return std::string(file.param).substr(14, 5); });

TEST(LrScheduler, HasPaddlesRatesOverNinetyEpochs) {
  int rates = 0;
  for (const std::vector<std::string>& line : golden_lines("program_rates.txt")) {
    Arguments args;
    args.warmup_start_lr = std::stod(line.at(0));
    const int64_t step = std::stoll(line.at(1));
    args.start_epoch = step / 7;
    const auto scheduler = build_lr_scheduler(args, 7);
    EXPECT_EQ(scheduler->last_step(), step / 7 * 7) << "an epoch's first step";
    for (int64_t s = scheduler->last_step(); s < step; ++s) scheduler->step();
    EXPECT_NEAR(scheduler->get_lr(), std::stod(line.at(2)), 1e-12) << step;
    ++rates;
  }
  EXPECT_EQ(rates, 106);
  // The formula itself, of two places.
  Arguments args;
  args.places = {"cpu:0", "cpu:1"};
  const auto scheduler = build_lr_scheduler(args, 11);
  const double lr = 2 * 0.256, pi = std::acos(-1.0);
  for (int64_t s = 0; s < 90 * 11; ++s, scheduler->step()) {
    const double wanted = s < 55 ? lr * static_cast<double>(s) / 55
                                 : lr / 2 * (1 + std::cos(pi * static_cast<double>(s - 55) / (85 * 11)));
    ASSERT_NEAR(scheduler->get_lr(), wanted, 1e-12) << s;
  }
  args.epochs = 3;  // shorter than the warm-up
  EXPECT_DOUBLE_EQ(build_lr_scheduler(args, 10)->get_lr(), 0);
  args.start_epoch = 3;
  EXPECT_DOUBLE_EQ(build_lr_scheduler(args, 10)->get_lr(), lr);
}

TEST(AverageMeter, WeightsByTheBatch) {
  AverageMeter meter("batch_time", ".5f", " s,");
  meter.update(0.5, 3);
  meter.update(2.0, 1);
  EXPECT_EQ(meter.val(), 2.0);
  EXPECT_EQ(meter.sum(), 3.5);
  EXPECT_EQ(meter.count(), 4);
  EXPECT_EQ(meter.avg(), 0.875);
  EXPECT_EQ(meter.total(), "3.50000 s,");
  meter.reset();
  EXPECT_EQ(meter.avg() + meter.sum() + meter.val() + static_cast<double>(meter.count()), 0);
}

TEST(Program, TrainingAndEvaluationShareParametersByName) {
  Small small;
  const Feed feed = feed_of(0);
  const Program compiled = compile_prog(small.args, small.eval, "loss", /*is_train=*/false);
  const double before = small.exe.run(small.eval, feed, {"loss"})[0].item<double>();
  small.step(feed_of(1));
  small.step(feed_of(2));
  const std::vector<at::Tensor> after = small.exe.run(small.eval, feed, {"label", "loss", "top1"});
  EXPECT_NE(after[1].item<double>(), before);
  EXPECT_NEAR(small.exe.run(compiled, feed, {"loss"})[0].item<double>(), after[1].item<double>(), 1e-12);
  // top1 is the share of samples whose label is the class they are taken for.
  EXPECT_EQ(after[2].item<double>(), after[0].eq(feed["label"].squeeze(1)).to(at::kDouble).mean().item<double>());
  EXPECT_EQ(small.evaluation.lr_scheduler, nullptr);
  EXPECT_FALSE(small.evaluation.optimizer.has_value());
  EXPECT_THAT(small.training.fetchs.names(), testing::ElementsAre("loss", "top1", "top5"));
  EXPECT_THAT(small.evaluation.fetchs.names(), testing::ElementsAre("label", "loss", "top1", "top5"));
  EXPECT_FALSE(small.evaluation.fetchs["label"].meter.has_value());
  // A copy for tests neither trains nor moves statistics.
  const at::Tensor weights = small.exe.scope().values().clone();
  small.exe.run(small.train.clone(/*for_test=*/true), feed, {"loss"});
  EXPECT_TRUE(small.exe.scope().values().equal(weights));
}

TEST(Program, SaysWhatCameInTheWrongOrder) {
  const Arguments args = small_arguments();
  Program startup("init"), train("main"), eval("test");
  Executor exe;
  const auto problem = [](const std::function<void()>& call) { return core::message_of(call); };
  EXPECT_EQ(problem([&] { exe.run(startup); }),
            "a startup program that initializes nothing: program 'init'; call build() with it first");
  EXPECT_EQ(problem([&] { exe.run(train, feed_of(0), {"loss"}); }),
            "a program runs after it was built: program 'main'; call build() first");
  EXPECT_EQ(problem([&] { compile_prog(args, train); }),
            "a program is compiled after it was built: program 'main'; call build() first");
  EXPECT_EQ(problem([&] { exe.scope(); }), "there are no parameters yet; run a startup program first");
  build(args, network(), train, startup, 4);
  EXPECT_EQ(problem([&] { exe.run(train, feed_of(0), {"loss"}); }),
            "its startup program 'init' has not run: program 'main'; run that with this Executor first");
  Program ready("ready");
  build(args, network(), ready, startup, 1, /*is_train=*/false);
  EXPECT_EQ(problem([&] { exe.run(ready, feed_of(0), {"loss"}); }),
            "its startup program 'init' has not run: program 'ready'; run that with this Executor first");
  EXPECT_EQ(problem([&] { build(args, network(), train, startup, 4); }),
            "a program is built once: program 'main'; make another Program");
  EXPECT_EQ(problem([&] { build(args, network(), eval, startup, 4); }),
            "it has a training program already: program 'init'; make another startup program");
  EXPECT_EQ(problem([&] { exe.run(train); }),
            "it is no startup program: program 'main'; run it with a feed and a list of what to fetch");
  exe.run(startup);
  EXPECT_EQ(problem([&] { exe.run(startup); }),
            "a startup program runs once: program 'init'; leave the second run out");
  EXPECT_EQ(core::message_of([&] { compile_prog(args, train, "lass"); }, core::ErrorCode::kNotFound),
            "unknown fetch 'lass'; did you mean 'loss'? known: loss, top1, top5");
}

TEST(Program, OneOfAnEvaluationDoesNotTrain) {
  Small small;
  EXPECT_EQ(core::message_of([&] { static_cast<void>(small.exe.trainer(small.eval)); }),
            "it does not train: program 'eval'");
  EXPECT_EQ(small.exe.trainer(small.train).global_step(), 0);
}

// What is measured of kernels on one executor's shapes does not decide for another.
TEST(Program, EachExecutorHasKernelChoicesOfItsOwn) {
  const Executor first({"cpu:0"}), second({"cpu:0"});
  EXPECT_TRUE(first.device().kernels.choices != nullptr);
  EXPECT_TRUE(second.device().kernels.choices != nullptr);
  EXPECT_TRUE(first.device().kernels.choices != second.device().kernels.choices);
}

TEST(Program, ChecksItsFeeds) {
  Small small(small_arguments(), at::kFloat);
  const Feed good = feed_of(0, at::kFloat);
  const auto message = [&](const Feed& feed, const std::vector<std::string>& fetches = {"loss"}) {
    const std::optional<core::Error> error = core::error_of([&] { small.exe.run(small.train, feed, fetches); });
    return error ? std::string(error->what()) : "";
  };
  EXPECT_EQ(message({{"data", good["data"]}}),
            "a batch lacks a tensor: program 'train', tensor 'label': expected Long [-1, 1], got just 'data'");
  EXPECT_EQ(message({{"data", good["data"].to(at::kDouble)}, {"label", good["label"]}}),
            "a tensor of a batch has another form: program 'train', tensor 'data': expected Float [-1, 3, 6, 6], got "
            "Double [6, 3, 6, 6]");
  EXPECT_EQ(
      message({{"data", good["data"]}, {"label", good["label"].squeeze(1)}}),
      "a tensor of a batch has another form: program 'train', tensor 'label': expected Long [-1, 1], got Long [6]");
  EXPECT_EQ(message({{"data", good["data"].narrow(0, 0, 4)}, {"label", good["label"]}}),
            "the feeds have different numbers of samples: program 'train', tensor 'label': expected 4, got 6");
  EXPECT_NE(message(good, {"los"}).find("loss"), std::string::npos) << message(good, {"los"});
  EXPECT_EQ(message(good), "") << "nothing has changed by what was refused";
}

TEST(Program, FeedsInOtherLayoutsGiveTheSame) {
  Small plain;
  const std::vector<double> expected = plain.step(feed_of(0));
  Arguments args = small_arguments();
  args.data_layout = "NHWC";
  args.image_shape = {4, kSide, kSide};
  Small padded(args);
  const Feed feed = feed_of(0);
  const at::Tensor zeros = at::zeros({kBatch, 1, kSide, kSide}, at::kDouble);
  const auto nhwc = [&](const at::Tensor& fourth) -> Feed {
    return {{"data", at::cat({feed["data"], fourth}, 1).permute({0, 2, 3, 1})}, {"label", feed["label"]}};
  };
  EXPECT_EQ(core::problem_of([&] { padded.step(nhwc(zeros.add(0.5))); }), "its last channel pads, and is not zero");
  EXPECT_EQ(padded.step(nhwc(zeros)), expected);
  EXPECT_TRUE(padded.exe.scope().values().equal(plain.exe.scope().values()));
}

TEST(Program, TwoPlacesShareAFeed) {
  Small one;
  Arguments args = small_arguments();
  args.places = {"cpu:0", "cpu:1"};
  args.batch_size = kBatch / 2;
  args.lr /= 2;  // it counts the places
  Small two(args);
  EXPECT_EQ(core::problem_of([&] {
              const Feed feed = feed_of(0);
              two.step({{"data", feed["data"].narrow(0, 0, 5)}, {"label", feed["label"].narrow(0, 0, 5)}});
            }),
            "the places cannot share its samples");
  for (Small* small : {&one, &two}) small->training.lr_scheduler->seek(8);
  // Batch norms see half a batch each: the images of both halves are the same.
  Feed feed = feed_of(3);
  feed.set("data", at::cat({feed["data"].narrow(0, 0, 3), feed["data"].narrow(0, 0, 3)}));
  EXPECT_NEAR(two.step(feed)[0], one.step(feed)[0], 1e-13);
  EXPECT_LT(two.exe.scope().values().sub(one.exe.scope().values()).abs().max().item<double>(), 1e-13);
}

TEST(Program, BatchNormsDecayWhereTheyAreAsked) {
  const auto decays = [](bool asked, const char* name) {
    Arguments args = small_arguments();
    args.bn_weight_decay = asked;
    Program startup("startup"), train("train");
    build(args, network(), train, startup, 4);
    const nn::Graph& graph = train.body()->graph;
    return graph.node(name).parameters.at(0).decay;
  };
  EXPECT_TRUE(decays(false, "conv1") && decays(false, "fc") && decays(true, "bn1"));
  EXPECT_FALSE(decays(false, "bn1"));
}

// The scale is float's, whatever the activations are.
TEST(Program, AmpScalesTheLossAsPaddleDoes) {
  Arguments args = small_arguments();
  args.amp = args.use_dynamic_loss_scaling = true;
  args.scale_loss = std::exp2(127);
  Small small(args, at::kFloat);
  // The smaller the weights in front of a batch norm are, the larger are their gradients: infinite under this scale.
  small.exe.trainer(small.train).change_parameters([](nn::ParameterSet& set) {
    for (const char* name : {"conv1.weight", "conv2.weight"}) set.value(*set.find(name)).mul_(0.02);
    set.values_changed();
  });
  EXPECT_EQ(small.exe.device().dtype, core::cpu_has_avx512_bf16() ? at::kBFloat16 : at::kFloat);
  const at::Tensor weights = small.exe.scope().values().clone();
  const double scale = std::exp2(127);
  for (const double wanted : {scale, static_cast<double>(static_cast<float>(scale * 0.8))}) {
    small.step(feed_of(0, at::kFloat));
    EXPECT_EQ(small.exe.trainer(small.train).loss_scale()->scale, wanted) << "lower after two bad steps";
    EXPECT_TRUE(small.exe.scope().values().equal(weights)) << "a bad step changes nothing";
  }
  args.scale_loss = 128;
  Small good(args, at::kFloat);
  good.training.lr_scheduler->seek(8);
  Small exact;
  exact.training.lr_scheduler->seek(8);
  EXPECT_NEAR(good.step(feed_of(0, at::kFloat))[0], exact.step(feed_of(0))[0], 0.02);
  EXPECT_LT(good.exe.scope().values().sub(exact.exe.scope().values()).abs().max().item<double>(), 0.02);
  EXPECT_EQ(good.exe.trainer(good.train).loss_scale()->scale, 128);
}

TEST(Program, PruningHoldsInSteps) {
  for (const std::string algorithm : {"mask_1d", "mask_2d_greedy", "mask_2d_best"}) {
    Small small(small_arguments(), at::kFloat);
    prune_model(small.exe, small.train, algorithm);
    small.training.lr_scheduler->seek(8);
    for (int64_t step = 0; step < 3; ++step) small.step(feed_of(step, at::kFloat));
    EXPECT_TRUE(optim::is_two_of_four(small.value("conv2.weight"))) << algorithm;
    EXPECT_FALSE(small.exe.scope().mask(*small.exe.scope().find("conv1.weight")).defined()) << "three inputs";
    EXPECT_FALSE(small.exe.scope().mask(*small.exe.scope().find("fc.weight")).defined()) << "the layer of the logits";
  }
}

class SlowSource : public data::SourceDecorator {
 public:
  explicit SlowSource(std::shared_ptr<data::BatchSource> source) : SourceDecorator(std::move(source)) {}
  std::vector<data::Batch> next() override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    return source()->next();
  }
};

// The first one makes the kernels. A rank that hangs in a later one was noticed after the start's deadline.
TEST(Program, TheFirstEvaluationAloneHasTheTimeOfAFirstStep) {
  const uint16_t port = parallel::free_port();
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [rank, port] {
      const auto group = std::make_shared<parallel::ProcessGroup>(
          parallel::ProcessRank{.rank = rank, .size = 2, .master_port = port},
          parallel::ProcessGroupOptions{
              .deadlines = {.start = std::chrono::seconds(60), .step = std::chrono::milliseconds(300)}});
      const Arguments args = small_arguments();
      Program startup{"startup"}, eval{"eval"};
      Executor exe(train::OpenDevices{.processes = group}, {.intra_op_threads = 1});
      Built evaluation = build(args, network(), eval, startup, 1, /*is_train=*/false);
      exe.run(startup);
      std::shared_ptr<data::BatchSource> source = std::make_shared<data::SyntheticSource>(data::SyntheticOptions{
          .batch_size = kBatch, .height = kSide, .width = kSide, .classes = kClasses + 1, .epoch_size = kBatch});
      if (rank == 1) source = std::make_shared<SlowSource>(source);
      const Loader loader(source, /*steps=*/1);
      std::ostringstream out;
      Report report(out, "");
      const auto evaluate = [&] {
        return run(args, loader, exe, eval, evaluation.fetchs, 0, Mode::kEval, nullptr, report);
      };
      EXPECT_FALSE(evaluate().empty()) << rank;
      try {
        static_cast<void>(evaluate());
        EXPECT_EQ(rank, 1) << "the step's deadline was over";
      } catch (const core::Error&) {  // the other rank hears of it
      }
      group->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

TEST(Fetchs, NeedAnOutputForEachClass) {
  EXPECT_EQ(core::message_of([] {
              create_fetchs({"logits", {-1, 5}}, create_feeds({3, 8, 8}), 7);
            }),
            "the model's output has no value for each class: logits: expected [-1, 7], got [-1, 5]");
  EXPECT_EQ(core::problem_of([] {
              create_fetchs({"logits", {-1, 7}}, {}, 7);
            }),
            "a loss and accuracies need a feed 'label'");
}

}  // namespace
}  // namespace trainyard::frontends::program::program_test
