#include "trainyard/formats/tensors/tensorflow_checkpoint.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/formats/testing/working_directory.h"

namespace trainyard::formats::tensorflow_checkpoint_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

class TensorFlowCheckpoint : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content = "x") {
    core::local_file_system().write_file_atomically(temp_.file(name), content);
  }
  // Returns what is said of a path, and "" where it is not refused.
  static std::string refusal(const std::string& path) {
    try {
      refuse_tensorflow_checkpoint(path);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
      return error.what();
    }
    return "";
  }
  core::TempDir temp_;
};

TEST_F(TensorFlowCheckpoint, IsKnownByTheNamesOfItsFiles) {
  for (const char* name :
       {"checkpoint", "model.ckpt-1243.index", "model.ckpt-1243.data-00000-of-00001", "model.ckpt-1243.meta",
        "graph.pbtxt", "events.out.tfevents.1.host", "weights.index", "weights.data-00001-of-00002"}) {
    write(name);
  }
  EXPECT_THAT(tensorflow_checkpoint_files(temp_.path()),
              ElementsAre("checkpoint", "model.ckpt-1243.data-00000-of-00001", "model.ckpt-1243.index",
                          "model.ckpt-1243.meta", "weights.data-00001-of-00002", "weights.index"));
  const std::string said = refusal(temp_.path());
  EXPECT_THAT(said, HasSubstr("TensorFlow"));
  EXPECT_THAT(said, HasSubstr(temp_.path()));
  EXPECT_THAT(said, HasSubstr("checkpoint, model.ckpt-1243.data-00000-of-00001, model.ckpt-1243.index"));
  EXPECT_THAT(said, HasSubstr(", weights.data-00001-of-00002, ... (6 files)"));
  core::local_file_system().remove_file(temp_.file("weights.index"));
  EXPECT_THAT(refusal(temp_.path()), HasSubstr("model.ckpt-1243.meta, weights.data-00001-of-00002; name another"));
}

TEST_F(TensorFlowCheckpoint, IsNotWhatOtherProgramsWrite) {
  for (const char* name : {"faiss.index", "notes.meta", "part.data-0-of-1", "checkpoint.pth", ".index", "my_checkpoint",
                           ".data-00000-of-00001", "metrics.jsonl", "model.ckpt-12.safetensors"}) {
    write(name);
  }
  core::local_file_system().make_directories(temp_.file("model.ckpt-7.index"));
  core::local_file_system().make_directories(temp_.file("folder/checkpoint"));
  EXPECT_THAT(tensorflow_checkpoint_files(temp_.path()), IsEmpty());
  EXPECT_THAT(tensorflow_checkpoint_files(temp_.file("folder")), IsEmpty());
  EXPECT_THAT(tensorflow_checkpoint_files(temp_.file("nowhere")), IsEmpty());
  for (const char* path :
       {"folder", "nowhere", "checkpoint.pth", "metrics.jsonl", "faiss.index", "model.ckpt-12.safetensors"}) {
    EXPECT_EQ(refusal(temp_.file(path)), "") << path;
  }
  const WorkingDirectory here(temp_.path());
  EXPECT_EQ(refusal(""), "") << "no path, next to a file \".index\"";
}

TEST_F(TensorFlowCheckpoint, IsRefusedByTheNameThatTensorFlowGivesIt) {
  core::local_file_system().make_directories(temp_.file("run"));
  core::local_file_system().make_directories(temp_.file("saved"));
  write("run/model.ckpt-5.index");
  write("saved/saved_model.pb");
  EXPECT_THAT(refusal(temp_.file("run/model.ckpt-5")), HasSubstr("run/model.ckpt-5: "));
  EXPECT_THAT(refusal(temp_.file("run/model.ckpt-5.index")), HasSubstr("TensorFlow"));
  EXPECT_THAT(refusal(temp_.file("saved")), HasSubstr("saved_model.pb"));
  EXPECT_EQ(refusal(temp_.file("run/model.ckpt-6")), "");
}

// A file of another program may be called so.
TEST_F(TensorFlowCheckpoint, AFileCalledCheckpointIsOneByItsText) {
  write("checkpoint", "model_checkpoint_path: \"model.ckpt-3\"\n");
  EXPECT_THAT(refusal(temp_.file("checkpoint")), HasSubstr("TensorFlow"));
  write("checkpoint", "PK");
  EXPECT_EQ(refusal(temp_.file("checkpoint")), "");
}

