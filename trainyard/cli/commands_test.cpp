// The commands that do not train: their output is an interface, so its form is golden.
#include <algorithm>
#include <regex>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/doctor_report.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::commands_test {
namespace {

using Json = nlohmann::json;

const std::string kGolden = "trainyard/cli/testdata/";

TEST(Commands, NoArgumentsListTheCommandsAndFail) {
  const CommandResult result = run_command({});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_TRUE(core::matches_golden(result.out, kGolden + "commands.txt"));
  EXPECT_EQ(run_command({"--help"}).code, kSuccess);
}

// What looks at no request to stop would say that it is saving, and go on.
TEST(Commands, OneSignalEndsThoseThatHaveNoStepToFinish) {
  for (const Arguments& arguments :
       {Arguments{"bench", "layers", "--model=lenet"}, Arguments{"bench", "allreduce"},
        Arguments{"bench", "quantization"}, Arguments{"data", "index", "DIR"}, Arguments{"data", "make-shapes"},
        Arguments{"quantize", "FILE"}, Arguments{"export"}, Arguments{"report", "runs"}, Arguments{"suite", "--list"},
        Arguments{"report", "runs", "--watch=0"}, Arguments{"report", "--output", "--watch"},
        Arguments{"suite", "--list=1"}, Arguments{"suite", "-list=yes"}}) {
    EXPECT_FALSE(stops_on_request(arguments)) << arguments[0];
  }
  for (const Arguments& arguments :
       {Arguments{"train", "--model=lenet"}, Arguments{"--model=trivial"}, Arguments{"launch", "-n", "2"},
        Arguments{"bench", "latency"}, Arguments{"bench", "data"}, Arguments{"data", "convert"},
        Arguments{"data", "verify"}, Arguments{"predict"}, Arguments{"report", "runs", "--watch"},
        Arguments{"tune", "FILE"}, Arguments{"suite", "--run=*"}, Arguments{"report", "--watch=1", "runs"},
        Arguments{"report", "runs", "-watch"}, Arguments{"suite", "--list=0", "--run=*"}}) {
    EXPECT_TRUE(stops_on_request(arguments)) << arguments[0];
  }
}

TEST(Commands, AnUnknownCommandSuggestsTheNearest) {
  const CommandResult result = run_command({"tran"});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_NE(result.err.find("train"), std::string::npos) << result.err;
  EXPECT_EQ(count_lines(result.err, "."), 1) << result.err;
}

TEST(Commands, AnUnknownFlagSuggestsTheNearest) {
  const CommandResult result = run_command({"train", "--batch_sizes=4"});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_NE(result.err.find("did you mean --batch_size?"), std::string::npos) << result.err;
}

// What people of other programs type first.
TEST(Commands, AFlagOfAnotherProgramSuggestsOurs) {
  for (const auto& [typed, meant] : {std::pair{"--lr=0.1", "init_learning_rate"},
                                     {"--epochs=3", "num_epochs"},
                                     {"--batch=8", "batch_size"},
                                     {"--learning-rate=0.1", "init_learning_rate"},
                                     {"--data=photos", "data_dir"},
                                     {"--output=x", "train_dir"}}) {
    const CommandResult result = run_command({"train", "--model=lenet", typed});
    EXPECT_EQ(result.code, kUsage);
    EXPECT_NE(result.err.find(std::string("did you mean --") + meant + "?"), std::string::npos) << result.err;
  }
}

TEST(Commands, HelpShowsTheFlagsThatPeopleUse) {
  const std::string train = run_command({"train", "--help"}).out, eval = run_command({"eval", "--help"}).out,
                    all = run_command({"train", "--help=all"}).out;
  const int few = count_lines(train, "^  --");
  EXPECT_GE(few, 20) << train;
  EXPECT_LE(few, 30) << train;
  EXPECT_GT(count_lines(all, "^  --"), 200);
  EXPECT_EQ(count_lines(train, "`trainyard train --help=all` shows all"), 1);
  EXPECT_EQ(count_lines(eval, "`trainyard eval --help=all` shows all"), 1);
  EXPECT_EQ(count_lines(eval, "^  --train_dir="), 1);
  EXPECT_EQ(count_lines(eval, "^  --num_epochs="), 0) << "an evaluation has none";
  EXPECT_EQ(count_lines(eval, "^usage: trainyard eval "), 1);
}

TEST(Commands, EachCommandHasHelp) {
  for (const std::string name :
       {"train", "eval", "launch", "program", "predict", "export", "data", "models", "bench", "doctor", "help"}) {
    const CommandResult result = run_command({name, "--help"});
    EXPECT_EQ(result.code, kSuccess) << name;
    EXPECT_GT(result.out.size(), 60u) << name;
  }
  EXPECT_TRUE(core::matches_golden(run_command({"predict", "--help"}).out, kGolden + "predict_help.txt"));
}

TEST(Commands, HelpEndsWithTheFormulasOfTheOptimizers) {
  const std::string help = run_command({"help"}).out;
  const size_t list = help.find("\nValues of --optimizer\n");
  ASSERT_NE(list, std::string::npos);
  for (const std::string line : {"\n  tf_nesterov: TensorFlow 1's MomentumOptimizer with use_nesterov",
                                 "\n    v = m * v + g;  w -= lr * (g + m * v)\n", "\n  lamb: You et al.",
                                 "\n    w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + epsilon)\n"}) {
    EXPECT_NE(help.find(line, list), std::string::npos) << line;
  }
}

TEST(Commands, ModelsListsTheZoo) {
  // Without the model that detection_runs_test.cpp adds to this program.
  const std::string listed = std::regex_replace(run_command({"models"}).out, std::regex("tiny_ssd [^\n]*\n"), "");
  EXPECT_TRUE(core::matches_golden(listed, kGolden + "models.txt"));
}

TEST(Commands, ModelsShowsTheLayersOfOne) {
  EXPECT_TRUE(core::matches_golden(run_command({"models", "lenet"}).out, kGolden + "models_lenet.txt"));
  EXPECT_EQ(run_command({"models", "torchvision/squeezenet1_1"}).out, run_command({"models", "squeezenet1_1"}).out);
  const CommandResult unknown = run_command({"models", "resnet21", "--data_name=cifar10"});
  EXPECT_EQ(unknown.code, kUsage);
  EXPECT_NE(unknown.err.find("resnet20"), std::string::npos) << unknown.err;
}

TEST(Commands, ModelsAreShownAtTheSizeOfImagesThatIsAskedFor) {
  const CommandResult wide = run_command({"models", "lenet", "--json", "--image_size=28x32"});
  const Json model = Json::parse(wide.out)[0];
  EXPECT_EQ(model["image_size"], "28x32");
  // Its first linear layer takes 64 channels of 7 x 8 instead of 7 x 7 pixels.
  const Json own = Json::parse(run_command({"models", "lenet", "--json"}).out)[0];
  EXPECT_EQ(own["image_size"], 28);
  EXPECT_EQ(model["parameters"].get<int64_t>() - own["parameters"].get<int64_t>(), 64 * 7 * 512);
  EXPECT_NE(run_command({"models", "--image_size=28"}).err.find("name it"), std::string::npos);
}

TEST(Commands, ModelsAreAListInJson) {
  const Json list = Json::parse(run_command({"models", "--json"}).out);
  ASSERT_GT(list.size(), 80u);
  for (const Json& model : list) {
    EXPECT_EQ(model.size(), 7u) << model;
    EXPECT_GT(model["parameters"].get<int64_t>(), 0) << model;
  }
  const Json expected = {
      {"name", "torchvision/resnet50"}, {"dataset", "imagenet"},    {"image_size", 224},
      {"parameters", 25557032},         {"default_batch_size", 32}, {"equals", "torchvision/resnet50"}};
  Json one = Json::parse(run_command({"models", "torchvision/resnet50", "--json"}).out);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_NEAR(one[0]["gflops"].get<double>(), 8.178, 0.001);
  one[0].erase("gflops");
  EXPECT_EQ(one[0], expected);
  EXPECT_NE(std::find_if(list.begin(), list.end(), [](const Json& m) { return m["name"] == "resnet110_v2"; }),
            list.end());
}

TEST(Commands, ModelsDrawsAGraph) {
  const core::TempDir temp;
  const auto drawn = [&](const std::string& file) {
    const CommandResult result = run_command({"models", "resnet20", "--graph=" + temp.file(file)});
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return core::local_file_system().read_file(temp.file(file), 1 << 24);
  };
  EXPECT_TRUE(drawn("graph.dot").starts_with("digraph \"resnet20\""));
  EXPECT_TRUE(drawn("graph.svg").starts_with("<svg "));
  EXPECT_EQ(run_command({"models", "resnet20", "--graph=" + temp.file("graph.png")}).code, kUsage);
  EXPECT_EQ(run_command({"models", "--graph=" + temp.file("graph.svg")}).code, kUsage);
}

TEST(Commands, DoctorsReportHasAFixedForm) {
  std::ostringstream out;
  print_report({{{"Machine", {{"processor", "X"}, {"cores for us", "2"}}}, {"Features", {{"CUDA", "missing: Y"}}}}},
               out);
  EXPECT_TRUE(core::matches_golden(out.str(), kGolden + "doctor_form.txt"));
}

TEST(Commands, DoctorNamesWhatIsThereAndWhatIsMissing) {
  const CommandResult result = run_command({"doctor"});
  EXPECT_EQ(result.code, kSuccess);
  for (const char* expected : {"processor", "in use", "AVX2", "LibTorch", "oneDNN", "CPU training", "HDF5", "CUDA"}) {
    EXPECT_NE(result.out.find(expected), std::string::npos) << expected << "\n" << result.out;
  }
}

TEST(Commands, DoctorSaysHowTheProgramWasBuilt) {
  core::BuildInfo info{.version = "1.2.3",
                       .git_revision = "4f2a91c",
                       .compiler = "GNU 12.2.0",
                       .build_type = "Dev",
                       .instruction_set = "x86-64-v3",
                       .sanitizers = "address,undefined",
                       .libraries = {{"fmt", "9.1.0"}}};
  DoctorReport::Section expected{"Build",
                                 {{"Trainyard", "1.2.3 (4f2a91c)"},
                                  {"compiler", "GNU 12.2.0"},
                                  {"build type", "Dev"},
                                  {"instruction set", "x86-64-v3"},
                                  {"sanitizers", "address,undefined"},
                                  {"fmt", "9.1.0"}}};
  EXPECT_EQ(build_section(info).rows, expected.rows);
  info.sanitizers = "";
  expected.rows.erase(expected.rows.begin() + 4);
  EXPECT_EQ(build_section(info).rows, expected.rows);
}

TEST(Commands, DoctorSaysWhatIsMissingForCuda) {
  const auto finding = [](bool built_in, bool toolkit_found) {
    const DoctorReport::Section section =
        features_section({{"CUDA", built_in, "the toolkit"}, {"HDF5", false, "libhdf5-dev"}}, toolkit_found);
    EXPECT_EQ(section.rows.back(), std::pair(std::string("HDF5"), std::string("missing: libhdf5-dev")));
    return section.rows[section.rows.size() - 2].second;
  };
  EXPECT_EQ(finding(false, false), "missing: the toolkit");
  EXPECT_EQ(finding(false, true), "toolkit found, not built in: cmake --preset cuda");
  EXPECT_EQ(finding(true, true), "built in");
}

TEST(Commands, VersionIsOneLine) {
  const CommandResult result = run_command({"--version"});
  EXPECT_EQ(result.code, kSuccess);
  EXPECT_EQ(result.out,
            fmt::format("trainyard {} ({})\n", core::build_info().version, core::build_info().git_revision));
  EXPECT_EQ(run_command({"--version", "--model=trivial"}).code, kUsage);
}

TEST(Commands, MakeShapesWritesADataSetOnceAndRefusesAnotherPlace) {
  const core::TempDir temp;
  const std::string output = temp.file("shapes");
  const Arguments command = {"data", "make-shapes", "--output=" + output, "--train_count=24", "--validation_count=12"};
  EXPECT_EQ(run_command(command).code, kSuccess);
  EXPECT_EQ(core::local_file_system().list(output).size(), 3u);
  core::local_file_system().write_file_atomically(temp.file("taken"), "x");
  EXPECT_NE(run_command({"data", "make-shapes", "--output=" + temp.file("taken")}).code, kSuccess);
  EXPECT_EQ(run_command({"data", "make-shapes"}).code, kUsage);
  EXPECT_EQ(run_command({"data", "make-shape"}).code, kUsage);
}

}  // namespace
}  // namespace trainyard::cli::commands_test
