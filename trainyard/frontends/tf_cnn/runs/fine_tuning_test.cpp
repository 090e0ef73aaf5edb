// --finetune of `trainyard train`: which settings it makes, that each flag counts instead, what is taken from the
// weights, what is frozen, and that a run continues as it was begun.
#include "trainyard/frontends/tf_cnn/fine_tuning.h"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/train/model/model.h"

namespace trainyard::frontends::fine_tuning_test {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;
using Arguments = std::vector<std::string>;

TfCnnOptions read(const Arguments& arguments, Dialect dialect = Dialect::kTrainyard) {
  return read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect);
}

// `photos` has 40 images of two classes, of which 32 train; `shades` the same images under other names of classes.
class FineTuning : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp = new core::TempDir;
    for (int i = 0; i < 20; ++i) {
      write("photos/dark", i, 20 + i), write("photos/light", i, 200 + i);
      write("shades/black", i, 20 + i), write("shades/white", i, 200 + i);
      for (const char* name : {"a", "b", "c"}) write(std::string("three/") + name, i, 60 * (name[0] - 'a') + i);
    }
    run_in(*temp, {"--model=lenet", "--data_dir=" + temp->file("photos"), "--batch_size=8", "--num_batches=6",
                   "--init_learning_rate=0.01", "--image_size=24", "--input_preprocessor=torchvision",
                   "--train_dir=" + temp->file("pretrained")});
  }
  static void TearDownTestSuite() { delete temp; }

  static void write(const std::string& folder, int i, int level) {
    const auto bytes = data::encode_png(data::flat_image(24, 24, level));
    core::FileSystem& files = core::local_file_system();
    files.make_directories(temp->file(folder));
    files.write_file_atomically(temp->file(folder + "/" + std::to_string(i) + ".png"),
                                {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  // Returns the log and what was printed.
  static std::string run_in(const core::TempDir&, Arguments arguments) {
    arguments.insert(arguments.begin(), {"--device=cpu", "--num_intra_threads=1", "--deterministic", "--progress=off",
                                         "--existing_run=keep", "--display_every=1"});
    std::ostringstream out;
    testing::internal::CaptureStderr();
    std::optional<core::Error> error;
    try {
      BenchmarkCnn(read(arguments)).run(out);
    } catch (const core::Error& thrown) {
      error = thrown;
    }
    const std::string log = testing::internal::GetCapturedStderr();
    if (error) throw *error;
    return log + out.str();
  }
  static Arguments tuning(const Arguments& more = {}, const std::string& data = "shades") {
    Arguments all{"--finetune", "--weights=" + temp->file("pretrained"), "--data_dir=" + temp->file(data)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string tune(const std::string& folder, const Arguments& more = {}, const std::string& data = "shades") {
    Arguments all = tuning({"--train_dir=" + temp->file(folder)}, data);
    all.insert(all.end(), more.begin(), more.end());
    return run_in(*temp, all);
  }
  static PreparedRun prepared(const Arguments& more) {
    Arguments all = tuning({"--device=cpu", "--train_dir="});
    all.insert(all.end(), more.begin(), more.end());
    testing::internal::CaptureStderr();
    PreparedRun run = prepare(read(all));
    testing::internal::GetCapturedStderr();
    return run;
  }
  // Returns the names of the tensors that differ between two runs.
  static std::set<std::string> moved(const std::string& before, const std::string& after) {
    const auto a = train::load_model(temp->file(before)), b = train::load_model(temp->file(after));
    const nn::ParameterSet &x = a->parameters(), &y = b->parameters();
    std::set<std::string> names;
    for (const nn::Segment& segment : x.segments()) {
      if (!at::equal(x.value(segment.id), y.value(segment.id))) names.insert(segment.spec.name);
    }
    return names;
  }

  static core::TempDir* temp;
};
core::TempDir* FineTuning::temp = nullptr;

TEST(FineTuningLength, FollowsFromTheNumberOfImages) {
  const auto of = [](int64_t images) {
    const FineTuningLength length = fine_tuning_length(images);
    return std::vector<int64_t>{length.batch_size, length.num_epochs};
  };
  EXPECT_THAT(of(1), ElementsAre(8, 60));
  EXPECT_THAT(of(40), ElementsAre(8, 60));
  EXPECT_THAT(of(200), ElementsAre(16, 60));
  EXPECT_THAT(of(500), ElementsAre(32, 40));
  EXPECT_THAT(of(910), ElementsAre(32, 22)) << "rounded up";
  EXPECT_THAT(of(1000), ElementsAre(32, 20));
  EXPECT_THAT(of(4999), ElementsAre(32, 10));
  EXPECT_THAT(of(5000), ElementsAre(64, 10));
  EXPECT_THAT(of(1'000'000), ElementsAre(64, 10));
}

TEST_F(FineTuning, SetsWhatNoFlagSays) {
  const PreparedRun run = prepared({});
  const TfCnnOptions& options = run.options;
  EXPECT_EQ(options.model, "lenet") << "of the weights";
  EXPECT_EQ(run.num_classes, 2);
  EXPECT_EQ(run.batch_size, 8);
  EXPECT_EQ(options.steps.num_epochs, 60);
  EXPECT_EQ(options.early_stop, 15);
  EXPECT_EQ(options.update.optimizer, "torch_adamw");
  EXPECT_EQ(options.update.weight_decay, 0.05);
  ASSERT_EQ(options.update.groups.size(), 1U);
  EXPECT_EQ(options.update.groups[0].pattern, "head");
  EXPECT_EQ(options.update.groups[0].rate_factor, 10);
  EXPECT_EQ(options.learning_rate.schedule, "cosine");
  EXPECT_EQ(options.learning_rate.init_learning_rate, 0.0003);
  EXPECT_EQ(options.learning_rate.warmup_epochs, 3);
  EXPECT_EQ(options.loss.label_smoothing, 0.1);
  ASSERT_EQ(options.freeze.epochs.size(), 1U);
  EXPECT_EQ(options.freeze.epochs[0].pattern, kBackbone);
  EXPECT_EQ(options.freeze.epochs[0].end, 6);
  EXPECT_EQ(options.device.use_bf16, core::cpu_has_avx512_bf16());
  EXPECT_FLOAT_EQ(run.input.transform.crop.min_area, 0.35F);
  EXPECT_EQ(run.input.preprocessor, "torchvision") << "of the weights";
  EXPECT_EQ(run.input.transform.height, 24);
  EXPECT_EQ(run.mode(), RunMode::kTrainingAndEvaluation);
  const std::string narrow = core::cpu_has_avx512_bf16() ? " --use_bf16=true" : "";
  EXPECT_EQ(fine_tuning_line(run),
            "--optimizer=torch_adamw --weight_decay=0.05 --learning_rate_schedule=cosine --init_learning_rate=0.0003 "
            "--parameter_groups=head:10" +
                narrow +
                " --random_crop_area=0.35,1 --batch_size=8 --num_epochs=60 --num_learning_rate_warmup_epochs=3 "
                "--label_smoothing=0.1 --freeze_until=backbone:6 --early_stop=15");
}

// The run's files tell the values that were chosen.
TEST_F(FineTuning, RecordsWhatItSets) {
  const PreparedRun run = prepared({});
  const auto recorded = [&run](const std::string& flag) {
    for (const auto& [name, value] : run.options.flags.all) {
      if (name == flag) return value;
    }
    return core::FlagValue();
  };
  EXPECT_EQ(recorded("optimizer"), core::FlagValue(std::string("torch_adamw")));
  EXPECT_EQ(recorded("batch_size"), core::FlagValue(int64_t{8}));
  EXPECT_EQ(recorded("num_epochs"), core::FlagValue(60.0));
  EXPECT_EQ(recorded("num_learning_rate_warmup_epochs"), core::FlagValue(3.0));
  EXPECT_EQ(recorded("label_smoothing"), core::FlagValue(0.1));
  EXPECT_EQ(recorded("early_stop"), core::FlagValue(int64_t{15}));
  EXPECT_EQ(recorded("freeze_until"), core::FlagValue(std::vector<std::string>{"backbone:6"}));
  EXPECT_EQ(recorded("random_crop_area"), core::FlagValue(std::string("0.35,1")));
  EXPECT_EQ(recorded("use_bf16"), core::FlagValue(core::cpu_has_avx512_bf16()));
}

// A flag that is given is no choice, and the header's line does not show it.
TEST_F(FineTuning, ShowsNoFlagThatIsGiven) {
  const std::string whole = fine_tuning_line(prepared({}));
  for (const char* given :
       {"--weight_decay=0.5", "--learning_rate_schedule=constant", "--init_learning_rate=0.001",
        "--parameter_groups=", "--num_epochs=7", "--early_stop=2", "--label_smoothing=0.5", "--freeze_until=conv*:2",
        "--nouse_bf16", "--random_crop_area=0.5,1", "--num_learning_rate_warmup_epochs=2"}) {
    const std::string flag = given == std::string("--nouse_bf16") ? "--use_bf16=" : std::string(given);
    const std::string name = flag.substr(0, flag.find('=') + 1);
    EXPECT_THAT(fine_tuning_line(prepared({given})), Not(HasSubstr(name))) << given;
    if (flag == given) {
      EXPECT_THAT(whole, HasSubstr(name)) << given;
    }
  }
  const std::string sgd = fine_tuning_line(prepared({"--optimizer=momentum", "--init_learning_rate=0.01"}));
  EXPECT_THAT(sgd, Not(HasSubstr("--optimizer=")));
  EXPECT_THAT(sgd, HasSubstr("--weight_decay=0.05 "));
}

TEST_F(FineTuning, EachFlagCountsInstead) {
  EXPECT_EQ(prepared({"--batch_size=5"}).batch_size, 5);
  EXPECT_EQ(prepared({"--micro_steps=2"}).batch_size, 4) << "an update has as many images as without";
  EXPECT_EQ(prepared({"--num_epochs=7"}).options.steps.num_epochs, 7);
  const PreparedRun batches = prepared({"--num_batches=8"});
  EXPECT_EQ(batches.plan.num_batches, 8);
  EXPECT_DOUBLE_EQ(*batches.options.freeze.epochs.at(0).end, 0.2) << "a tenth of two epochs";
  EXPECT_EQ(batches.options.early_stop, 5) << "at least five evaluations";
  EXPECT_EQ(prepared({"--num_epochs=201"}).options.early_stop, 51) << "a quarter of the epochs that were asked for";
  EXPECT_EQ(prepared({"--num_batches=480"}).options.early_stop, 30) << "a quarter of 120 epochs";
  EXPECT_EQ(prepared({"--early_stop=2"}).options.early_stop, 2);
  const TfCnnOptions sgd = prepared({"--optimizer=momentum", "--init_learning_rate=0.01"}).options;
  EXPECT_EQ(sgd.update.optimizer, "tf_nesterov");
  EXPECT_EQ(sgd.learning_rate.init_learning_rate, 0.01);
  EXPECT_EQ(prepared({"--weight_decay=0"}).options.update.weight_decay, 0);
  EXPECT_THAT(prepared({"--parameter_groups="}).options.update.groups, IsEmpty());
  EXPECT_EQ(prepared({"--learning_rate_schedule=constant"}).options.learning_rate.warmup_epochs, 0);
  const TfCnnOptions piecewise = prepared({"--piecewise_learning_rate_schedule=0.1;1;0.01"}).options;
  EXPECT_EQ(piecewise.learning_rate.init_learning_rate, std::nullopt);
  EXPECT_TRUE(piecewise.learning_rate.piecewise.has_value());
  EXPECT_EQ(prepared({"--num_learning_rate_warmup_epochs=0"}).options.learning_rate.warmup_epochs, 0);
  EXPECT_EQ(prepared({"--label_smoothing=0"}).options.loss.label_smoothing, 0);
  EXPECT_THAT(prepared({"--freeze_until=conv*:2"}).options.freeze.epochs.at(0).pattern, "conv*");
  EXPECT_THAT(prepared({"--freeze="}).options.freeze.epochs, IsEmpty());
  EXPECT_FALSE(prepared({"--nouse_bf16"}).options.device.use_bf16);
  EXPECT_FLOAT_EQ(prepared({"--random_crop_area=0.5,1"}).input.transform.crop.min_area, 0.5F);
  EXPECT_THAT(fine_tuning_line(prepared({"--batch_size=5"})), Not(HasSubstr("batch_size")));
}

TEST_F(FineTuning, DoesNotSmoothSeveralLabelsAnImage) {
  std::string table = "file,labels\n";
  for (int i = 0; i < 20; ++i) table += fmt::format("black/{0}.png,dark\nwhite/{0}.png,light;grey\n", i);
  core::local_file_system().write_file_atomically(temp->file("several.csv"), table);
  const PreparedRun run = prepared({"--labels_csv=" + temp->file("several.csv")});
  EXPECT_EQ(run.options.loss.label_smoothing, 0);
  EXPECT_THAT(fine_tuning_line(run), Not(HasSubstr("label_smoothing")));
}

TEST_F(FineTuning, TrainsANewHeadAloneAtFirst) {
  const std::string head_alone = tune("head", {"--num_epochs=10", "--stop_after_epochs=1"});
  EXPECT_THAT(head_alone, AllOf(HasSubstr("Fine-tuning: "), HasSubstr("new, for 2 classes: "),
                                HasSubstr("tensors are taken from")));
  const std::set<std::string> head = moved("pretrained", "head");
  EXPECT_EQ(head.size(), 2U) << "weight and bias of the last layer";
  tune("all", {"--num_epochs=10", "--stop_after_epochs=2"});
  EXPECT_GT(moved("pretrained", "all").size(), head.size());
  // A tenth of an epoch of four steps is less than one.
  tune("one_step", {"--num_epochs=1", "--stop_after_epochs=0.25", "--num_learning_rate_warmup_epochs=0"});
  EXPECT_EQ(moved("pretrained", "one_step").size(), head.size());
}

TEST_F(FineTuning, ContinuesInEachPhaseWithTheSameBits) {
  const Arguments length{"--num_epochs=10", "--early_stop=100"};
  const auto until = [&](double epochs) {
    Arguments all = length;
    all.push_back(fmt::format("--stop_after_epochs={}", epochs));
    return all;
  };
  tune("whole", until(3));
  for (const double stop : {0.5, 1.0, 2.25}) {
    const std::string folder = fmt::format("stopped{}", stop);
    tune(folder, until(stop));
    tune(folder, until(3));
    EXPECT_THAT(moved("whole", folder), IsEmpty()) << stop;
  }
}

// The length that was chosen is the checkpoint's, even if there are more images meanwhile; the weights are not needed.
TEST_F(FineTuning, ContinuesWithItsLength) {
  for (int i = 0; i < 20; ++i) write("growing/black", i, 20 + i), write("growing/white", i, 200 + i);
  tune("growing_run", {"--stop_after_epochs=0.5"}, "growing");
  for (int i = 20; i < 400; ++i) write("growing/black", i, 20), write("growing/white", i, 200);
  const std::string log = run_in(*temp, {"--finetune", "--data_dir=" + temp->file("growing"),
                                         "--train_dir=" + temp->file("growing_run"), "--stop_after_epochs=0.1"});
  EXPECT_THAT(log, AllOf(HasSubstr("--batch_size=8 "), HasSubstr("--num_epochs=60 "), HasSubstr("--early_stop=15")));
  const std::string without =
      run_in(*temp, {"--data_dir=" + temp->file("growing"), "--train_dir=" + temp->file("growing_run"),
                     "--batch_size=8", "--num_batches=1", "--init_learning_rate=0.001", "--optimizer=torch_adamw"});
  EXPECT_THAT(without, HasSubstr("was begun with --finetune, which this command lacks"));
}

TEST_F(FineTuning, KeepsTheHeadOfTheSameClasses) {
  EXPECT_THAT(tune("same", {"--num_epochs=10", "--stop_after_epochs=0.5", "--init_learning_rate=0"}, "photos"),
              HasSubstr("none, since the weights are for these classes"));
  EXPECT_THAT(moved("pretrained", "same"), IsEmpty());
  EXPECT_THAT(tune("three_run", {"--num_epochs=10", "--stop_after_epochs=0.5"}, "three"),
              HasSubstr("new, for 3 classes: "));
}

TEST_F(FineTuning, OfAnotherModelIsAnErrorThatNamesBoth) {
  EXPECT_THAT(core::message_of([] { tune("other", {"--model=trivial"}); }),
              AllOf(HasSubstr("the weights are of another model"), HasSubstr("trivial"), HasSubstr("lenet"),
                    HasSubstr("pass --model=lenet")));
}

TEST_F(FineTuning, TakesAClassWithOneImage) {
  for (int i = 0; i < 20; ++i) write("lonely/many", i, 20 + i);
  write("lonely/one", 0, 200);
  EXPECT_THAT(tune("lonely_run", {"--num_epochs=1"}, "lonely"), HasSubstr("new, for 2 classes: "));
}

TEST_F(FineTuning, SaysWhatItNeeds) {
  const auto refused = [](const Arguments& arguments) { return core::message_of([&] { read(arguments); }); };
  EXPECT_THAT(refused({"--finetune", "--data_dir=x", "--model=resnet18"}),
              AllOf(HasSubstr("there are no weights to start from"), HasSubstr("--weights=FILE")));
  EXPECT_THAT(refused({"--finetune", "--weights=x", "--synthetic"}), HasSubstr("synthetic images"));
  EXPECT_THAT(refused({"--finetune", "--weights=x", "--eval"}), HasSubstr("is for trainings"));
  EXPECT_THAT(refused({"--finetune", "--weights=x", "--data_dir=x", "--forward_only"}), HasSubstr("is for trainings"));
  EXPECT_THAT(refused({"--finetune", "--weights=x", "--data_dir=x", "--optimizer=lars"}),
              AllOf(HasSubstr("--optimizer=lars"), HasSubstr("--init_learning_rate")));
  EXPECT_THAT(core::message_of([] {
                read({"--finetune", "--weights=x", "--data_dir=x"}, Dialect::kTfCnnBenchmarks);
              }),
              HasSubstr("trainyard train"));
}

}  // namespace
}  // namespace trainyard::frontends::fine_tuning_test
