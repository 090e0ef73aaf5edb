#include "trainyard/frontends/tf_cnn/run_agreement.h"

#include <array>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::run_agreement_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;

TEST(RunAgreement, RanksTakeTheSizeOfTheFirstAndTheSmallestNumber) {
  parallel::on_ranks(3, [](const Group& group) {
    const int rank = group->rank();
    EXPECT_EQ(size_of_first(*group, "the size of images", [&] { return nn::Size2d(20 + rank, 24 + rank); }),
              nn::Size2d(20, 24))
        << rank;
    EXPECT_EQ(smallest_of_ranks(*group, rank == 1 ? 5 : 7 + rank), 5) << rank;
  });
}

TEST(RunAgreement, WhatDiffersIsNamed) {
  std::array<std::string, 2> errors;
  parallel::on_ranks(2, [&](const Group& group) {
    PreparedRun run;
    run.device.processes = group;
    require_same_flags(run);
    run.replicas = 1 + group->rank();
    errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_flags(run); });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("replicas of a process (--num_gpus): rank 1: expected 1 as on rank 0, got 2"));
  }
  parallel::on_ranks(2, [&](const Group& group) {
    PreparedRun run;
    run.device.processes = group;
    run.options.mode = group->rank() == 0 ? RunMode::kTraining : RunMode::kForwardOnly;
    errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_flags(run); });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the mode of the run: rank 1: expected training as on rank 0, got forward only"));
  }
}

nn::Graph linear(int64_t outputs) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "linear"});
  return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = outputs}));
}

// Returns what two ranks say of their models and data, the second of which `change` has changed.
std::string difference(const std::function<void(PreparedRun&)>& change) {
  std::array<std::string, 2> errors;
  parallel::on_ranks(2, [&](const Group& group) {
    PreparedRun run;
    run.device.processes = group;
    run.model = &models::find_model("lenet", "imagenet");
    run.graph = linear(4);
    run.batch_size = 8;
    run.input.dataset = "imagenet";
    run.train_examples = 80;
    run.validation_examples = 30;
    run.num_classes = 4;
    run.classes.names = {"cat", "dog"};
    if (group->rank() == 1) change(run);
    errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_model_and_data(run); });
  });
  EXPECT_EQ(errors[0], errors[1]) << "all ranks say the same";
  return errors[0];
}

TEST(RunAgreement, EachFactOfTheModelAndTheDataIsCompared) {
  EXPECT_EQ(difference([](PreparedRun&) {}), "no error");
  const auto says = [](const std::string& item, const std::string& first, const std::string& other) {
    return HasSubstr(item + ": rank 1: expected " + first + " as on rank 0, got " + other + ";");
  };
  EXPECT_THAT(difference([](PreparedRun& run) { run.model = &models::find_model("vgg16", "imagenet"); }),
              says("the model", "lenet", "vgg16"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.batch_size = 9; }),
              says("images a replica and step (--batch_size)", "8", "9"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.device.executor = "reference"; }),
              says("what computes the model (--executor)", "auto", "reference"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.device.dtype = at::kBFloat16; }),
              says("the floats of activations", "Float", "BFloat16"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.input.dataset = "cifar10"; }),
              says("the data set", "imagenet", "cifar10"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.train_examples = 81; }), says("training images", "80", "81"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.validation_examples = 31; }),
              says("validation images", "30", "31"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.num_classes = 5; }), says("outputs of the model", "4", "5"));
  EXPECT_THAT(difference([](PreparedRun& run) {
                run.classes.names = {"cat", "cow"};
              }),
              says("class 1 of the data", "dog", "cow"));
  EXPECT_THAT(difference([](PreparedRun& run) { run.graph = linear(5); }), HasSubstr("layer head of the model and "));
}

TEST(RunAgreement, TheFilesOfTheDataAreCompared) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  for (const char* folder : {"one", "same", "other"}) {
    const bool other = folder[0] == 'o' && folder[1] == 't';
    files.make_directories(temp.file(folder));
    files.write_file_atomically(core::join_path(temp.file(folder), "a.jpg"), other ? "four" : "five.");
  }
  files.write_file_atomically(temp.file("a.csv"), "a,b\n");
  files.write_file_atomically(temp.file("b.csv"), "a,b,c\n");
  const auto on = [&](const char* folder, const char* table, bool both) {
    std::array<std::string, 2> errors;
    parallel::on_ranks(2, [&](const Group& group) {
      PreparedRun run;
      run.device.processes = group;
      run.model = &models::find_model("lenet", "imagenet");
      run.graph = linear(4);
      const bool first = group->rank() == 0;
      run.input.data_dir = temp.file(first ? "one" : folder);
      if (both) run.input.labels_csv = temp.file(first ? "a.csv" : table);
      errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_model_and_data(run); });
    });
    return errors[0];
  };
  EXPECT_EQ(on("same", "", false), "no error") << "paths may differ";
  EXPECT_THAT(on("other", "", false), HasSubstr("files of --data_dir (names, sizes): rank 1: "));
  EXPECT_EQ(on("same", "a.csv", true), "no error");
  const std::string tables = on("same", "b.csv", true);
  EXPECT_THAT(tables, HasSubstr("the table of --labels_csv: rank 1: expected 4 bytes, "));
  EXPECT_THAT(tables, HasSubstr(" as on rank 0, got 6 bytes, "));
}

}  // namespace
}  // namespace trainyard::frontends::run_agreement_test
