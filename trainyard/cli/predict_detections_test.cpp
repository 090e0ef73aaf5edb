// `trainyard predict` of detectors. tests/detectors_test.py compares ssd300 with ONNX Runtime.
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::predict_detections_test {
namespace {

using ::testing::HasSubstr;

class PredictDetections : public ::testing::Test {
 protected:
  void SetUp() override {
    write_image("images/000000000042.png");
    write_image("images/street.png");
    // As torchvision's file: without a word of the model.
    const nn::Graph graph = models::build_model("ssd300_vgg16", "coco", {.num_classes = 91});
    nn::ParameterSet set;
    const auto executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(1);
    train::save_weights(temp_.file("weights.safetensors"), set);
  }

  void write_image(const std::string& name) const {
    const std::string path = temp_.file(name);
    core::local_file_system().make_directories(core::parent_path(path));
    const auto png = data::encode_png(data::smooth_image(60, 90));
    core::local_file_system().write_file_atomically(path, {reinterpret_cast<const char*>(png.data()), png.size()});
  }

  CommandResult predict(const Arguments& more) const {
    Arguments arguments = {"predict",
                           "--model=ssd300_vgg16",
                           "--data_name=coco",
                           "--num_classes=91",
                           "--weights=" + temp_.file("weights.safetensors"),
                           temp_.file("images")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments);
  }

  const core::TempDir temp_;
};

TEST_F(PredictDetections, TorchvisionsModelFindsDrawsAndWrites) {
  const std::string found = temp_.file("found.json"), drawn = temp_.file("drawn");
  const CommandResult result =
      predict({"--json", "--top=3", "--min_score=0.002", "--detections=" + found, "--drawn=" + drawn});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.err, HasSubstr("all of the image to 300x300, pixels minus a mean"));
  std::istringstream lines(result.out);
  int images = 0;
  for (std::string line; std::getline(lines, line); images++) {
    const auto json = nlohmann::json::parse(line);
    ASSERT_EQ(json["detections"].size(), 3U);
    EXPECT_GE(json["detections"][0]["score"], json["detections"][1]["score"]);
    for (const auto& each : json["detections"]) {
      const std::vector<double> box = each["box"];
      EXPECT_GE(box[0], 0);
      EXPECT_GE(box[1], 0);
      EXPECT_LE(box[0] + box[2], 90.001) << "torchvision cuts boxes to the image";
      EXPECT_LE(box[1] + box[3], 60.001);
    }
  }
  EXPECT_EQ(images, 2);

  const std::vector<data::CocoDetection> all = data::read_coco_detections(found, core::local_file_system());
  std::set<int64_t> ids;
  for (const data::CocoDetection& each : all) ids.insert(each.image_id);
  EXPECT_EQ(ids, (std::set<int64_t>{2, 42})) << "the number in the name, or the image's place";
  EXPECT_EQ(all.size(), 400U);

  for (const char* name : {"000000000042.png", "street.png"}) {
    const std::string bytes = core::local_file_system().read_file(core::join_path(drawn, name));
    const data::Image picture = data::decode_png(std::as_bytes(std::span(bytes))).value();
    EXPECT_EQ(picture.height, 60);
    EXPECT_EQ(picture.width, 90);
    EXPECT_NE(picture.pixels, data::smooth_image(60, 90).pixels);
  }
}

TEST_F(PredictDetections, LinesSayWhatIsWhere) {
  const CommandResult some = predict({"--top=1", "--min_score=0.002"});
  ASSERT_EQ(some.code, kSuccess) << some.err;
  EXPECT_EQ(count_lines(some.out, "(42|street)\\.png: [a-z ]* ?0\\.[0-9]{4} at [0-9]+,[0-9]+ [0-9]+x[0-9]+$"), 2)
      << some.out;
  const CommandResult none = predict({"--min_score=1"});
  EXPECT_EQ(count_lines(none.out, "(42|street)\\.png: nothing$"), 2) << none.out;
}

TEST_F(PredictDetections, RefusesImagesThatWouldBeTakenForEachOther) {
  write_image("more/2.png");
  write_image("more/street.png");
  const std::string images = temp_.file("images"), more = temp_.file("more");
  const std::string found = temp_.file("found.json"), drawn = temp_.file("drawn");
  const CommandResult same_name = predict({more, "--drawn=" + drawn});
  EXPECT_EQ(same_name.code, kUsage);
  EXPECT_EQ(same_name.out, "");
  EXPECT_THAT(same_name.err, HasSubstr("two images would be drawn as street.png: --drawn: got " + images +
                                       "/street.png and " + more + "/street.png"));
  EXPECT_TRUE(core::local_file_system().list(drawn).empty());
  // The second image has its place as id.
  const CommandResult same_id = predict({more, "--detections=" + found});
  EXPECT_EQ(same_id.code, kUsage);
  EXPECT_THAT(same_id.err, HasSubstr("two images have the id 2: --detections: got " + images + "/street.png and " +
                                     more + "/2.png"));
  EXPECT_FALSE(core::local_file_system().exists(found));
  // Lines name the whole path.
  const CommandResult lines = predict({more, "--min_score=1"});
  EXPECT_EQ(lines.code, kSuccess) << lines.err;
  EXPECT_EQ(count_lines(lines.out, "png: nothing$"), 4) << lines.out;
}

// More images than run at a time: the clash is found before the first one is run.
TEST_F(PredictDetections, RefusesImagesThatWouldBeTakenForEachOtherBeforeAnythingIsWritten) {
  for (int i = 0; i < 40; ++i) write_image(fmt::format("more/{}.png", i + 100));
  write_image("later/street.png");
  const std::string drawn = temp_.file("drawn"), list = temp_.file("list.txt");
  core::local_file_system().write_file_atomically(list, temp_.file("more") + "\n" + temp_.file("later") + "\n");
  const CommandResult result = predict({"--images_from=" + list, "--drawn=" + drawn});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("two images would be drawn as street.png"));
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(core::local_file_system().list(drawn).empty());
}

