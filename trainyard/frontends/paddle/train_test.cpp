// What a run says and leaves: lines, the report, checkpoints and how it goes on from them.
#include "trainyard/frontends/paddle/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/paddle/flags.h"
#include "trainyard/train/profile/percentile.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::program::train_test {
namespace {

using Json = nlohmann::json;

std::vector<Json> read_report(const std::string& path) {
  std::istringstream text(core::local_file_system().read_file(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::string without_times(const std::string& text) {
  return std::regex_replace(text, std::regex("DLL [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}"),
                            "DLL TIME");
}

TEST(Report, HasTheLinesOfDllogger) {
  const core::TempDir folder;
  std::ostringstream out;
  {
    Report report(out, folder.file("report.json"));
    double seconds = 1700000000.25;
    report.set_clock([&seconds] { return seconds; });
    seconds += 1.5;
    log_info(report, {3, 20}, {{"loss", 6.5}, {"top1", 0}, {"lr", 1e-05}}, Mode::kTrain);
    log_info(report, {3}, {{"loss", 2}, {"epoch_time", 12.345678}, {"top1", 1.0 / 3}}, Mode::kEval);
    log_info(report, {}, {{"ips", std::nan("")}}, Mode::kEval);
    report.parameters(
        {{"output_dir", "\"./out\""}, {"amp", "false"}, {"from_checkpoint", "null"}, {"list", "[1,2.5]"}});
  }
  EXPECT_EQ(without_times(out.str()),
            "DLL TIME - Epoch: 3 Iteration: 20  train.loss : 6.5  train.top1 : 0.0  train.lr : 1e-05 \n"
            "DLL TIME - Epoch: 3  val.loss : 2.0  val.epoch_time : 12.34568 s,  val.top1 : 0.3333333333333333 \n"
            "DLL TIME - Summary: val.ips : nan \n"
            "DLL TIME - PARAMETER output_dir : ./out  amp : False  from_checkpoint : None  list : [1, 2.5] \n");
  const std::vector<Json> lines = read_report(folder.file("report.json"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["step"], Json({3, 20}));
  EXPECT_EQ(lines[0]["data"], Json({{"train.loss", 6.5}, {"train.top1", 0.0}, {"train.lr", 1e-05}}));
  EXPECT_EQ(lines[0]["type"], "LOG");
  EXPECT_EQ(lines[0]["timestamp"], "1700000001.750000");
  EXPECT_EQ(lines[0]["elapsedtime"], "1.500000");
  EXPECT_EQ(lines[1]["data"]["val.epoch_time"], 12.345678);
  EXPECT_EQ(lines[2]["data"]["val.ips"], "nan");
  EXPECT_EQ(lines[3]["step"], "PARAMETER");
  EXPECT_EQ(lines[3]["data"]["from_checkpoint"], Json());
}

TEST(Report, MendsALineThatAKillHasCutAndBeginsAnewOrGoesOn) {
  const core::TempDir folder;
  const std::string path = folder.file("report.json");
  std::ostringstream out;
  log_info(*std::make_unique<Report>(out, path), {0}, {{"loss", 1}}, Mode::kTrain);
  core::local_file_system().open_append(path)->write("{\"timestamp\": \"17");
  log_info(*std::make_unique<Report>(out, path, /*append=*/true), {1}, {{"loss", 2}}, Mode::kTrain);
  EXPECT_EQ(read_report(path).size(), 2u);
  const auto anew = std::make_unique<Report>(out, path);
  EXPECT_EQ(read_report(path).size(), 2u) << "nothing is lost before there is something to say";
  for (const int epoch : {0, 1, 2}) log_info(*anew, {epoch}, {{"loss", 3}}, Mode::kTrain);
  EXPECT_EQ(read_report(path).size(), 3u);
  EXPECT_EQ(core::code_of([&] { Report(out, folder.path()); }), core::ErrorCode::kIo);
}

TEST(MetricSummary, KeepsTheBestOfEach) {
  MetricSummary summary;
  EXPECT_FALSE(summary.is_updated());
  summary.update({{"loss", 2}, {"top1", 0.5}, {"ips", 10}});
  summary.update({{"loss", 3}, {"top1", 0.25}, {"ips", 11}, {"epoch_time", 4}});
  EXPECT_EQ(summary.metrics(), (Metrics{{"loss", 2}, {"top1", 0.5}, {"ips", 11}, {"epoch_time", 4}}));
}

TEST(MetricSummary, TakesANumberForNan) {
  MetricSummary summary;
  for (const double loss : {std::nan(""), 3.0, std::nan(""), 4.0}) summary.update({{"loss", loss}, {"top1", -loss}});
  EXPECT_EQ(summary.metrics(), (Metrics{{"loss", 3}, {"top1", -3}}));
}

TEST(Quantile, IsNumpys) {
  const std::vector<double> values{3, 1, 4, 1, 5, 9, 2, 6};
  // numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [0, 0.5, 0.9, 0.95, 0.99, 1])
  EXPECT_DOUBLE_EQ(train::interpolated_quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(train::interpolated_quantile(values, 0.5), 3.5);
  EXPECT_NEAR(train::interpolated_quantile(values, 0.9), 6.9, 1e-12);
  EXPECT_NEAR(train::interpolated_quantile(values, 0.95), 7.95, 1e-12);
  EXPECT_NEAR(train::interpolated_quantile(values, 0.99), 8.79, 1e-12);
  EXPECT_DOUBLE_EQ(train::interpolated_quantile(values, 1), 9);
}

// Class folders of drawings, and a run on them that takes seconds.
class TrainAndEvaluate : public ::testing::Test {
 protected:
  static constexpr int kTrainImages = 24, kClasses = 3, kSide = 32;

  static void SetUpTestSuite() {
    folder = new core::TempDir;
    for (const auto& [subset, name, count] :
         {std::tuple{data::Subset::kTrain, "train", kTrainImages}, std::tuple{data::Subset::kValidation, "val", 10}}) {
      for (int i = 0; i < count; ++i) {
        const std::string directory = folder->file(std::string(name) + "/class" + std::to_string(i % kClasses));
        core::local_file_system().make_directories(directory);
        const auto png = data::encode_png(data::draw_shape(1, subset, i, 48));
        core::local_file_system().write_file_atomically(core::join_path(directory, std::to_string(i) + ".png"),
                                                        {reinterpret_cast<const char*>(png.data()), png.size()});
      }
    }
  }
  static void TearDownTestSuite() { delete folder; }

  Arguments arguments(const std::string& name) const {
    Arguments args;
    args.output_dir = own_.file(name);
    args.report_file = own_.file(name + ".json");
    args.image_root = folder->path();
    args.image_shape = {3, kSide, kSide};
    args.crop_size = kSide;
    args.resize_short = 36;
    args.model_arch_name = "shufflenet_v2_x1_0";
    args.num_of_class = kClasses;
    args.batch_size = 5;
    args.epochs = 2;
    args.warmup_epochs = 1;
    args.lr = 0.05;
    args.print_interval = 2;
    args.dali_num_threads = 1;
    args.show_config = false;
    args.places = {"cpu:0"};
    return args;
  }
  std::string out_of(const Arguments& args, const core::StopToken& stop = core::StopSource().token()) {
    std::ostringstream out;
    result_ = train_and_evaluate(args, out, stop);
    return without_times(out.str());
  }
  static std::string root(const Arguments& args) { return core::join_path(args.output_dir, args.model_arch_name); }
  static at::Tensor weights_in(const Arguments& args, int64_t epoch) {
    return load_trained_model({.path = checkpoint_directory(args, epoch)}).parameters->values().clone();
  }

  inline static core::TempDir* folder = nullptr;
  core::TempDir own_;
  ProgramResult result_;
};

// Files are read class by class, and the whole epoch is in the buffer that batches are drawn from.
TEST_F(TrainAndEvaluate, AnEpochIsShuffledAsAWhole) {
  Arguments args = arguments("shuffled");
  args.batch_size = kTrainImages;
  const std::vector<data::Batch> batches = build_dataloader(args, Mode::kTrain).source()->next();
  const at::Tensor labels = batches.at(0).labels().to(at::kLong);
  const std::vector<int64_t> order(labels.data_ptr<int64_t>(), labels.data_ptr<int64_t>() + labels.numel());
  for (int64_t label = 0; label < kClasses; ++label)
    EXPECT_EQ(std::ranges::count(order, label), kTrainImages / kClasses);
  EXPECT_FALSE(std::ranges::is_sorted(order));
}

TEST_F(TrainAndEvaluate, SaysAndSavesWhatItDid) {
  Arguments args = arguments("run");
  args.show_config = true;
  args.asp = args.prune_model = true;
  const std::string out = out_of(args);
  std::vector<std::string> steps;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) steps.push_back(line.substr(0, line.find(" : ")));
  // 24 images in batches of 5: 5 steps; 10 images in two evaluations' steps.
  EXPECT_THAT(steps,
              testing::ElementsAre("DLL TIME - PARAMETER output_dir", "DLL TIME - Epoch: 0 Iteration: 2  train.loss",
                                   "DLL TIME - Epoch: 0 Iteration: 4  train.loss", "DLL TIME - Epoch: 0  train.loss",
                                   "DLL TIME - Epoch: 0 Iteration: 2  val.loss", "DLL TIME - Epoch: 0  val.loss",
                                   "DLL TIME - Epoch: 1 Iteration: 2  train.loss",
                                   "DLL TIME - Epoch: 1 Iteration: 4  train.loss", "DLL TIME - Epoch: 1  train.loss",
                                   "DLL TIME - Epoch: 1 Iteration: 2  val.loss", "DLL TIME - Epoch: 1  val.loss",
                                   "DLL TIME - Summary: train.loss", "DLL TIME - Summary: val.loss"));
  const std::vector<Json> report = read_report(args.report_file);
  ASSERT_EQ(report.size(), steps.size());
  std::vector<std::string> names;
  for (const auto& [name, value] : report[1]["data"].items()) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("train.loss", "train.top1", "train.top5", "train.data_time",
                                                   "train.compute_time", "train.batch_time", "train.ips", "train.lr"));
  const Json& step = report[1]["data"];
  EXPECT_NEAR(step["train.lr"], 0.05 / 5, 1e-12) << "the second step's rate";
  const double batch_time = step["train.batch_time"], ips = step["train.ips"];
  EXPECT_NEAR(step["train.data_time"].get<double>() + step["train.compute_time"].get<double>(), batch_time, 1e-9);
  EXPECT_NEAR(ips * batch_time, 5, 1e-9) << "the images of a step";
  EXPECT_EQ(result_.eval.size(), 5u);
  EXPECT_FALSE(result_.stopped);
  for (const int64_t epoch : {0, 1}) {
    const TrainedModel model = load_trained_model({.path = checkpoint_directory(args, epoch)});
    EXPECT_EQ(model.checkpoint.global_step, 5 * (epoch + 1));
    EXPECT_THAT(model.label_names, testing::ElementsAre("class0", "class1", "class2"));
    EXPECT_EQ(model.input.eval_resize_size, 36);
    const auto layers = optim::sparse_layers(model.executor->graph());
    for (const auto& layer : optim::measure_sparsity(*model.parameters, layers, optim::MaskAlgorithm::kMask1d)) {
      EXPECT_EQ(layer.two_of_four, layer.layer.treatment == optim::SparsityTreatment::kSparse) << layer.layer.layer;
    }
  }

  // An evaluation of it alone gives the same numbers.
  const Metrics trained = result_.eval;
  args.run_scope = RunScope::kEvalOnly;
  args.from_checkpoint = root(args);
  args.last_epoch_of_checkpoint = "auto";
  args.show_config = false;
  EXPECT_NE(out_of(args).find("DLL TIME - Epoch: 2  val.loss : "), std::string::npos);
  const double last = report[report.size() - 3]["data"]["val.loss"];
  EXPECT_NEAR(result_.eval.at(0).second, last, 1e-6);
  EXPECT_EQ(read_report(args.report_file).size(), 3u) << "a report of its own";

  args.benchmark = true;
  args.benchmark_warmup_steps = 1;
  args.benchmark_steps = 4;  // more than the two that there are
  const std::string timed = out_of(args);
  EXPECT_THAT(timed, testing::ContainsRegex("Summary: val.ips : [0-9.]+  val.latency_avg : [0-9.]+  val.latency_p90 : "
                                            "[0-9.]+  val.latency_p95 : [0-9.]+  val.latency_p99 : [0-9.]+ "));
  args.run_scope = RunScope::kTrainOnly;
  args.from_checkpoint.reset();
  args.last_epoch_of_checkpoint.reset();
  args.output_dir = own_.file("timed");
  EXPECT_THAT(out_of(args), testing::ContainsRegex("Summary: train.ips : [0-9.]+ \n$"));
  EXPECT_FALSE(core::local_file_system().exists(own_.file("timed"))) << "a benchmark saves nothing";
}

// Model, size of the images, their normalization and the number of classes are the checkpoint's where no option says
// them. An option that differs wins, and is said.
TEST_F(TrainAndEvaluate, TakesFromTheCheckpointWhatNoOptionSays) {
  Arguments args = arguments("run");
  args.normalize_mean = {0.5, 0.4, 0.3};
  args.epochs = 1;
  out_of(args);
  const double trained = read_report(args.report_file).back()["data"]["val.loss"];
  const auto plain = [&] {
    Arguments evaluation;
    evaluation.run_scope = RunScope::kEvalOnly;
    evaluation.from_checkpoint = core::join_path(root(args), "0");
    evaluation.report_file = own_.file("evaluation.json");
    evaluation.image_root = args.image_root;
    evaluation.batch_size = args.batch_size;
    evaluation.dali_num_threads = 1;
    evaluation.show_config = false;
    evaluation.places = args.places;
    return evaluation;
  };
  Arguments settled = plain();
  settle(settled);
  EXPECT_EQ(settled.model_name(), "shufflenet_v2_x1_0");
  EXPECT_EQ(settled.num_of_class, kClasses);
  EXPECT_EQ(settled.crop_size, kSide);
  EXPECT_EQ(settled.resize_short, 36);
  Arguments sized = plain();
  sized.model_arch_name = args.model_arch_name;
  sized.image_shape = {3, 40, 40};
  sized.crop_size = 40;
  sized.resize_short = 50;
  settle(sized);
  EXPECT_EQ(sized.crop_size, 40) << "what is given stays";
  EXPECT_EQ(sized.resize_short, 50);
  EXPECT_THAT(sized.image_shape, testing::ElementsAre(3, 40, 40));
  ::testing::internal::CaptureStderr();
  out_of(plain());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("--model_arch_name=shufflenet_v2_x1_0"),
                             testing::Not(testing::HasSubstr("instead of"))));
  EXPECT_NEAR(result_.eval.at(0).second, trained, 1e-6);

  Arguments other = plain();
  other.normalize_mean = {0.1, 0.1, 0.1};
  ::testing::internal::CaptureStderr();
  out_of(other);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              testing::HasSubstr("normalization is mean_std (25.5, 25.5, 25.5"));
  EXPECT_GT(std::abs(result_.eval.at(0).second - trained), 1e-6);
  // An option that was given counts though it has its default value.
  other = plain();
  other.given = {"crop_size", "image_shape", "model_arch_name"};
  EXPECT_THAT(core::message_of([&] { out_of(other); }, core::ErrorCode::kInvalidArgument),
              testing::HasSubstr("another model"));
}

// Asks for the end after so many lines.
class StoppingBuffer : public std::stringbuf {
 public:
  StoppingBuffer(core::StopSource& stop, int lines) : stop_(stop), lines_(lines) {}
  int sync() override {
    if (--lines_ == 0) stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
    return 0;
  }

