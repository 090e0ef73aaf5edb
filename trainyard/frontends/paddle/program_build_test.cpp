// What build(), clone() and compile_prog() put into a program, what an executor starts with, and the results of a
// training over ranks.
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/program.h"
#include "trainyard/parallel/collectives/process_engine.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/testing/memory_source.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::program::program_build_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

constexpr int64_t kClasses = 6;

// Images of another height than width, and an auxiliary output behind a layer of its own.
nn::Graph two_outputs() {
  nn::GraphBuilder b({.image = {3, 5, 7}, .name = "two"});
  const auto x = b.global_average_pool(
      "pool", b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)}));
  const auto side = b.linear("side", x, {.out_features = 4});
  return b.build(b.linear("fc", x, {.out_features = kClasses}), {{"auxiliary", side.id, 0.25}});
}

Arguments two_arguments() {
  Arguments args;
  args.places = {"cpu:0"};
  args.image_shape = {4, 5, 7};
  args.data_layout = "NHWC";
  args.num_of_class = kClasses;
  args.label_smoothing = 0.25;
  args.batch_size = 9;
  args.amp = args.fuse_resunit = args.use_dynamic_loss_scaling = true;
  args.scale_loss = 8;
  args.start_epoch = 3;
  return args;
}

TEST(Build, SetsAWholeTrainingProgram) {
  const Arguments args = two_arguments();
  Program startup("first"), train("train");
  EXPECT_FALSE(startup.is_startup());
  const Built built = build(args, two_outputs(), train, startup, /*step_each_epoch=*/11, /*is_train=*/true);
  const Program::Body& body = *train.body();
  EXPECT_EQ(body.name, "train");
  EXPECT_TRUE(body.is_train);
  EXPECT_TRUE(body.nhwc);
  EXPECT_TRUE(body.amp);
  EXPECT_EQ(body.zeros, 1) << "the fourth channel";
  EXPECT_EQ(body.batch_size, 9);
  EXPECT_EQ(body.excluded, "fc") << "the layer of the main output";
  EXPECT_EQ(body.graph.name, "two");
  EXPECT_EQ(body.graph.outputs.size(), 2U);
  for (const Feeds& feeds : {body.feeds, built.feeds}) {
    ASSERT_EQ(feeds.size(), 2U);
    EXPECT_EQ(feeds[0].name, "data");
    EXPECT_THAT(feeds[0].shape, ElementsAre(-1, 5, 7, 4));
    EXPECT_EQ(feeds[0].dtype, at::kFloat);
    EXPECT_EQ(feeds[1].name, "label");
    EXPECT_THAT(feeds[1].shape, ElementsAre(-1, 1));
    EXPECT_EQ(feeds[1].dtype, at::kLong);
  }
  for (const Fetchs& fetchs : {body.fetchs, built.fetchs}) {
    EXPECT_THAT(fetchs.names(), ElementsAre("loss", "top1", "top5"));
    EXPECT_EQ(fetchs.label_smoothing, 0.25);
    for (const Fetch& fetch : fetchs.all) {
      EXPECT_EQ(fetch.variable.shape, std::vector<int64_t>());
      EXPECT_EQ(fetch.variable.dtype, at::kFloat);
      AverageMeter meter = fetch.meter.value();
      EXPECT_EQ(meter.name(), fetch.variable.name);
      meter.update(1.25);
      EXPECT_EQ(meter.total(), " 1.2500");
    }
  }
  EXPECT_EQ(built.lr_scheduler->last_step(), 3 * 11);
  for (const std::optional<Optimizer>& optimizer : {body.optimizer, built.optimizer}) {
    ASSERT_TRUE(optimizer.has_value());
    EXPECT_EQ(optimizer->name, "tf_momentum");
    EXPECT_EQ(optimizer->learning_rate, built.lr_scheduler);
    EXPECT_TRUE(optimizer->amp);
    EXPECT_TRUE(optimizer->strategy.fuse_bn_act_ops);
    EXPECT_TRUE(optimizer->strategy.fuse_elewise_add_act_ops);
    EXPECT_TRUE(optimizer->strategy.fuse_bn_add_act_ops);
    EXPECT_TRUE(optimizer->strategy.fuse_resunit);
    EXPECT_EQ(optimizer->strategy.executor(), "auto");
  }
  ASSERT_TRUE(body.strategy.has_value());
  EXPECT_TRUE(body.strategy->fuse_resunit);
  EXPECT_EQ(body.startup.lock(), startup.body());
  EXPECT_EQ(body.startup_name, "first");
  EXPECT_TRUE(startup.is_startup());
  EXPECT_THAT(startup.body()->mains, ElementsAre(train.body()));
}

