// A checkpoint whose checksums are right and whose entries cannot be is refused by every command that reads one, with
// the file and the entry.
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::cli::lying_checkpoints_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

struct Lie {
  const char* entry;
  train::ManifestValue value;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const Lie kLies[] = {{"data/classes", "-1\na\nb\n"},
                     {"data/classes", "4294967296\na\nb\n"},
                     {"data/classes", "9223372036854775807\na\n"},
                     {"data/classes", "3\na\nb\n"},
                     {"data/classes", "text"},
                     {"data/input/height", int64_t{-1}},
                     {"data/input/height", std::numeric_limits<int64_t>::max()},
                     {"data/input/width", int64_t{1} << 32},
                     {"data/input/resize_method", "lanczos"},
                     {"data/input/resize_antialias", int64_t{2}},
                     {"data/input/resize_half_pixel_centers", int64_t{-1}},
                     {"data/input/eval_resize_size", int64_t{-1}},
                     {"data/input/eval_resize_size", int64_t{3}},
                     {"data/input/scaled_decode", int64_t{7}},
                     {"data/input/exif_orientation", "text"},
                     {"data/input/preprocessor", "slim"},
                     {"data/input/scale/red", kNaN},
                     {"data/input/scale/green", 0.0},
                     {"data/input/shift/blue", kNaN},
                     {"data/weights_of", "best"},
                     {"average/kind", "geometric"},
                     {"average/updates", int64_t{-1}},
                     {"average/steps", int64_t{-1}},
                     {"trainer/epoch", int64_t{-5}},
                     {"input/offset", std::numeric_limits<int64_t>::max()}};

class LyingCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    const CommandResult trained =
        run_command({"train", "--model=trivial", "--synthetic", "--data_name=shapes", "--device=cpu", "--batch_size=4",
                     "--num_batches=2", "--num_warmup_batches=0", "--num_intra_threads=1", "--ema_decay=0.9",
                     "--existing_run=keep", "--train_dir=" + run_});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    const auto png = data::encode_png(data::draw_shape(1, data::Subset::kTrain, 0, 32));
    core::local_file_system().write_file_atomically(image_, {reinterpret_cast<const char*>(png.data()), png.size()});
    path_ = train::find_checkpoint(run_).path;
    truth_ = train::read_manifest(path_, core::local_file_system());
    if (!truth_.values.contains("data/classes")) truth_.values["data/classes"] = "0\ncircle\nsquare\n";
  }
  // Checksums and all.
  void write(const train::Manifest& manifest) const {
    core::local_file_system().write_file_atomically(path_ + "/manifest.json", train::encode_manifest(manifest));
  }
  std::vector<Arguments> readers() const {
    const Arguments training = {
        "--data_name=shapes",     "--synthetic",           "--device=cpu",       "--batch_size=4",
        "--num_warmup_batches=0", "--num_intra_threads=1", "--existing_run=keep"};
    const auto with = [](Arguments base, const Arguments& more) {
      base.insert(base.end(), more.begin(), more.end());
      return base;
    };
    return {
        with({"eval", "--train_dir=" + run_, "--num_eval_batches=1"},
             {"--synthetic", "--device=cpu", "--batch_size=4"}),
        with({"eval", "--weights=" + path_, "--num_eval_batches=1"}, {"--synthetic", "--device=cpu", "--batch_size=4"}),
        {"predict", "--train_dir=" + run_, image_},
        {"export", "--train_dir=" + run_, "--output=" + temp_.file("w.safetensors")},
        {"sparsity", run_},
        with({"train", "--train_dir=" + run_, "--num_batches=3", "--ema_decay=0.9"}, training),
        with({"train", "--train_dir=" + run_, "--num_batches=3", "--forward_only"},
             {"--data_name=shapes", "--device=cpu", "--batch_size=4", "--num_warmup_batches=0"})};
  }

  const core::TempDir temp_;
  const std::string run_ = temp_.file("run"), image_ = temp_.file("a.png");
  std::string path_;
  train::Manifest truth_;
};

TEST_F(LyingCheckpoints, AreRefusedByEveryReader) {
  for (const auto& [entry, value] : kLies) {
    train::Manifest manifest = truth_;
    ASSERT_TRUE(manifest.values.contains(entry)) << entry;
    manifest.values[entry] = value;
    write(manifest);
    for (const Arguments& command : readers()) {
      const CommandResult result = run_command(command);
      EXPECT_EQ(result.code, kFailure) << entry << ", " << command[0] << " " << command[1] << "\n" << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("damaged checkpoint"), HasSubstr(path_ + "/manifest.json"),
                                    HasSubstr(std::string(entry) == "average/steps" ? "average/" : entry),
                                    Not(HasSubstr("please report")), Not(HasSubstr("out of memory"))))
          << entry << ", " << command[0] << " " << command[1];
    }
  }
  write(truth_);
  for (const Arguments& command : readers()) {
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.code, kSuccess) << command[0] << " " << command[1] << "\n" << result.err;
  }
}

// Numbers of classes that no weights have: nothing as large is made first.
TEST_F(LyingCheckpoints, IdentitiesAreRefused) {
  for (const int64_t classes : {int64_t{0}, int64_t{1} << 24, int64_t{1} << 32, std::numeric_limits<int64_t>::max()}) {
    train::Manifest manifest = truth_;
    manifest.values.erase("data/classes");
    manifest.identity.num_classes = classes;
    write(manifest);
    for (const Arguments& command : readers()) {
      const CommandResult result = run_command(command);
      EXPECT_NE(result.code, kSuccess) << classes << ", " << command[0] << " " << command[1];
      EXPECT_THAT(result.err, AllOf(HasSubstr("run"), Not(HasSubstr("please report")), Not(HasSubstr("memory"))))
          << classes << ", " << command[0] << " " << command[1];
    }
  }
}

}  // namespace
}  // namespace trainyard::cli::lying_checkpoints_test