 private:
  core::StopSource& stop_;
  int lines_;
};

TEST_F(TrainAndEvaluate, GoesOnInTheMiddleOfAnEpochWithTheSameBits) {
  Arguments whole = arguments("whole");
  whole.run_scope = RunScope::kTrainOnly;
  whole.epochs = 3;
  whole.print_interval = 1;
  out_of(whole);

  Arguments parts = whole;
  parts.output_dir = own_.file("parts");
  parts.from_checkpoint = root(parts);
  parts.last_epoch_of_checkpoint = "auto";
  // 5 steps and a line in the first epoch, then 2 steps of the second; and once more behind the end of that.
  for (const int lines : {8, 4}) {
    core::StopSource stop;
    StoppingBuffer buffer(stop, lines);
    std::ostream out(&buffer);
    EXPECT_TRUE(train_and_evaluate(parts, out, stop.token()).stopped);
  }
  EXPECT_EQ(load_trained_model({.path = checkpoint_directory(parts, 1)}).checkpoint.global_step, 10);
  out_of(parts);
  EXPECT_EQ(train::CheckpointStore(checkpoint_directory(parts, 1)).list().size(), 1u);
  EXPECT_TRUE(weights_in(parts, 2).equal(weights_in(whole, 2)));
  std::vector<std::string> steps;
  for (const Json& line : read_report(parts.report_file)) steps.push_back(line["step"].dump());
  EXPECT_THAT(steps, testing::IsSupersetOf({"[0,5]", "[1,2]", "[1,3]", "[2,5]"})) << "one report of all parts";

  // Without an epoch of the checkpoint they are counted anew, from its weights.
  parts.from_checkpoint = core::join_path(root(parts), "2");
  parts.last_epoch_of_checkpoint.reset();
  parts.epochs = 1;
  parts.output_dir = own_.file("again");
  EXPECT_NE(out_of(parts).find("Epoch: 0 Iteration: 1 "), std::string::npos);
  EXPECT_EQ(load_trained_model({.path = checkpoint_directory(parts, 0)}).checkpoint.global_step, 20);
  parts.from_checkpoint.reset();
  parts.from_pretrained_params = core::join_path(root(whole), "2");
  Arguments begun = parts;
  settle(begun);
  EXPECT_EQ(begun.pretrained_weights, checkpoint_directory(whole, 2));
  EXPECT_EQ(begun.checkpoint_dir, "");
  EXPECT_NE(out_of(parts).find("Epoch: 0 Iteration: 1 "), std::string::npos);
  EXPECT_EQ(load_trained_model({.path = checkpoint_directory(parts, 0)}).checkpoint.global_step, 5);
}

// The head of a checkpoint for other classes is left out, as that of a file of weights is. Masks stay.
TEST_F(TrainAndEvaluate, BeginsWithTheWeightsOfACheckpointForOtherClasses) {
  Arguments args = arguments("five");
  args.run_scope = RunScope::kTrainOnly;
  args.epochs = 1;
  args.num_of_class = kClasses + 2;
  args.asp = args.prune_model = true;
  out_of(args);
  Arguments tuned = arguments("three");
  tuned.run_scope = RunScope::kTrainOnly;
  tuned.epochs = 1;
  tuned.lr = 0;
  tuned.from_pretrained_params = core::join_path(root(args), "0");
  ::testing::internal::CaptureStderr();
  out_of(tuned);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              testing::HasSubstr("is for 5 classes: the head is new, for 3 ("));
  const TrainedModel before = load_trained_model({.path = checkpoint_directory(args, 0)});
  const TrainedModel after = load_trained_model({.path = checkpoint_directory(tuned, 0)});
  EXPECT_EQ(after.identity.num_classes, kClasses);
  ASSERT_EQ(after.parameters->size(), before.parameters->size());
  int others = 0, masks = 0;
  for (int i = 0; i < static_cast<int>(after.parameters->size()); ++i) {
    const at::Tensor first = before.parameters->value({i}), then = after.parameters->value({i});
    if (then.sizes() != first.sizes()) {
      ++others;
      continue;
    }
    EXPECT_TRUE(then.equal(first)) << after.parameters->segment({i}).spec.name;
    const bool masked = after.parameters->mask({i}).defined();
    EXPECT_EQ(masked, before.parameters->mask({i}).defined());
    masks += masked ? 1 : 0;
  }
  EXPECT_EQ(others, 2) << "weight and bias of the head";
  EXPECT_GT(masks, 0);

