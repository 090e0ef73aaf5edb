#include "trainyard/frontends/session/start_facts.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/input/data_digest.h"

namespace trainyard::frontends::start_facts_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(StartFacts, FlagsCountButForThoseThatMayDiffer) {
  StartFacts facts;
  add_flag_facts({{"batch_size", int64_t{32}}, {"train_dir", std::string("out")}, {"eval", true}}, facts);
  EXPECT_EQ(facts, (StartFacts{{"--batch_size", "32"}, {"--eval", "true"}}));
}

TEST(StartFacts, AGraphIsItsLayersParametersAndBuffers) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "tiny"});
  const auto x = b.batch_norm("norm", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3}));
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
  StartFacts facts;
  add_graph_facts(graph, facts);
  EXPECT_THAT(facts, Contains(parallel::StartFact{"parameter fc.weight", "[5, 4]"}));
  EXPECT_THAT(facts, Contains(parallel::StartFact{"buffer norm.running_mean", "[4]"}));
  const auto conv =
      std::find_if(facts.begin(), facts.end(), [](const auto& f) { return f.item == "layer conv of the model"; });
  ASSERT_NE(conv, facts.end());
  EXPECT_THAT(conv->value, HasSubstr("convolution"));
  EXPECT_THAT(conv->value, HasSubstr("3x3"));
}

TEST(StartFacts, TheProgramIsItsVersionAndInstructions) {
  StartFacts facts;
  add_program_facts(facts);
  ASSERT_EQ(facts.size(), 3U);
  for (const auto& [item, value] : facts) EXPECT_NE(value, "") << item;
}

class DataDigest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_.file(name);
    files_.make_directories(core::parent_path(path));
    files_.write_file_atomically(path, bytes);
  }
  std::string digest(const std::string& name) { return data_digest(files_, directory_.file(name)); }

  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(DataDigest, IsOfNamesAndSizes) {
  for (const char* folder : {"one", "same", "longer", "renamed", "moved"}) {
    write(std::string(folder) + "/a", "1234");
    write(std::string(folder) + "/b/c", "12");
  }
  write("same/a", "abcd");
  write("longer/a", "12345");
  files_.remove_tree(directory_.file("renamed/b"));
  write("renamed/d/c", "12");
  files_.remove_tree(directory_.file("moved/b"));
  write("moved/c", "12");
  EXPECT_THAT(digest("one"), HasSubstr("2 files, 6 bytes, "));
  EXPECT_EQ(digest("same"), digest("one")) << "contents are not read";
  for (const char* other : {"longer", "renamed", "moved"}) EXPECT_NE(digest(other), digest("one")) << other;
}

TEST_F(DataDigest, OfNamedShardsTheFolderDoesNotCount) {
  for (const char* folder : {"one", "two"}) {
    write(std::string(folder) + "/train-0", "1234");
    write(std::string(folder) + "/train-1", "12");
    write(std::string(folder) + "/other", std::string("123") + folder);
  }
  EXPECT_THAT(digest("one/train-*"), HasSubstr("2 files, 6 bytes, "));
  EXPECT_EQ(digest("one/train-*"), digest("two/train-*"));
}

}  // namespace
}  // namespace trainyard::frontends::start_facts_test