TEST(Build, SetsAWholeEvaluationProgram) {
  Arguments args = two_arguments();
  args.amp = false;
  args.data_layout = "NCHW";
  args.image_shape = {3, 5, 7};
  Program startup("first"), eval("eval");
  const Built built = build(args, two_outputs(), eval, startup, 11, /*is_train=*/false);
  const Program::Body& body = *eval.body();
  EXPECT_FALSE(body.is_train || body.nhwc || body.amp);
  EXPECT_EQ(body.zeros, 0);
  EXPECT_THAT(body.feeds.at(0).shape, ElementsAre(-1, 3, 5, 7));
  EXPECT_THAT(body.fetchs.names(), ElementsAre("label", "loss", "top1", "top5"));
  EXPECT_EQ(body.fetchs.label_smoothing, 0);
  EXPECT_THAT(body.fetchs.all.at(0).variable.shape, ElementsAre(-1));
  EXPECT_EQ(body.fetchs.all.at(0).variable.dtype, at::kLong);
  EXPECT_FALSE(body.strategy.has_value() || body.optimizer.has_value());
  EXPECT_EQ(built.lr_scheduler, nullptr);
  EXPECT_FALSE(built.optimizer.has_value());
  EXPECT_EQ(body.startup.lock(), startup.body());
  EXPECT_THAT(startup.body()->mains, ElementsAre(eval.body()));
}

TEST(Build, OfANamedModelTakesTheArgumentsInTheirOrder) {
  Arguments args;
  args.places = {"cpu:0"};
  args.model_arch_name = "shufflenet_v2_x1_0";
  args.image_shape = {3, 64, 96};
  args.num_of_class = 13;
  args.start_epoch = 2;
  Program startup("startup"), train("train"), eval("eval");
  const Built training = build(args, train, startup, /*step_each_epoch=*/10);
  EXPECT_EQ(training.lr_scheduler->last_step(), 20);
  EXPECT_THAT(train.body()->graph.input_shape(), ElementsAre(3, 64, 96));
  EXPECT_THAT(train.body()->graph.output_shape(), ElementsAre(13));
  EXPECT_TRUE(train.body()->is_train);
  EXPECT_EQ(build(args, eval, startup, /*step_each_epoch=*/10, /*is_train=*/false).lr_scheduler, nullptr);
  EXPECT_FALSE(eval.body()->is_train);
}

TEST(Build, AStartupProgramComputesNothing) {
  const Arguments args = two_arguments();
  Program one("one"), startup("startup"), train("train"), other("other");
  const std::string refused = "a startup program computes nothing itself: program '";
  const std::string remedy = "'; make a Program for it alone";
  EXPECT_EQ(core::message_of([&] { build(args, two_outputs(), one, one, 4); }), refused + "one" + remedy);
  build(args, two_outputs(), train, startup, 4);
  EXPECT_EQ(core::message_of([&] { build(args, two_outputs(), other, train, 4); }), refused + "train" + remedy);
  EXPECT_FALSE(one.built() || other.built());
}