  // With as many classes the head is the checkpoint's, too.
  Arguments same = tuned;
  same.output_dir = own_.file("same");
  same.report_file = own_.file("same.json");
  same.num_of_class = args.num_of_class;
  out_of(same);
  EXPECT_TRUE(weights_in(same, 0).equal(weights_in(args, 0)));
}

// Its steps are no epoch, and it does not complete the one in which the checkpoint was saved.
TEST_F(TrainAndEvaluate, ABenchmarkLeavesTheCheckpointThatItStartsFrom) {
  Arguments args = arguments("broken");
  args.run_scope = RunScope::kTrainOnly;
  args.print_interval = 1;
  core::StopSource stop;
  StoppingBuffer buffer(stop, 2);  // of the 5 steps of the first epoch
  std::ostream out(&buffer);
  ASSERT_TRUE(train_and_evaluate(args, out, stop.token()).stopped);
  const std::string saved = train::CheckpointStore(checkpoint_directory(args, 0)).list().at(0).path;

  args.from_checkpoint = root(args);
  args.last_epoch_of_checkpoint = "auto";
  args.benchmark = true;
  args.benchmark_warmup_steps = 1;
  args.benchmark_steps = 5;
  const std::string timed = out_of(args);
  EXPECT_THAT(
      timed,
      testing::AllOf(testing::HasSubstr("Epoch: 1 Iteration: 1 "), testing::HasSubstr("Epoch: 1 Iteration: 6 "),
                     testing::Not(testing::HasSubstr("Iteration: 7 ")), testing::Not(testing::HasSubstr("Epoch: 0 "))));
  const std::vector<train::CheckpointInfo> left = train::CheckpointStore(checkpoint_directory(args, 0)).list();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].path, saved);
  EXPECT_FALSE(core::local_file_system().exists(core::join_path(root(args), "1")));
}

