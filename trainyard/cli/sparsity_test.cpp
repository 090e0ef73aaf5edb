// 2:4 sparsity as a user has it: `trainyard sparsity`, and `trainyard train --asp`.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::sparsity_test {
namespace {

// resnet20 has 18 convolutions of four inputs and more; its first one has three, and fc makes the output.
constexpr const char* kAllSparse = "^18 of 18 weights that can be sparse are 2:4; their density is 0.500$";
constexpr const char* kNoneSparse = "^0 of 18 weights that can be sparse are 2:4; their density is 1.000$";

class Sparsity : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir();
    ASSERT_EQ(train({"--train_dir=" + shared->file("dense")}).code, kSuccess);
  }
  static void TearDownTestSuite() { delete shared; }

  static CommandResult train(const Arguments& more) {
    return run_command(with_flags(
        {"train", "--model=resnet20", "--data_name=cifar10", "--synthetic", "--num_classes=10", "--device=cpu",
         "--batch_size=4", "--num_batches=2", "--num_warmup_batches=0", "--optimizer=tf_nesterov",
         "--weight_decay=0.01", "--init_learning_rate=0.01", "--num_intra_threads=1"},
        more));
  }
  static void expect_sparsity(const std::string& of, const char* line, const Arguments& more = {}) {
    Arguments arguments = {"sparsity", of};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_EQ(count_lines(result.out, line), 1) << of << "\n" << result.out;
  }
  static void expect_refused(const Arguments& arguments, const std::string& part, int code = kUsage) {
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(count_lines(result.err, " error "), 1) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }

  static core::TempDir* shared;
  const std::string dense_ = shared->file("dense");
  const core::TempDir temp_;
};

core::TempDir* Sparsity::shared = nullptr;

TEST_F(Sparsity, ReportsEachLayer) {
  const CommandResult report = run_command({"sparsity", dense_});
  EXPECT_EQ(report.code, kSuccess) << report.err;
  EXPECT_EQ(count_lines(report.out, kNoneSparse), 1) << report.out;
  EXPECT_EQ(count_lines(report.out, "^\\S+weight +\\[[0-9, ]+\\] +1\\.000  no +0\\.[78][0-9]+$"), 18) << report.out;
  EXPECT_EQ(count_lines(report.out, "\\[16, 3, 3, 3\\] +1\\.000  no +-  dense: 3 inputs$"), 1) << report.out;
  EXPECT_EQ(count_lines(report.out, "\\[10, 64\\] +1\\.000  no +-  dense: excluded$"), 1) << report.out;

  const CommandResult text = run_command({"sparsity", dense_, "--json", "--asp_exclude=", "--mask_algo=mask_2d_best"});
  ASSERT_EQ(text.code, kSuccess) << text.err;
  const auto json = nlohmann::json::parse(text.out);
  EXPECT_EQ(json["model"], "resnet20");
  EXPECT_EQ(json["mask_algo"], "mask_2d_best");
  EXPECT_EQ(json["sparse_weights"], 19);
  EXPECT_EQ(json["two_of_four_weights"], 0);
  ASSERT_EQ(json["weights"].size(), 20U);
  EXPECT_EQ(json["weights"][0]["treatment"], "few inputs");
  EXPECT_EQ(json["weights"][19]["shape"], (std::vector<int>{10, 64}));
  EXPECT_LT(json["weights"][5]["kept"], 0.8);
}

