// Graph files and profiles of whole runs: names, lines and where they stand. What ONNX Runtime computes of a graph is
// compared in tests/program_test.py, what protobuf reads of a profile in tests/protobuf_parses_profile.py.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/step_recording.h"
#include "trainyard/nn/execution/node_cost.h"

namespace trainyard::frontends::graphs_and_profiles_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

class GraphsAndProfiles : public ::testing::Test {
 protected:
  static TfCnnOptions options() {
    TfCnnOptions options;
    options.model = "lenet";
    options.batch_size = 2;
    options.steps.num_batches = 2;
    options.steps.num_warmup_batches = 3;
    options.device.gpu = false;
    options.device.replicas = 2;
    return options;
  }
  std::string run(const TfCnnOptions& options) const {
    std::ostringstream out;
    BenchmarkCnn(options).run(out);
    return out.str();
  }
  bool exists(const std::string& name) const { return core::local_file_system().exists(temp_.file(name)); }
  std::string read(const std::string& name) const { return core::local_file_system().read_file(temp_.file(name)); }

  core::TempDir temp_;
};

TEST_F(GraphsAndProfiles, AreWrittenWhereTheirLinesSay) {
  TfCnnOptions asked = options();
  asked.display.graph_file = temp_.file("new/graph.txt");
  asked.display.partitioned_graph_file_prefix = temp_.file("part.onnx");
  asked.display.tfprof_file = temp_.file("profile");
  const std::string lines = run(asked);
  EXPECT_THAT(lines, HasSubstr("Initializing graph\nWriting GraphDef as text to " + asked.display.graph_file +
                               "\nRunning warm up\nWriting partitioned GraphDef as binary to " +
                               temp_.file("part_cpu_0.onnx") + "\nWriting partitioned GraphDef as binary to " +
                               temp_.file("part_cpu_1.onnx") + "\nDone warm up\n"));
  EXPECT_THAT(lines, HasSubstr("Dumping ProfileProto to " + asked.display.tfprof_file + "\n"));
  EXPECT_THAT(read("new/graph.txt"),
              HasSubstr("node {\n  name: \"conv1\"\n  op: \"convolution\"\n  input: \"input\"\n"));
  EXPECT_GT(read("part_cpu_0.onnx").size(), 1000U);
  // One copy of the variables, which both devices read.
  EXPECT_EQ(read("part_cpu_0.onnx"), read("part_cpu_1.onnx"));
  EXPECT_THAT(read("profile"), HasSubstr("gradients/conv1"));
  EXPECT_THAT(read("profile.json"), HasSubstr("\"layers\""));
}

TEST_F(GraphsAndProfiles, EachIndependentDeviceHasItsOwnWeights) {
  TfCnnOptions asked = options();
  asked.device.variable_update = "independent";
  asked.display.partitioned_graph_file_prefix = temp_.file("part.onnx");
  run(asked);
  EXPECT_NE(read("part_cpu_0.onnx"), read("part_cpu_1.onnx"));
}

TEST_F(GraphsAndProfiles, ForwardPassesWriteThemToo) {
  TfCnnOptions asked = options();
  asked.mode = RunMode::kForwardOnly;
  asked.display.graph_file = temp_.file("graph.onnx");
  asked.display.partitioned_graph_file_prefix = temp_.file("part.txt");
  asked.display.tfprof_file = temp_.file("profile.json");
  EXPECT_THAT(run(asked), HasSubstr("Writing GraphDef as binary to " + asked.display.graph_file));
  EXPECT_TRUE(exists("graph.onnx") && exists("part_cpu_0.txt") && exists("part_cpu_1.txt"));
  EXPECT_THAT(read("profile.json"), HasSubstr("\"layers\""));
  EXPECT_THAT(read("profile.pb"), HasSubstr("device:CPU:1"));
}

// Micro-steps are parts of an update, of which forward passes have none.
TEST_F(GraphsAndProfiles, CountTheImagesOfAllMicroSteps) {
  TfCnnOptions asked = options();
  asked.micro_steps = 3;
  asked.display.tfprof_file = temp_.file("profile.json");
  run(asked);
  EXPECT_EQ(nlohmann::json::parse(read("profile.json"))["batch_size"], 2 * 2 * 3);
  asked.mode = RunMode::kForwardOnly;
  run(asked);
  EXPECT_EQ(nlohmann::json::parse(read("profile.json"))["batch_size"], 2 * 2);
}

// Times of inference are none of a training, which `trainyard simulate` needs.
TEST_F(GraphsAndProfiles, SayWhatTheStepsWere) {
  TfCnnOptions asked = options();
  asked.display.tfprof_file = temp_.file("profile.json");
  const auto conditions = [&] {
    run(asked);
    return nlohmann::json::parse(read("profile.json"))["conditions"].get<std::vector<std::string>>();
  };
  EXPECT_THAT(conditions(), IsEmpty());
  asked.freeze_when_forward_only = true;
  EXPECT_THAT(conditions(), IsEmpty()) << "of a training";
  asked.mode = RunMode::kForwardOnly;
  EXPECT_THAT(conditions(), ElementsAre("forward only, frozen"));
  asked.freeze_when_forward_only = false;
  asked.image_size = {20, 24};
  EXPECT_THAT(conditions(), ElementsAre("images of 20x24", "forward only"));
}

// Values between layers have two bytes, as `trainyard bench layers` counts them, and parameters four.
TEST_F(GraphsAndProfiles, CountTheBytesOfBfloat16) {
  if (!core::cpu_has_avx512_bf16()) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  TfCnnOptions asked = options();
  asked.device.use_bf16 = true;
  asked.display.tfprof_file = temp_.file("profile.json");
  run(asked);
  const nn::Graph graph = prepare(asked).graph;
  const nn::NodeCosts costs(graph, {.batch = 2, .activation_bytes = 2});
  const nlohmann::json profile = nlohmann::json::parse(read("profile.json"));
  EXPECT_EQ(profile["conditions"], nlohmann::json::array({"bfloat16"}));
  int compared = 0;
  for (const auto& layer : profile["layers"]) {
    std::vector<int> nodes;
    for (const auto& name : layer["nodes"]) nodes.push_back(graph.node(name.get<std::string>()).id);
    if (layer["forward"]["seconds"] == 0) continue;
    EXPECT_EQ(layer["forward"]["bytes"], costs.bytes(nodes, nn::NodeRun::Phase::kForward)) << layer["nodes"];
    ++compared;
  }
  EXPECT_GT(compared, 1);
}

TEST(ProfilePaths, KeepTheNameThatWasGiven) {
  EXPECT_EQ(profile_paths("a/p").proto, "a/p");
  EXPECT_EQ(profile_paths("a/p").json, "a/p.json");
  EXPECT_EQ(profile_paths("a/p.json").proto, "a/p.pb");
  EXPECT_EQ(profile_paths("a/p.json").json, "a/p.json");
}

}  // namespace
}  // namespace trainyard::frontends::graphs_and_profiles_test