TEST_F(TrainAndEvaluate, SavesWhenItIsStoppedInAnEvaluation) {
  Arguments args = arguments("late");
  args.print_interval = 1;
  args.epochs = 9;
  args.save_interval = 5;
  core::StopSource stop;
  // Epoch 0 has 6 lines of training and 3 of evaluation, epoch 1 as many: this is the first of its evaluation.
  StoppingBuffer buffer(stop, 9 + 6 + 1);
  std::ostream out(&buffer);
  EXPECT_TRUE(train_and_evaluate(args, out, stop.token()).stopped);
  EXPECT_EQ(load_trained_model({.path = checkpoint_directory(args, 1)}).checkpoint.global_step, 10);
}

// In the last epoch nothing but the evaluation is left to do. Its lines are 6 of a training and 3 of an evaluation: the
// stop comes behind the last step, and within the evaluation of a checkpoint that is saved already.
TEST_F(TrainAndEvaluate, RepeatsTheEvaluationThatAStopHasCutOff) {
  for (const int lines : {5, 6 + 1}) {
    Arguments args = arguments("cut" + std::to_string(lines));
    args.print_interval = 1;
    args.epochs = 1;
    core::StopSource stop;
    StoppingBuffer buffer(stop, lines);
    std::ostream out(&buffer);
    const ProgramResult cut = train_and_evaluate(args, out, stop.token());
    EXPECT_TRUE(cut.stopped) << lines;
    EXPECT_TRUE(cut.eval.empty()) << lines;

    args.from_checkpoint = root(args);
    args.last_epoch_of_checkpoint = "auto";
    EXPECT_THAT(out_of(args), testing::AllOf(testing::HasSubstr("Epoch: 0  val.loss"),
                                             testing::Not(testing::HasSubstr("train.loss"))));
    EXPECT_EQ(result_.eval.size(), 5U) << lines;
    EXPECT_THAT(out_of(args), testing::Not(testing::HasSubstr("val.loss"))) << "it is repeated once";
  }
}