// What find_tensorflow_checkpoint() says, without the folder.
TEST_F(TensorFlowCheckpoint, TheTextSaysWhichOneAFolderMeans) {
  const auto found = [&](const std::string& path) -> std::string {
    try {
      return find_tensorflow_checkpoint(path).substr(temp_.path().size() + 1);
    } catch (const core::Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(found(temp_.path()), HasSubstr("no text says which"));
  write("model.ckpt-5.index");
  EXPECT_EQ(found(temp_.path()), "model.ckpt-5");
  write("model.ckpt-7.index");
  EXPECT_THAT(found(temp_.path()), HasSubstr("got model.ckpt-5, model.ckpt-7; name one by its prefix"));
  const auto with_text = [&](const std::string& text) {
    write("checkpoint", text);
    const std::string of_folder = found(temp_.path());
    EXPECT_EQ(found(temp_.file("checkpoint")), of_folder);
    return of_folder;
  };
  EXPECT_EQ(with_text("model_checkpoint_path: \"model.ckpt-5\"\nall_model_checkpoint_paths: \"model.ckpt-7\"\n"),
            "model.ckpt-5");
  EXPECT_EQ(with_text("all_model_checkpoint_paths: \"model.ckpt-5\"\r\n  model_checkpoint_path : 'model.ckpt-7'"),
            "model.ckpt-7");
  EXPECT_EQ(with_text("model_checkpoint_path:'model.ckpt-7'\r\n"), "model.ckpt-7");
  EXPECT_EQ(with_text("model_checkpoint_path:\"model.ckpt-5\"\r\n"), "model.ckpt-5");
  EXPECT_EQ(with_text("model_checkpoint_path: \"/moved/away/model.ckpt-5\""), "model.ckpt-5");
  EXPECT_EQ(with_text("model_checkpoint_path: \"model\\056ckpt-7\""), "model.ckpt-7");
  // Three octal digits at most; other characters stand for themselves behind a backslash.
  for (const std::string name : {"x.1", "x.8", "a'b\"c\\d?"}) write(name + ".index");
  EXPECT_EQ(with_text("model_checkpoint_path: \"x\\0561\""), "x.1");
  EXPECT_EQ(with_text("model_checkpoint_path: \"x\\568\""), "x.8");
  EXPECT_EQ(with_text("model_checkpoint_path: \"a\\'b\\\"c\\\\d\\?\""), "a'b\"c\\d?");
  EXPECT_EQ(with_text("model_checkpoint_path: 'a\\'b\"c\\\\d?'"), "a'b\"c\\d?");
  EXPECT_THAT(with_text("model_checkpoint_path: \"model.ckpt-9\""), HasSubstr("the newest checkpoint does not exist"));
  for (const char* text : {"model_checkpoint_path: model.ckpt-5", "model_checkpoint_path: \"model.ckpt-5",
                           "model_checkpoint_path: 5model.ckpt-5'", "model_checkpoint_path: \"\"",
                           "model_checkpoint_path: \"a\\q\"", "", "\n\n"}) {
    EXPECT_THAT(with_text(text), HasSubstr("malformed")) << text;
  }
  EXPECT_EQ(found(temp_.file("model.ckpt-7.meta")), "model.ckpt-7");
  EXPECT_EQ(found(temp_.file("model.ckpt-7.data-00001-of-00002")), "model.ckpt-7");
  EXPECT_THAT(found(temp_.file("model.ckpt-8")), HasSubstr("there is no such checkpoint"));
  core::local_file_system().make_directories(temp_.file("saved"));
  write("saved/saved_model.pb");
  EXPECT_THAT(found(temp_.file("saved")), HasSubstr("saved/variables/variables"));
}

TEST_F(TensorFlowCheckpoint, AnUnreadableOneSaysSo) {
  write("model.ckpt-5.index");
  for (const std::string& path : {temp_.path(), temp_.file("model.ckpt-5"), temp_.file("model.ckpt-5.index")}) {
    EXPECT_TRUE(is_tensorflow_checkpoint(path));
    try {
      static_cast<void>(open_tensor_file(path));
      ADD_FAILURE() << path;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_THAT(error.what(), HasSubstr("too short for a table")) << path;
    }
  }
  EXPECT_FALSE(is_tensorflow_checkpoint(temp_.file("other.pth")));
}

TEST_F(TensorFlowCheckpoint, OneThatIsGoneIsNamedWithTheTextThatNamesIt) {
  write("checkpoint", "model_checkpoint_path: \"model.ckpt-9\"");
  EXPECT_EQ(core::message_of([&] { static_cast<void>(find_tensorflow_checkpoint(temp_.path())); },
                             core::ErrorCode::kNotFound),
            "the newest checkpoint does not exist: " + temp_.file("checkpoint") + ": expected " +
                temp_.file("model.ckpt-9.index") +
                ", got no such file; name another one by its prefix, as in --weights=" + temp_.file("model.ckpt-110"));
  EXPECT_EQ(core::message_of([&] { static_cast<void>(find_tensorflow_checkpoint(temp_.file("model.ckpt-8.meta"))); },
                             core::ErrorCode::kNotFound),
            "there is no such checkpoint of TensorFlow: " + temp_.file("model.ckpt-8.meta") + ": expected " +
                temp_.file("model.ckpt-8.index") + ", got no such file");
}

// The files are sparse: nothing of them is on the disk.
TEST_F(TensorFlowCheckpoint, TheTextHasAtMost16MiB) {
  write("checkpoint");
  const auto problem = [&](uint64_t bytes) {
    std::filesystem::resize_file(temp_.file("checkpoint"), bytes);
    return core::message_of([&] { static_cast<void>(find_tensorflow_checkpoint(temp_.path())); },
                            core::ErrorCode::kCorruptData);
  };
  EXPECT_THAT(problem(16 << 20), HasSubstr("got no model_checkpoint_path"));
  EXPECT_THAT(problem((16 << 20) + 1), HasSubstr("expected at most 16777216 bytes, got 16777217 bytes"));
}

}  // namespace
}  // namespace trainyard::formats::tensorflow_checkpoint_test