TEST(Clone, IsAProgramOfItsOwn) {
  Arguments args = two_arguments();
  Program startup("startup"), train("train");
  build(args, two_outputs(), train, startup, 4);
  const Program same = train.clone(/*for_test=*/false), test = train.clone();
  for (const Program* const copy : {&same, &test}) {
    EXPECT_FALSE(*copy == train);
    EXPECT_EQ(copy->name(), "train");
    EXPECT_TRUE(copy->built());
    EXPECT_EQ(copy->body()->batch_size, 9);
    EXPECT_EQ(copy->body()->startup.lock(), startup.body());
  }
  EXPECT_TRUE(same.body()->is_train && same.body()->optimizer.has_value());
  EXPECT_FALSE(test.body()->is_train || test.body()->optimizer.has_value());
  EXPECT_TRUE(train.body()->is_train && train.body()->optimizer.has_value()) << "what was copied stays";
}

TEST(CompileProg, IsACopyThatFusesAsItsModeDoes) {
  Arguments args = two_arguments();
  Program startup("startup"), train("train");
  build(args, two_outputs(), train, startup, 4);
  const Program training = compile_prog(args, train, "loss"), evaluation = compile_prog(args, train, "", false);
  EXPECT_FALSE(training == train || evaluation == train);
  EXPECT_TRUE(training.body()->is_train && training.body()->optimizer.has_value());
  EXPECT_TRUE(training.body()->strategy.value().fuse_resunit);
  EXPECT_FALSE(evaluation.body()->strategy.value().fuse_resunit);
  EXPECT_TRUE(evaluation.body()->strategy.value().fuse_bn_act_ops);
}

// The last step of a cosine is at 0; without a step behind the warm-up the rate stays.
TEST(LrScheduler, OfOneStepFallsToZero) {
  Arguments args;
  args.places = {"cpu:0", "cpu:1"};
  args.processes = 3;
  args.lr = 0.5;
  args.epochs = 1;
  args.warmup_epochs = 0;
  args.warmup_start_lr = 0.125;
  const auto scheduler = build_lr_scheduler(args, 1);
  EXPECT_DOUBLE_EQ(scheduler->get_lr(), 3) << "0.5 for each of six places, at once";
  scheduler->step();
  EXPECT_NEAR(scheduler->get_lr(), 0, 1e-15);
  args.epochs = args.warmup_epochs = 4;
  const auto warming = build_lr_scheduler(args, 2);
  EXPECT_DOUBLE_EQ(warming->get_lr(), 0.125);
  warming->seek(4);
  EXPECT_DOUBLE_EQ(warming->get_lr(), (0.125 + 3) / 2) << "half of eight steps";
  warming->seek(8);
  EXPECT_DOUBLE_EQ(warming->get_lr(), 3);
  warming->seek(100);
  EXPECT_DOUBLE_EQ(warming->get_lr(), 3);
}

Arguments tiny_arguments() {
  Arguments args;
  args.image_shape = {3, 5, 5};
  args.batch_size = 8;
  args.num_of_class = train::kTinyClasses;
  args.places = {"cpu:0"};
  return args;
}

TEST(Executor, RunsOneStartupProgram) {
  const Arguments args = tiny_arguments();
  Program first("first"), second("second"), train("train"), other("other");
  build(args, train::tiny_graph(), train, first, 4);
  build(args, train::tiny_graph(), other, second, 4);
  Executor exe(args.places, {.intra_op_threads = 1});
  exe.run(first);
  EXPECT_EQ(core::message_of([&] { exe.run(second); }),
            "another startup program has run here: program 'second'; make an Executor for each");
}

TEST(Executor, AnEvaluationAloneBeginsWithTheNumbersOfItsSeed) {
  const Arguments args = tiny_arguments();
  const auto weights = [&](uint64_t seed) {
    Program startup("startup"), eval("eval");
    build(args, train::tiny_graph(), eval, startup, 4, /*is_train=*/false);
    Executor exe(args.places, {.seed = seed, .intra_op_threads = 1});
    exe.run(startup);
    return exe.scope().value(*exe.scope().find("conv.weight")).clone();
  };
  const at::Tensor three = weights(3);
  EXPECT_GT(three.abs().max().item<double>(), 0);
  EXPECT_TRUE(weights(3).equal(three));
  EXPECT_FALSE(weights(4).equal(three));
}