// Calls a function in the line that completes so many.
class CallingBuffer : public std::stringbuf {
 public:
  CallingBuffer(int lines, std::function<void()> call) : lines_(lines), call_(std::move(call)) {}
  int sync() override {
    if (--lines_ == 0) call_();
    return 0;
  }

 private:
  int lines_;
  std::function<void()> call_;
};

// The stop comes when the epoch's folder is there: behind the last step. The run cannot come to its evaluation before,
// since the line that says that the epoch is saved waits for the error stream, which the watcher holds.
TEST_F(TrainAndEvaluate, RepeatsTheEvaluationWhereAStopCameWhileTheEpochWasSaved) {
  Arguments args = arguments("saving");
  args.epochs = 1;
  args.print_interval = 1;
  core::StopSource stop;
  ProgramResult cut;
  {
    std::promise<void> trained, held;
    const core::Thread watcher({.name = "watcher"}, [&] {
      trained.get_future().wait();
      ::flockfile(stderr);
      held.set_value();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!core::local_file_system().exists(checkpoint_directory(args, 0)) &&
             std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      stop.request_stop(core::StopReason::kSignal, "SIGTERM");
      ::funlockfile(stderr);
    });
    bool was_trained = false;
    // 5 lines of steps, and that of the epoch.
    CallingBuffer buffer(5 + 1, [&] {
      was_trained = true;
      trained.set_value();
      held.get_future().wait();
    });
    std::ostream out(&buffer);
    EXPECT_EQ(core::message_of([&] { cut = train_and_evaluate(args, out, stop.token()); }), "no error");
    EXPECT_TRUE(was_trained);
    if (!was_trained) trained.set_value();
  }
  EXPECT_TRUE(cut.stopped);
  EXPECT_EQ(cut.train.size(), 3U) << "all steps of the epoch are done";
  EXPECT_TRUE(cut.eval.empty());

  args.from_checkpoint = root(args);
  args.last_epoch_of_checkpoint = "auto";
  EXPECT_THAT(out_of(args),
              testing::AllOf(testing::HasSubstr("Epoch: 0  val.loss"), testing::Not(testing::HasSubstr("train.loss"))));
}

