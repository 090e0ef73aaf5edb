// What goes wrong around a data set while it is read: each is an error or a wait, never a hang or another image.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/sanitizer.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/record_index_files.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/tools/convert_dataset.h"
#include "trainyard/data/tools/index_shards.h"

namespace trainyard::data::faults_test {
namespace {

using core::ErrorCode;
using core::Fault;

// pread takes its time, as on a disk that sleeps.
class SlowDisk : public core::SystemCalls {
 public:
  explicit SlowDisk(int milliseconds) : delay_(milliseconds) {}
  ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) override {
    std::this_thread::sleep_for(delay_);
    return SystemCalls::pread(descriptor, bytes, count, offset);
  }

 private:
  std::chrono::milliseconds delay_;
};

// Threads of this process that read input.
int input_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with("input-")) ++count;
  }
  return count;
}

class InputFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp = new core::TempDir;
    ShapesOptions options;
    options.train_count = 24;
    options.validation_count = 12;
    options.train_shards = 2;
    write_shapes(options, temp->file("tfrecord"));
    for (const std::string form : {"webdataset", "folder"}) {
      convert_dataset({.name = "shapes", .from = temp->file("tfrecord"), .output = temp->file(form), .to = form});
    }
    convert_dataset(
        {.name = "shapes", .from = temp->file("folder"), .output = temp->file("indexed"), .to = "tfrecord"});
    write_index_files(temp->file("indexed"));
  }
  static void TearDownTestSuite() { delete temp; }

  static std::unique_ptr<Pipeline> open(const std::string& directory, core::FileSystem& files, int threads = 1) {
    std::shared_ptr<const Dataset> dataset = datasets().get("shapes")({.directory = directory, .files = &files});
    return std::make_unique<Pipeline>(
        dataset, transforms().get("shapes")({.height = 32, .width = 32}),
        PipelineOptions{.batch_size = 8, .height = 32, .width = 32, .worker_threads = threads, .seed = 1});
  }
  static std::vector<float> read(Pipeline& pipeline) {
    std::vector<float> values;
    for (int b = 0; b < 3; ++b) {
      const Batch batch = pipeline.next().front();
      const float* images = batch.images().const_data_ptr<float>();
      values.insert(values.end(), images, images + batch.images().numel());
    }
    return values;
  }

  static core::TempDir* temp;
};
core::TempDir* InputFaults::temp = nullptr;

// Each single call fails once: interrupted or short ones change nothing, a broken disk is an error that names the file.
TEST_F(InputFaults, EachSystemCallMayFail) {
  constexpr int kStride = core::kThreadSanitizer ? 60 : 7;  // it takes a thirtieth of a second to start a thread
  for (const char* form : {"tfrecord", "indexed", "webdataset", "folder"}) {
    const std::vector<float> expected = read(*open(temp->file(form), core::local_file_system()));
    for (const Fault fault : {Fault::kInterrupted, Fault::kShort, Fault::kIoError}) {
      for (int n = 1;; n += n < 40 && !core::kThreadSanitizer ? 1 : kStride) {
        core::FaultInjector faults;
        faults.fail_nth(n, fault);
        const auto files = core::make_file_system(faults);
        try {
          const auto pipeline = open(temp->file(form), *files);
          EXPECT_TRUE(read(*pipeline) == expected) << form << ", call " << n;
        } catch (const core::Error& error) {
          EXPECT_EQ(fault, Fault::kIoError) << form << ", call " << n << ": " << error.what();
          EXPECT_EQ(error.code(), ErrorCode::kIo);
          EXPECT_THAT(error.what(), ::testing::HasSubstr(temp->path()));
        }
        if (!faults.reached()) break;
      }
    }
  }
}

TEST_F(InputFaults, AFileThatShrinksIsAnErrorAndNoBadSample) {
  for (const std::string form : {"tfrecord", "indexed", "webdataset"}) {
    const core::TempDir copy;
    std::filesystem::copy(temp->file(form), copy.file("set"), std::filesystem::copy_options::recursive);
    const auto dataset = datasets().get("shapes")({.directory = copy.file("set")});
    dataset->read(0).value();  // the file is open
    for (const auto& file : std::filesystem::directory_iterator(copy.file("set"))) {
      if (file.is_regular_file()) std::filesystem::resize_file(file, 100);
    }
    EXPECT_EQ(core::code_of([&] { dataset->read(dataset->size() - 1); }), ErrorCode::kCorruptData) << form;
  }
}

TEST_F(InputFaults, AnArchiveThatIsWrittenOverIsNotReadOn) {
  const core::TempDir copy;
  std::filesystem::copy(temp->file("webdataset"), copy.file("set"));
  const auto dataset = datasets().get("shapes")({.directory = copy.file("set")});
  dataset->read(0).value();
  {
    // In place, and of the same size: the open file sees it.
    std::fstream archive(copy.file("set/train-000000.tar"), std::ios::in | std::ios::out | std::ios::binary);
    archive << std::string(4096, 'x');
  }
  EXPECT_THAT(core::message_of([&] { dataset->read(0); }, ErrorCode::kCorruptData),
              ::testing::HasSubstr("archive has changed since the data set was opened"));
}

TEST_F(InputFaults, AFileThatVanishesIsAnError) {
  const core::TempDir copy;
  std::filesystem::copy(temp->file("folder"), copy.file("set"), std::filesystem::copy_options::recursive);
  PipelineOptions skipping;
  const auto dataset = datasets().get("shapes")({.directory = copy.file("set")});
  const std::string path = dataset->read(3).value().where;
  std::filesystem::remove(path);
  EXPECT_THAT(core::message_of([&] { dataset->read(3); }, ErrorCode::kNotFound), ::testing::HasSubstr(path));
}

TEST_F(InputFaults, ASlowDiskIsWaitedFor) {
  SlowDisk disk(3);
  const auto files = core::make_file_system(disk);
  const auto pipeline = open(temp->file("tfrecord"), *files, 2);
  EXPECT_TRUE(read(*pipeline) == read(*open(temp->file("tfrecord"), core::local_file_system())));
  EXPECT_GT(pipeline->waited_seconds(), 0.02);
}

TEST_F(InputFaults, AConsumerThatThrowsLeavesNoThread) {
  SlowDisk disk(20);
  const auto files = core::make_file_system(disk);
  const auto begin = std::chrono::steady_clock::now();
  auto thrown = begin;
  EXPECT_THROW(
      {
        const auto pipeline = open(temp->file("webdataset"), *files, 4);
        pipeline->next();
        EXPECT_EQ(input_threads(), 4);
        thrown = std::chrono::steady_clock::now();
        throw std::runtime_error("the model is broken");
      },
      std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - thrown, std::chrono::seconds(1));
  EXPECT_EQ(input_threads(), 0);
}

TEST_F(InputFaults, AStopLeavesNoThreadWhileTheDiskSleeps) {
  SlowDisk disk(100);
  const auto files = core::make_file_system(disk);
  const auto pipeline = open(temp->file("indexed"), *files, 4);
  std::thread consumer([&] { EXPECT_EQ(core::code_of([&] { read(*pipeline); }), ErrorCode::kCancelled); });
  while (input_threads() == 0) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  pipeline->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(input_threads(), 0);
  consumer.join();
}

}  // namespace
}  // namespace trainyard::data::faults_test