TEST(Executor, ScalesTheLossWithAmpAlone) {
  const auto scale = [](bool amp, bool automatic, double first) -> double {
    Arguments args = tiny_arguments();
    args.amp = amp;
    args.use_dynamic_loss_scaling = automatic;
    args.scale_loss = first;
    Program startup("startup"), train("train");
    build(args, train::tiny_graph(), train, startup, 4);
    Executor exe(args.places, {.intra_op_threads = 1});
    exe.run(startup);
    const auto found = exe.trainer(train).loss_scale();
    return found ? found->scale : 0;
  };
  EXPECT_EQ(scale(false, false, 8), 0);
  EXPECT_EQ(scale(false, true, 8), 0);
  EXPECT_EQ(scale(true, false, 1), 0) << "nothing is scaled by 1";
  EXPECT_EQ(scale(true, false, 8), 8);
  EXPECT_EQ(scale(true, true, 1), 1);
}

// Sums of a training's results over its images.
struct Sums {
  double loss = 0, top1 = 0, top5 = 0;
  int64_t count = 0;
};

// Trains two steps of `batch` images, from image `first` on, at a rate of 0.
Sums train_two_steps(const train::OpenDevices& devices, int64_t first, int64_t batch) {
  Arguments args = tiny_arguments();
  args.batch_size = batch;
  args.lr = 0;
  args.warmup_epochs = 0;
  args.print_interval = 100;
  Program startup("startup"), main("train");
  Built built = build(args, train::tiny_graph(), main, startup, 2);
  Executor exe(devices, {.seed = 5, .intra_op_threads = 1});
  exe.run(startup);
  const data::Batch all = train::tiny_source(64, 64)->next().at(0);
  const auto source = std::make_shared<train::MemorySource>(all.images().narrow(0, first, 2 * batch),
                                                            all.labels().narrow(0, first, 2 * batch), batch);
  std::ostringstream out;
  Report report(out, "");
  const Metrics metrics =
      run(args, Loader(source, 2), exe, main, built.fetchs, 0, Mode::kTrain, built.lr_scheduler.get(), report);
  EXPECT_EQ(metrics.at(0).first, "loss");
  EXPECT_DOUBLE_EQ(metrics.at(0).second, built.fetchs["loss"].meter->avg());
  EXPECT_EQ(built.fetchs["top1"].meter->count(), built.fetchs["loss"].meter->count());
  EXPECT_EQ(built.fetchs["top5"].meter->count(), built.fetchs["loss"].meter->count());
  return {built.fetchs["loss"].meter->sum(), built.fetchs["top1"].meter->sum(), built.fetchs["top5"].meter->sum(),
          built.fetchs["loss"].meter->count()};
}

// Each image counts the same, also where a rank has fewer of them.
TEST(Run, ResultsOfATrainingAreThoseOfTheImagesOfAllRanks) {
  const std::array<Sums, 2> own = {train_two_steps(train::OpenDevices(), 0, 8),
                                   train_two_steps(train::OpenDevices(), 40, 4)};
  const auto transports = parallel::make_memory_transports(2);
  std::array<train::OpenDevices, 2> devices;
  std::array<Sums, 2> seen;
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    devices.at(rank).processes = group;
    devices.at(rank).exchange = parallel::ProcessEngine::start(transports.at(rank), std::chrono::seconds(60));
    devices.at(rank).choose_communicators();
    seen.at(rank) = rank == 0 ? train_two_steps(devices.at(rank), 0, 8) : train_two_steps(devices.at(rank), 40, 4);
  });
  EXPECT_GT(own[0].top5, 0);
  for (const Sums& sums : seen) {
    EXPECT_EQ(sums.count, 2 * (8 + 4));
    EXPECT_NEAR(sums.loss, own[0].loss + own[1].loss, 1e-4);
    EXPECT_NEAR(sums.top1, own[0].top1 + own[1].top1, 1e-9);
    EXPECT_NEAR(sums.top5, own[0].top5 + own[1].top5, 1e-9);
  }
}