TEST_F(TrainAndEvaluate, SaysWhatCannotBe) {
  Arguments args = arguments("bad");
  const auto message = [&](const std::function<void(Arguments&)>& change) {
    Arguments changed = args;
    change(changed);
    return core::message_of([&] {
      std::ostringstream out;
      train_and_evaluate(changed, out, core::StopSource().token());
    });
  };
  EXPECT_EQ(message([](Arguments& a) { a.from_checkpoint = a.from_pretrained_params = "x"; }),
            "--from_pretrained_params and --from_checkpoint exclude each other; leave one of them out");
  EXPECT_EQ(message([](Arguments& a) { a.benchmark = true; }),
            "--benchmark measures training or evaluation; pass --run_scope=train_only or --run_scope=eval_only");
  EXPECT_EQ(
      message([](Arguments& a) { a.crop_size = 40, a.resize_short = 50; }),
      "--image_shape cannot be used: expected images of 40 x 40 pixels, as --crop_size=40 makes them, got 32 x 32");
  EXPECT_EQ(message([](Arguments& a) { a.image_shape[0] = 4; }),
            "images with a fourth channel are for ResNet50 alone: --image_shape: expected 3 channels, got 4, with "
            "--model_arch_name=shufflenet_v2_x1_0");
  EXPECT_NE(message([](Arguments& a) { a.num_of_class = 2; }).find("got 3; pass --num_of_class=3"), std::string::npos);
  EXPECT_EQ(message([](Arguments& a) { a.label_smoothing = 1; }),
            "--label_smoothing cannot be used: expected a number in [0, 1), got 1");
  EXPECT_EQ(message([](Arguments& a) { a.dali_num_threads = 0; }),
            "--dali_num_threads cannot be used: expected a number from 1 to 1024, got 0");
  EXPECT_EQ(message([](Arguments& a) { a.dali_num_threads = int64_t{1} << 32; }),
            "--dali_num_threads cannot be used: expected a number from 1 to 1024, got 4294967296");
  EXPECT_EQ(message([](Arguments& a) { a.batch_size = INT64_MAX; }),
            "--batch_size cannot be used: expected a number from 1 to 1048576, got 9223372036854775807");
  EXPECT_EQ(message([](Arguments& a) { a.epochs = INT64_MAX; }),
            "--epochs cannot be used: expected a number from 1 to 2147483648, got 9223372036854775807");
  EXPECT_EQ(message([](Arguments& a) { a.resize_short = int64_t{1} << 40; }),
            "--resize_short cannot be used: expected a number from 1 to 16384, got 1099511627776");
  EXPECT_EQ(message([](Arguments& a) { a.warmup_epochs = -1; }),
            "--warmup_epochs cannot be used: expected a number from 0 to 2147483648, got -1");
  EXPECT_EQ(message([](Arguments& a) { a.last_epoch_of_checkpoint = "9223372036854775807", a.from_checkpoint = "x"; }),
            "--last_epoch_of_checkpoint cannot be used: expected None, auto or integer >= 0, got 9223372036854775807");
  EXPECT_EQ(message([](Arguments& a) { a.last_epoch_of_checkpoint = "soon", a.from_checkpoint = "x"; }),
            "--last_epoch_of_checkpoint cannot be used: expected None, auto or integer >= 0, got soon");
  EXPECT_EQ(core::code_of([&] {
              std::ostringstream out;
              Arguments gone = args;
              gone.image_root = own_.file("nowhere");
              train_and_evaluate(gone, out, core::StopSource().token());
            }),
            core::ErrorCode::kNotFound);
  ::testing::internal::CaptureStderr();
  args.from_checkpoint = own_.file("nothing");
  args.last_epoch_of_checkpoint = "auto";
  args.epochs = 1;
  args.run_scope = RunScope::kTrainOnly;
  args.scale_loss = 2;
  out_of(args);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("Cannot find a checkpoint in"), std::string::npos) << log;
  EXPECT_NE(log.find("--scale_loss has no effect without --amp"), std::string::npos) << log;
}

