// The commands that the end of a training prints. TrainerDefaults.TheEndSaysWhatToDoNext runs one of them.
#include "trainyard/frontends/tf_cnn/next_commands.h"

#include <string>

#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::next_commands_test {
namespace {

TEST(EvaluationCommand, HasTheFlagsThatSayWhichImages) {
  EXPECT_EQ(evaluation_command("my run", {}), "eval '--train_dir=my run'");
  EXPECT_EQ(evaluation_command("run", {.data_dir = "photos",
                                       .data_name = "cifar10",
                                       .labels_csv = "a b.csv",
                                       .on_unlabelled_file = "skip",
                                       .on_unknown_class = "skip",
                                       .split_class_folders = false}),
            "eval --train_dir=run --data_dir=photos --data_name=cifar10 '--labels_csv=a b.csv' "
            "--on_unlabelled_file=skip --on_unknown_class=skip --nosplit_class_folders");
}

TEST(ShellWord, IsQuotedUnlessItIsPlain) {
  EXPECT_EQ(shell_word("aZ09+,-./:=@_%"), "aZ09+,-./:=@_%");
  for (const char* special : {"a~b", "a*b", "a$b", "a;b", "a\"b", "a&b"}) {
    EXPECT_EQ(shell_word(special), "'" + std::string(special) + "'");
  }
}

PreparedRun run_of(const char* model) {
  PreparedRun run;
  run.model = &models::find_model(model, "imagenet");
  run.options.saving.train_dir = "runs/1";
  run.options.flags.command = {{"model", model},           {"num_batches", "7"},    {"num_epochs", "1.5"},
                               {"train_dir", "elsewhere"}, {"existing_run", "ask"}, {"stop_after_epochs", "1"}};
  run.plan.num_batches = 7;
  return run;
}

TEST(NextCommands, OfATrainingThatIsNotCompleteGoOnWithTheSameLength) {
  EXPECT_EQ(next_commands(run_of("lenet"), false),
            "Report:       trainyard report runs/1\n"
            "Predict:      trainyard predict --train_dir=runs/1 IMAGE...\n"
            "Export:       trainyard export --train_dir=runs/1 --format=onnx --output=runs/1/lenet.onnx\n"
            "Continue:     trainyard train --model=lenet --num_batches=7 --num_epochs=1.5 --train_dir=runs/1");
}

TEST(NextCommands, OfACompleteTrainingAskForTwiceAsMuch) {
  PreparedRun run = run_of("dali/resnet50");
  const std::string begin =
      "Report:       trainyard report runs/1\n"
      "Predict:      trainyard predict --train_dir=runs/1 IMAGE...\n"
      "Export:       trainyard export --train_dir=runs/1 --format=onnx --output=runs/1/dali-resnet50.onnx\n"
      "Continue:     trainyard train --model=dali/resnet50 --train_dir=runs/1";
  EXPECT_EQ(next_commands(run, true), begin + " --num_batches=14");
  run.options.steps.num_epochs = 1.5;
  EXPECT_EQ(next_commands(run, true), begin + " --num_epochs=3");
}

// With the same --early_stop the run would have nothing left to do.
TEST(NextCommands, OfATrainingThatAnEarlyStopHasEndedAskForMoreEvaluations) {
  PreparedRun run = run_of("lenet");
  run.options.early_stop = 3;
  run.options.flags.command = {{"model", "lenet"}, {"early_stop", "3"}, {"num_batches", "7"}};
  const auto continued = [&run](bool complete, bool ended_early) {
    const std::string text = next_commands(run, complete, ended_early);
    return text.substr(text.rfind("train "));
  };
  EXPECT_EQ(continued(false, true), "train --model=lenet --num_batches=7 --train_dir=runs/1 --early_stop=6");
  EXPECT_EQ(continued(true, true), "train --model=lenet --train_dir=runs/1 --early_stop=6 --num_batches=14");
  EXPECT_EQ(continued(false, false), "train --model=lenet --early_stop=3 --num_batches=7 --train_dir=runs/1");
}

TEST(NextCommands, EvaluateOnTheImagesOfTheTraining) {
  PreparedRun run = run_of("lenet");
  const auto evaluation = [&] {
    const std::string text = next_commands(run, true);
    const size_t begin = text.find("\nEvaluate:     ") + 1;
    return begin == 0 ? "none" : text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(evaluation(), "none") << "synthetic images";
  run.input.data_dir = "photos";
  EXPECT_EQ(evaluation(), "Evaluate:     trainyard eval --train_dir=runs/1 --data_dir=photos");
  run.options.input.data_name = "imagenet";
  run.input.labels_csv = "table.csv";
  run.input.on_unlabelled_file = data::OnUnlabelledFile::kSkip;
  run.input.split_class_folders = false;
  EXPECT_EQ(evaluation(),
            "Evaluate:     trainyard eval --train_dir=runs/1 --data_dir=photos --data_name=imagenet "
            "--labels_csv=table.csv --on_unlabelled_file=skip --nosplit_class_folders");
  run.input.on_unlabelled_file = data::OnUnlabelledFile::kFail;
  run.input.on_unknown_class = data::OnUnknownClass::kSkip;
  EXPECT_EQ(evaluation(),
            "Evaluate:     trainyard eval --train_dir=runs/1 --data_dir=photos --data_name=imagenet "
            "--labels_csv=table.csv --on_unknown_class=skip --nosplit_class_folders");
}

TEST(GivenFlags, AreThoseOfTheCommandLineButForThoseNamed) {
  PreparedRun run;
  EXPECT_EQ(given_flags(run, {}), "");
  run.options.flags.command = {{"model", "lenet"}, {"data_dir", "my photos"}, {"batch_size", "8"}};
  EXPECT_EQ(given_flags(run, {}), " --model=lenet '--data_dir=my photos' --batch_size=8");
  EXPECT_EQ(given_flags(run, {"model", "batch_size"}), " '--data_dir=my photos'");
}

}  // namespace
}  // namespace trainyard::frontends::next_commands_test
