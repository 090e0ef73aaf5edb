// trainyard predict on several images: files, folders, lists, and bad ones among good ones.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"

namespace trainyard::cli::predict_images_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

core::FileSystem& files() {
  return core::local_file_system();
}

class PredictImages : public ::testing::Test {
 protected:
  void SetUp() override {
    const CommandResult trained =
        run_command({"train", "--model=trivial", "--data_name=cifar10", "--synthetic", "--device=cpu", "--batch_size=4",
                     "--num_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1", "--train_dir=" + run_});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
  }
  std::string write(const std::string& name, int index) const {
    std::string path = temp_.file(name);
    files().make_directories(core::parent_path(path));
    const auto png = data::encode_png(data::draw_shape(1, data::Subset::kTrain, index, 32));
    files().write_file_atomically(path, {reinterpret_cast<const char*>(png.data()), png.size()});
    return path;
  }
  CommandResult predict(const Arguments& images) const {
    Arguments all = {"predict", "--train_dir=" + run_, "--top=1"};
    all.insert(all.end(), images.begin(), images.end());
    return run_command(all);
  }
  // What each line is about.
  static std::vector<std::string> images_of(const std::string& out) {
    std::vector<std::string> images;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) images.push_back(line.substr(0, line.rfind(':')));
    return images;
  }

  const core::TempDir temp_;
  const std::string run_ = temp_.file("run");
};

TEST_F(PredictImages, GoOnBehindBadOnes) {
  const std::string a = write("a.png", 0), b = write("b.png", 1), bad = temp_.file("bad.png");
  files().write_file_atomically(bad, "no image at all");
  const CommandResult result = predict({a, bad, temp_.file("missing.png"), b});
  EXPECT_EQ(result.code, kFailure);
  EXPECT_THAT(images_of(result.out), ElementsAre(a, b));
  EXPECT_EQ(count_lines(result.err, " error .*bad\\.png"), 1) << result.err;
  EXPECT_EQ(count_lines(result.err, " error .*missing\\.png"), 1) << result.err;
  EXPECT_EQ(count_lines(result.err, " error "), 2) << result.err;
  // What stands beside an image does not change what is said of it.
  EXPECT_EQ(result.out, predict({a}).out + predict({b}).out);
}

TEST_F(PredictImages, TakeAllOfAFolderByName) {
  const std::string folder = temp_.file("photos");
  const std::string z = write("photos/z.PNG", 2), b = write("photos/below/b.png", 1), a = write("photos/a.png", 0);
  write("photos/.hidden.png", 3);
  files().write_file_atomically(temp_.file("photos/notes.txt"), "not an image by its name");
  const CommandResult result = predict({folder});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(images_of(result.out), ElementsAre(a, z, b));
  files().make_directories(temp_.file("empty"));
  const CommandResult none = predict({temp_.file("empty"), a});
  EXPECT_EQ(none.code, kFailure);
  EXPECT_THAT(images_of(none.out), ElementsAre(a));
  EXPECT_THAT(none.err, HasSubstr("the folder holds no images: " + temp_.file("empty")));
}

TEST_F(PredictImages, ReadPathsFromAListAndTheStandardInput) {
  const std::string a = write("a.png", 0), b = write("with a blank.png", 1);
  const std::string list = temp_.file("list.txt");
  files().write_file_atomically(list, b + "\r\n\n" + a + "\n" + temp_.file("missing.png"));  // the last line unended
  const CommandResult result = predict({"--images_from=" + list});
  EXPECT_EQ(result.code, kFailure);
  EXPECT_THAT(images_of(result.out), ElementsAre(b, a));
  EXPECT_THAT(result.err, HasSubstr("missing.png"));

  for (const std::string way : {"-", "--images_from=-"}) {
    std::istringstream input(a + "\n" + b + "\n");
    std::streambuf* const before = std::cin.rdbuf(input.rdbuf());
    const CommandResult of_input = predict({way});
    std::cin.rdbuf(before);
    std::cin.clear();
    EXPECT_EQ(of_input.code, kSuccess) << of_input.err;
    EXPECT_THAT(images_of(of_input.out), ElementsAre(a, b));
  }
  EXPECT_EQ(predict({"--images_from=" + temp_.file("nowhere.txt")}).code, kFailure);
}

// A list that cannot be read is not one without images: the first cannot be opened, the second not be read.
TEST_F(PredictImages, SayThatAListCannotBeRead) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string list = temp_.file("s");
  ASSERT_LT(list.size(), sizeof address.sun_path);
  list.copy(address.sun_path, list.size());
  const core::Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const CommandResult result = predict({"--images_from=" + list});
  EXPECT_EQ(result.code, kFailure) << result.out;
  EXPECT_THAT(result.err, HasSubstr("read the list of images failed: " + list));
  EXPECT_EQ(predict({"--images_from=/proc/self/mem"}).code, kFailure);
}

// More than run at a time, in their order, each as alone.
TEST_F(PredictImages, RunManyAtATimeInOrder) {
  std::vector<std::string> paths;
  std::string list;
  for (int i = 0; i < 70; ++i) {
    paths.push_back(i == 40 ? temp_.file("missing.png") : write(fmt::format("{}.png", i), i));
    list += paths.back() + "\n";
  }
  files().write_file_atomically(temp_.file("list.txt"), list);
  const CommandResult result = predict({"--images_from=" + temp_.file("list.txt")});
  EXPECT_EQ(count_lines(result.err, " error "), 1) << result.err;
  paths.erase(paths.begin() + 40);
  EXPECT_EQ(images_of(result.out), paths);
  for (const int i : {0, 31, 32, 41, 68}) {
    const std::string line = predict({paths[static_cast<size_t>(i)]}).out;
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(PredictImages, EndWhereTheyAreAskedTo) {
  const std::string a = write("a.png", 0);
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  const CommandResult result = run_command({"predict", "--train_dir=" + run_, a}, stop.token());
  EXPECT_EQ(result.code, kStoppedBySignal);
}

}  // namespace
}  // namespace trainyard::cli::predict_images_test