TEST_F(TrainAndEvaluate, SaysWhichOptionsHaveNoEffect) {
  const auto said = [&](const std::function<void(Arguments&)>& change) {
    Arguments args = arguments("idle");
    change(args);
    ::testing::internal::CaptureStderr();
    settle(args);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said([](Arguments&) {}), testing::Not(testing::HasSubstr("has no effect")));
  EXPECT_THAT(said([](Arguments& a) { a.benchmark_steps = 5; }),
              testing::HasSubstr("--benchmark_steps has no effect without --benchmark"));
  EXPECT_THAT(said([](Arguments& a) { a.asp = true; }),
              testing::HasSubstr("--asp has no effect without --prune_model"));
  EXPECT_THAT(said([](Arguments& a) { a.asp = a.prune_model = true; }),
              testing::Not(testing::HasSubstr("has no effect")));
  // An option that was given counts though it has its default value.
  EXPECT_THAT(said([](Arguments& a) { a.given = {"benchmark_warmup_steps"}; }),
              testing::AllOf(testing::HasSubstr("--benchmark_warmup_steps has no effect without --benchmark"),
                             testing::Not(testing::HasSubstr("--benchmark_steps"))));
  EXPECT_THAT(said([](Arguments& a) {
                a.benchmark = true;
                a.run_scope = RunScope::kTrainOnly;
                a.save_interval = 2;
                a.eval_interval = 2;
              }),
              testing::AllOf(testing::HasSubstr("--epochs has no effect with --benchmark"),
                             testing::HasSubstr("--save_interval has no effect with --benchmark"),
                             testing::HasSubstr("--output_dir has no effect with --benchmark"),
                             testing::HasSubstr("--eval_interval has no effect with --run_scope=train_only"),
                             testing::Not(testing::HasSubstr("--lr "))));
  const std::string evaluation = said([](Arguments& a) {
    a.run_scope = RunScope::kEvalOnly;
    a.amp = true;
    a.given = {"save_interval",   "eval_interval",   "label_smoothing",         "momentum",
               "weight_decay",    "warmup_start_lr", "bn_weight_decay",         "rand_crop_scale",
               "rand_crop_ratio", "scale_loss",      "use_dynamic_loss_scaling"};
  });
  for (const char* option : {"epochs", "save_interval", "output_dir", "eval_interval", "label_smoothing", "momentum",
                             "weight_decay", "lr", "warmup_epochs", "warmup_start_lr", "bn_weight_decay",
                             "rand_crop_scale", "rand_crop_ratio", "scale_loss", "use_dynamic_loss_scaling"}) {
    EXPECT_THAT(evaluation,
                testing::HasSubstr(std::string("--") + option + " has no effect with --run_scope=eval_only"));
  }
  ::testing::internal::CaptureStderr();
  Arguments feeds = arguments("nhwc");
  feeds.data_layout = "NHWC";
  feeds.run_scope = RunScope::kTrainOnly;
  feeds.epochs = 1;
  out_of(feeds);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), testing::HasSubstr("--data_layout has no effect"));
}

TEST(ProgramFlags, TakeTheExamplesCommandLine) {
  core::FlagTable table;
  declare_flags(table);
  const Arguments args = read_arguments(
      core::parse_flags(table, {"--epochs", "3", "--amp", "--scale-loss", "128.0", "--use-dynamic-loss-scaling",
                                "--data_layout=NHWC", "--show-config", "False", "--image-shape", "3,64,64",
                                "--rand-crop-scale", "0.5,1.0", "--from-checkpoint", "None", "--run-scope=eval_only"}));
  EXPECT_EQ(args.epochs, 3);
  EXPECT_TRUE(args.amp && args.use_dynamic_loss_scaling && !args.show_config && args.enable_cpu_affinity);
  EXPECT_EQ(args.scale_loss, 128);
  EXPECT_EQ(args.data_layout, "NHWC");
  EXPECT_THAT(args.image_shape, testing::ElementsAre(3, 64, 64));
  EXPECT_THAT(args.rand_crop_scale, testing::ElementsAre(0.5, 1));
  EXPECT_FALSE(args.from_checkpoint.has_value());
  EXPECT_EQ(args.run_scope, RunScope::kEvalOnly);
  const Arguments plain = read_arguments(core::parse_flags(table, {}));
  EXPECT_EQ(options_as_json(plain), options_as_json(Arguments()));
  EXPECT_EQ(core::problem_of([&] { read_arguments(core::parse_flags(table, {"--show-config=perhaps"})); }),
            "--show_config is neither yes nor no");
  EXPECT_NE(core::message_of([&] { core::parse_flags(table, {"--batch-sise=3"}); }).find("batch_size"),
            std::string::npos);
}

Arguments tiny_arguments() {
  Arguments args;
  args.image_shape = {3, 5, 5};
  args.crop_size = 5;
  args.batch_size = 8;
  args.num_of_class = train::kTinyClasses;
  args.places = {"cpu:0"};
  return args;
}