// As a shell's `--report-file=/dev/stdout`: the file that is open gets the lines.
TEST(Report, WritesIntoAStreamThatIsOpen) {
  const core::TempDir temp;
  const int file = ::open(temp.file("log").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::write(file, "before\n", 7), 7);
  std::ostringstream out;
  {
    Report report(out, "/dev/fd/" + std::to_string(file));
    log_info(report, {4}, {{"loss", 2.5}}, Mode::kEval);
  }
  ::close(file);
  const std::string text = core::local_file_system().read_file(temp.file("log"));
  EXPECT_TRUE(text.starts_with("before\n{\"timestamp\"")) << text;
  EXPECT_TRUE(text.ends_with("\"step\": [4], \"data\": {\"val.loss\": 2.5}}\n")) << text;
  EXPECT_THAT(out.str(), HasSubstr(" - Epoch: 4  val.loss : 2.5 \n"));
}

// A file of weights is taken in front of a checkpoint's folder.
TEST(Arguments, AFileOfWeightsIsFound) {
  const core::TempDir temp;
  const std::vector<float> values = {1, 2};
  const std::vector<formats::FloatTensor> tensors = {{"fc.weight", {2}, values}};
  const std::string file = temp.file("resnet_50_paddle.safetensors");
  const auto settled = [&] {
    Arguments args;
    args.places = {"cpu:0"};
    args.image_root.clear();
    args.output_dir = "no_such_folder";
    args.from_pretrained_params = temp.path();
    settle(args);
    return args;
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(settled().pretrained_weights, "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("Cannot find " + file + " or a checkpoint in " + temp.file("resnet_50_paddle") +
                        ", disable --from_pretrained_params."));
  formats::write_safetensors(file, tensors);
  const Arguments args = settled();
  EXPECT_EQ(args.pretrained_weights, file);
  EXPECT_EQ(args.checkpoint_dir, "");
  EXPECT_EQ(args.start_epoch, 0);
}

struct NoState : core::Stateful {
  void save(core::StateWriter& writer) const override { writer.text("note", "no weights"); }
  void load(const core::StateReader&) override {}
};

// A number says which epoch the checkpoint of the folder itself is of; "auto" takes the folder of the largest one.
TEST(Arguments, TheEpochBehindTheCheckpointIsTheFirst) {
  const core::TempDir temp;
  const train::CheckpointIdentity identity{.model = "torchvision/resnet50", .dataset = "imagenet", .num_classes = 7};
  const std::string prefix = Arguments().model_prefix;
  for (const std::string folder : {"", "3/", "12/", "2/"}) {
    train::CheckpointStore(temp.file(folder + prefix), 0).save(5, identity, NoState());
  }
  core::local_file_system().make_directories(temp.file("20"));
  const auto settled = [&](const std::optional<std::string>& epoch) {
    Arguments args;
    args.places = {"cpu:0"};
    args.image_root.clear();
    args.output_dir = "no_such_folder";
    args.from_checkpoint = temp.path();
    args.last_epoch_of_checkpoint = epoch;
    settle(args);
    return args;
  };
  const Arguments number = settled("12"), newest = settled("auto"), none = settled(std::nullopt);
  EXPECT_EQ(number.start_epoch, 13);
  EXPECT_EQ(number.checkpoint_dir, temp.file(prefix));
  EXPECT_EQ(newest.start_epoch, 13);
  EXPECT_EQ(newest.checkpoint_dir, temp.file("12/" + prefix));
  EXPECT_EQ(none.start_epoch, 0);
  EXPECT_EQ(none.checkpoint_dir, temp.file(prefix));
  const std::string refused = "--last_epoch_of_checkpoint cannot be used: expected None, auto or integer >= 0, got ";
  for (const std::string epoch : {"-1", "1x", "x", "2147483648"}) {
    EXPECT_EQ(core::message_of([&] { settled(epoch); }), refused + epoch);
  }
  EXPECT_EQ(settled("0").start_epoch, 1);
  EXPECT_EQ(settled("2147483647").start_epoch, int64_t{1} << 31);
}

}  // namespace
}  // namespace trainyard::frontends::program::program_build_test