TEST_F(PredictDetections, IdsCountImagesThatCannotBeRead) {
  core::local_file_system().write_file_atomically(temp_.file("bad.png"), "no image at all");
  write_image("last.png");
  const std::string found = temp_.file("found.json");
  const CommandResult result =
      predict({temp_.file("bad.png"), temp_.file("last.png"), "--min_score=0.002", "--detections=" + found});
  EXPECT_EQ(result.code, kFailure);
  std::set<int64_t> ids;
  for (const data::CocoDetection& each : data::read_coco_detections(found, core::local_file_system())) {
    ids.insert(each.image_id);
  }
  EXPECT_EQ(ids, (std::set<int64_t>{2, 4, 42}));
}

TEST_F(PredictDetections, DrawingsDoNotReplaceTheirImages) {
  const std::string image = temp_.file("images/street.png");
  const std::string before = core::local_file_system().read_file(image);
  const CommandResult result = predict({"--drawn=" + temp_.file("images")});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("a drawing would replace its image: --drawn: got " + temp_.file("images")));
  EXPECT_EQ(core::local_file_system().read_file(image), before);
}

TEST_F(PredictDetections, RefusesWhatDoesNotFit) {
  EXPECT_EQ(predict({"--min_score=2"}).code, kUsage);
  EXPECT_EQ(predict({"--detections=" + temp_.path()}).code, kUsage);
  const CommandResult array = run_command({"predict", "--model=ssd300_vgg16", "--data_name=coco", "--num_classes=91",
                                           "--weights=" + temp_.file("weights.safetensors"), "--input=x.npy",
                                           "--output=y.npy", "--min_score=0.5"});
  EXPECT_EQ(array.code, kUsage);
  EXPECT_THAT(array.err, HasSubstr("--min_score has no use with --input"));
}

}  // namespace
}  // namespace trainyard::cli::predict_detections_test