// The first steps are a warm-up, of which nothing is told.
TEST(Run, ABenchmarkTimesTheStepsBehindItsWarmUp) {
  Arguments args = tiny_arguments();
  args.benchmark = true;
  args.benchmark_warmup_steps = 1;
  args.benchmark_steps = 3;
  Program startup("startup"), main("train");
  Built built = build(args, train::tiny_graph(), main, startup, 4);
  Executor exe(args.places, {.intra_op_threads = 1});
  exe.run(startup);
  std::ostringstream out;
  Report report(out, "");
  ::testing::internal::CaptureStderr();
  const Metrics metrics = run(args, Loader(train::tiny_source(64, 8), 2), exe, main, built.fetchs, 0, Mode::kTrain,
                              built.lr_scheduler.get(), report);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("Begin benchmark at step 2\n"), std::string::npos) << log;
  EXPECT_NE(log.find("End benchmark at epoch step 4\n"), std::string::npos) << log;
  ASSERT_EQ(metrics.size(), 1U);
  EXPECT_EQ(metrics[0].first, "ips");
  EXPECT_GT(metrics[0].second, 0);
  EXPECT_EQ(built.lr_scheduler->last_step(), 4) << "whatever the number of steps of an epoch";
  EXPECT_EQ(out.str(), "");
}

// Steps of the data, with which a benchmark starts them anew.
TEST(Run, AnEvaluationWithoutStepsIsRefused) {
  Arguments args = tiny_arguments();
  Program startup("startup"), main("check");
  Built built = build(args, train::tiny_graph(), main, startup, 1, /*is_train=*/false);
  Executor exe(args.places, {.intra_op_threads = 1});
  exe.run(startup);
  std::ostringstream out;
  Report report(out, "");
  for (const bool benchmark : {false, true}) {
    args.benchmark = benchmark;
    const auto evaluate = [&] {
      run(args, Loader(train::tiny_source(64, 8), 0), exe, main, built.fetchs, 0, Mode::kEval, nullptr, report);
    };
    EXPECT_THAT(core::message_of(evaluate), core::Says("program 'check'", "expected at least 1, got 0")) << benchmark;
  }
  EXPECT_EQ(out.str(), "");
}

// The trainer keeps its hook. The function that it calls is the caller's, for this training alone.
TEST(Run, TheFunctionOfATrainingIsNotCalledByLaterOnes) {
  const Arguments args = tiny_arguments();
  Program startup("startup"), main("train");
  const Built built = build(args, train::tiny_graph(), main, startup, 4);
  Executor exe(args.places, {.intra_op_threads = 1});
  exe.run(startup);
  EXPECT_EQ(exe.steps_per_epoch(), 0);
  int64_t calls = 0;
  exe.train(main, train::tiny_source(64, 8), {.steps_per_epoch = 2}, [&calls](const train::StepView&) { ++calls; });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(exe.steps_per_epoch(), 2);
  exe.trainer(main).train({.steps_per_epoch = 3});
  EXPECT_EQ(exe.trainer(main).global_step(), 5);
  EXPECT_EQ(calls, 2);
}

// A run of the library on a source of the caller's own.
TEST(Run, TriesABadReadOnceMore) {
  Arguments args = tiny_arguments();
  Program startup("startup"), main("train");
  Built built = build(args, train::tiny_graph(), main, startup, 4);
  Executor exe(args.places, {.intra_op_threads = 1});
  exe.run(startup);
  class Once : public train::MemorySource {
   public:
    using MemorySource::MemorySource;
    std::vector<data::Batch> next() override {
      if (failures++ == 2) throw core::Error(core::ErrorCode::kCorruptData, "a bad image");
      return MemorySource::next();
    }
    int failures = 0;
  };
  at::Tensor images = train::tiny_source(64, 64)->next()[0].images();
  at::Tensor labels = train::tiny_source(64, 64)->next()[0].labels();
  const auto source = std::make_shared<Once>(images, labels, 8);
  std::ostringstream out;
  Report report(out, "");
  ::testing::internal::CaptureStderr();
  const Metrics metrics =
      run(args, Loader(source, 4), exe, main, built.fetchs, 7, Mode::kTrain, built.lr_scheduler.get(), report);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("a bad image"), std::string::npos);
  EXPECT_EQ(source->position(), (data::Position{0, 32}));
  EXPECT_EQ(metrics.at(0).first, "loss");
  for (const char* name : {"loss", "top1", "top5"}) EXPECT_EQ(built.fetchs[name].meter->count(), 32) << name;
  EXPECT_LE(built.fetchs["top1"].meter->avg(), built.fetchs["top5"].meter->avg());
  EXPECT_LE(built.fetchs["top5"].meter->avg(), 1);
  EXPECT_DOUBLE_EQ(metrics.at(0).second, built.fetchs["loss"].meter->avg());
  ASSERT_EQ(metrics.size(), 3U);
  EXPECT_EQ(metrics[1].first, "epoch_time");
  EXPECT_EQ(metrics[2].first, "ips");
  EXPECT_NEAR(metrics[1].second * metrics[2].second, 32, 1e-6) << "images in all steps";
  EXPECT_EQ(built.lr_scheduler->last_step(), 4);
  EXPECT_NE(out.str().find("Epoch: 7  train.loss"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace trainyard::frontends::program::train_test