TEST_F(Sparsity, PrunesIntoAFileThatOtherCommandsTake) {
  const std::string file = temp_.file("sparse.safetensors"), again = temp_.file("again.safetensors");
  const CommandResult pruned = run_command({"sparsity", dense_, "--prune", "--output=" + file});
  ASSERT_EQ(pruned.code, kSuccess) << pruned.err;
  EXPECT_EQ(count_lines(pruned.out, kAllSparse), 1) << pruned.out;
  expect_sparsity(file, kAllSparse, {"--verify"});
  expect_sparsity(dense_, kNoneSparse);
  expect_refused({"sparsity", dense_, "--verify"}, "18 of 18 weights that can be sparse are not 2:4", kFailure);
  const auto path = [](const std::string& of) {
    return nlohmann::json::parse(run_command({"sparsity", of, "--json"}).out).at("path").get<std::string>();
  };
  EXPECT_EQ(path(file), file);
  EXPECT_EQ(path(dense_), train::find_checkpoint(dense_).path);
  // From a file into a file.
  ASSERT_EQ(run_command({"sparsity", file, "--prune", "--asp_exclude=", "--output=" + again}).code, kSuccess);
  expect_sparsity(again, "^19 of 19 weights", {"--asp_exclude=", "--verify"});

  // A training that starts from it without --asp does not hold the zeros, and one with --asp does.
  ASSERT_EQ(train({"--weights=" + file, "--train_dir=" + temp_.file("free")}).code, kSuccess);
  expect_sparsity(temp_.file("free"), kNoneSparse);
  ASSERT_EQ(train({"--weights=" + file, "--asp", "--train_dir=" + temp_.file("held")}).code, kSuccess);
  expect_sparsity(temp_.file("held"), kAllSparse, {"--verify"});
}

TEST_F(Sparsity, ATrainingGoesOnFromAPrunedCheckpoint) {
  const std::string run = temp_.file("run");
  const CommandResult pruned =
      run_command({"sparsity", dense_, "--prune", "--mask_algo=mask_2d_greedy", "--output=" + run});
  ASSERT_EQ(pruned.code, kSuccess) << pruned.err;
  EXPECT_EQ(train::find_checkpoint(run).global_step, 2);
  const CommandResult more = train({"--train_dir=" + run, "--num_batches=5"});
  ASSERT_EQ(more.code, kSuccess) << more.err;
  EXPECT_EQ(train::find_checkpoint(run).global_step, 5);
  const CommandResult report = run_command({"sparsity", run, "--verify"});
  EXPECT_EQ(report.code, kSuccess) << report.out;
  EXPECT_EQ(count_lines(report.out, " yes .* mask$"), 18) << report.out;
}

TEST_F(Sparsity, ATrainingPrunesWhatItStartsFromOnce) {
  const std::string run = temp_.file("run");
  for (const Arguments& start :
       {Arguments{}, Arguments{"--num_gpus=2", "--variable_update=replicated", "--micro_steps=2"},
        Arguments{"--optimizer=sgd", "--num_gpus=2"}}) {
    const std::string fresh = temp_.file("fresh" + std::to_string(start.size()));
    Arguments arguments = start;
    arguments.insert(arguments.end(), {"--asp", "--mask_algo=mask_2d_best", "--train_dir=" + fresh});
    const CommandResult trained = train(arguments);
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    EXPECT_EQ(count_lines(trained.err,
                          "2:4 sparsity: 18 weights pruned by mask_2d_best, which keeps .* dense: "
                          "\\S+ \\(3 inputs\\), \\S+ \\(excluded\\)$"),
              1)
        << trained.err;
    expect_sparsity(fresh, kAllSparse, {"--verify"});
  }
  // The masks stay, whatever the resumed run says.
  for (const Arguments& flags : {Arguments{"--asp", "--num_batches=3"}, Arguments{"--num_batches=4"}}) {
    Arguments arguments = flags;
    arguments.push_back("--train_dir=" + temp_.file("fresh0"));
    const CommandResult more = train(arguments);
    ASSERT_EQ(more.code, kSuccess) << more.err;
    EXPECT_EQ(count_lines(more.err, "goes on with the masks of its checkpoint"), flags.size() == 2 ? 1 : 0) << more.err;
    expect_sparsity(temp_.file("fresh0"), kAllSparse, {"--verify"});
  }
  // A dense checkpoint is pruned when --asp comes to it.
  ASSERT_EQ(train({"--train_dir=" + run}).code, kSuccess);
  ASSERT_EQ(train({"--train_dir=" + run, "--num_batches=4", "--asp", "--asp_exclude=none*,fc*"}).code, kUsage);
  const CommandResult late = train({"--train_dir=" + run, "--num_batches=4", "--asp", "--asp_exclude="});
  ASSERT_EQ(late.code, kSuccess) << late.err;
  EXPECT_EQ(count_lines(late.err, "19 weights pruned by mask_1d"), 1) << late.err;
  expect_sparsity(run, "^19 of 19", {"--asp_exclude=", "--verify"});
}

TEST_F(Sparsity, ExportsHoldTheZeros) {
  const std::string run = temp_.file("run"), file = temp_.file("a.safetensors");
  ASSERT_EQ(train({"--asp", "--train_dir=" + run}).code, kSuccess);
  ASSERT_EQ(run_command({"export", "--train_dir=" + run, "--output=" + file}).code, kSuccess);
  expect_sparsity(file, kAllSparse, {"--verify"});
  // The numbers of the networks for other programs are those of the file.
  for (const std::string format : {"onnx", "hdf5"}) {
    const std::string one = temp_.file("one." + format), other = temp_.file("other." + format);
    const CommandResult exported =
        run_command({"export", "--train_dir=" + run, "--format=" + format, "--output=" + one});
    if (exported.code != kSuccess && format == "hdf5") continue;  // not built in
    ASSERT_EQ(exported.code, kSuccess) << exported.err;
    ASSERT_EQ(run_command({"export", "--weights=" + file, "--format=" + format, "--output=" + other}).code, kSuccess);
    EXPECT_EQ(core::local_file_system().read_file(one), core::local_file_system().read_file(other)) << format;
  }
}

TEST_F(Sparsity, RefusesWhatCannotBeOrWouldLoseSomething) {
  core::FileSystem& files = core::local_file_system();
  const std::string file = temp_.file("w.safetensors");
  ASSERT_EQ(run_command({"export", "--train_dir=" + dense_, "--output=" + file}).code, kSuccess);
  const std::string before = files.read_file(file);
  expect_refused({"sparsity"}, "takes one checkpoint");
  expect_refused({"sparsity", dense_, file}, "takes one checkpoint");
  expect_refused({"sparsity", temp_.file("nowhere")}, "there is no such checkpoint", kFailure);
  expect_refused({"sparsity", dense_, "--prune"}, "--output is missing");
  expect_refused({"sparsity", dense_, "--output=" + file}, "--output is of --prune");
  expect_refused({"sparsity", file, "--prune", "--output=" + file}, "is the file that is pruned");
  expect_refused({"sparsity", file, "--prune", "--output=" + temp_.file("run")}, "NAME.safetensors");
  expect_refused({"sparsity", dense_, "--prune", "--output=" + dense_}, "holds a run already");
  expect_refused({"sparsity", dense_, "--prune", "--output=" + shared->path() + "/x/../dense"}, "holds a run already");
  expect_refused({"sparsity", dense_, "--mask_algo=mask_3d"}, "mask_algo");
  expect_refused({"sparsity", dense_, "--asp_exclude=no_such_layer"}, "no_such_layer", kUsage);
  expect_refused({"sparsity", file, "--model=resnet56"}, "weights are not of this model");
  files.write_file_atomically(temp_.file("plain"), "x");
  expect_refused({"sparsity", dense_, "--prune", "--output=" + temp_.file("plain")}, "--output is a file");
  expect_refused({"sparsity", temp_.file("plain")}, "plain", kFailure);
  EXPECT_EQ(files.read_file(file), before);

  const auto problem = [&](Arguments flags) {
    flags.emplace_back("--train_dir=");
    return train(flags).err;
  };
  EXPECT_NE(problem({"--mask_algo=mask_2d_best"}).find("--mask_algo is of --asp"), std::string::npos);
  EXPECT_NE(problem({"--asp_exclude=fc"}).find("--asp_exclude is of --asp"), std::string::npos);
  EXPECT_NE(problem({"--asp", "--forward_only"}).find("--asp prunes what a training starts from"), std::string::npos);
  EXPECT_NE(problem({"--asp", "--asp_exclude=*"}).find("no weight that could be pruned"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::cli::sparsity_test
