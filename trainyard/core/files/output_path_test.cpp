#include "trainyard/core/files/output_path.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::output_path_test {
namespace {

class OutputPath : public ::testing::Test {
 protected:
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), temp_.file(name).c_str()), 0);
  }
  std::string read(const std::string& name) { return files_.read_file(temp_.file(name)); }
  bool is_link(const std::string& name) { return output_kind(temp_.file(name)) == OutputKind::kLink; }
  void append(const std::string& path) const {
    const auto file = files_.open_append(path);
    file->write("ours\n");
    file->close();
  }

  TempDir temp_;
  FileSystem& files_ = local_file_system();
};

TEST_F(OutputPath, FilesOfTheProgramsNamingFollowNoLink) {
  files_.write_file_atomically(temp_.file("precious"), "text");
  link("precious", "link");
  link("nowhere", "dangling");
  link("dangling", "chain");
  for (const std::string name : {"link", "dangling", "chain"}) {
    const std::string path = temp_.file(name);
    EXPECT_THAT(message_of([&] { append(path); }), core::Says("a symbolic link is not written through: " + path));
    EXPECT_THAT(message_of([&] { files_.open_write(path); }), core::Says("not written through: " + path));
    EXPECT_THAT(message_of([&] { require_plain_output(path); }), core::Says("not written through: " + path));
  }
  EXPECT_EQ(read("precious"), "text");
  EXPECT_FALSE(files_.exists(temp_.file("nowhere")));
  // The name gets a file of its own, and what the link led to stays.
  files_.write_file_atomically(temp_.file("link"), "ours");
  EXPECT_EQ(read("precious"), "text");
  EXPECT_EQ(read("link"), "ours");
  // A folder may be a link.
  files_.make_directories(temp_.file("folder"));
  link("folder", "runs");
  append(temp_.file("runs/log"));
  EXPECT_EQ(read("folder/log"), "ours\n");
}

// Opening a pipe for writing waits for a reader, whatever signals come.
TEST_F(OutputPath, PipesAndDevicesAreRefusedAtOnce) {
  const std::string pipe = temp_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const bool read : {false, true}) {
    const int reader = read ? ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK) : -1;
    for (const std::string& path : {pipe, std::string("/dev/null")}) {
      EXPECT_THAT(message_of([&] { append(path); }),
                  core::Says("a pipe or device is not written like a file: " + path));
      EXPECT_THAT(message_of([&] { files_.open_write(path); }), core::Says("not written like a file: " + path));
    }
    if (read) ::close(reader);
  }
  EXPECT_EQ(code_of([&] { append(temp_.path()); }), ErrorCode::kIo) << "a directory";
}

// Memory that is a folder: what lies there is no stream.
TEST_F(OutputPath, FilesInSharedMemoryAreReplaced) {
  std::string folder = "/dev/shm/trainyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  link(folder + "/a.json", "link");
  for (const std::string& path : {folder + "/a.json", temp_.file("link")}) {
    for (const char* text : {"first", "second"}) {
      write_user_output(path, text, files_);
      EXPECT_EQ(files_.read_file(folder + "/a.json"), text);
    }
    EXPECT_FALSE(resolve_user_output(path).is_stream);
  }
  files_.remove_tree(folder);
}

TEST_F(OutputPath, APathThatAUserHasTypedLeadsWhereItLeads) {
  files_.make_directories(temp_.file("results"));
  files_.write_file_atomically(temp_.file("results/a.json"), "old");
  link("results/a.json", "link");
  link("link", "chain");
  link(temp_.file("results/new.json"), "dangling");
  write_user_output(temp_.file("chain"), "new");
  EXPECT_EQ(read("results/a.json"), "new");
  write_user_output(temp_.file("dangling"), "first");
  EXPECT_EQ(read("results/new.json"), "first");
  for (const std::string name : {"link", "chain", "dangling"}) EXPECT_TRUE(is_link(name)) << name;
  write_user_output(temp_.file("plain"), "text");
  EXPECT_EQ(read("plain"), "text");
  link("circle", "other");
  link("other", "circle");
  EXPECT_THAT(message_of([&] { write_user_output(temp_.file("circle"), "x"); }), core::Says("lead to each other"));
  EXPECT_EQ(code_of([&] { write_user_output(temp_.path(), "x"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { write_user_output(temp_.file("no/where"), "x"); }), ErrorCode::kNotFound);
}

TEST_F(OutputPath, StreamsAreWrittenTo) {
  write_user_output("/dev/null", "text");
  struct stat status {};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode)) << "it is still there";
  EXPECT_EQ(code_of([&] { write_user_output("/dev/full", "text"); }), ErrorCode::kNoSpace);
  const std::string pipe = temp_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { write_user_output(pipe, "text"); }), ErrorCode::kIo) << "nobody reads it";
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  link("pipe", "link");
  write_user_output(temp_.file("link"), "text");
  std::array<char, 16> bytes{};
  EXPECT_EQ(::read(reader, bytes.data(), bytes.size()), 4);
  EXPECT_STREQ(bytes.data(), "text");
  ::close(reader);
  // `program --output=/dev/stdout > log`: the shell has the log open, so that it is added to, not replaced.
  const int log = ::open(temp_.file("log").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::write(log, "before ", 7), 7);
  write_user_output("/dev/fd/" + std::to_string(log), "text");
  ASSERT_EQ(::write(log, " after", 6), 6);
  EXPECT_EQ(read("log"), "before text after");
  EXPECT_EQ(::fstat(log, &status), 0);
  EXPECT_EQ(status.st_nlink, 1U);
  ::close(log);
}

TEST_F(OutputPath, FollowsAsManyLinksAsLinux) {
  link("file", "link1");
  for (int i = 2; i <= 41; ++i) link("link" + std::to_string(i - 1), "link" + std::to_string(i));
  write_user_output(temp_.file("link40"), "text");
  EXPECT_EQ(read("file"), "text");
  EXPECT_EQ(message_of([&] { write_user_output(temp_.file("link41"), "other"); }),
            "symbolic links lead to each other: " + temp_.file("link41") + "; name a file");
  EXPECT_EQ(read("file"), "text");
}

TEST_F(OutputPath, SaysWhatIsThereAndWhatToDo) {
  files_.write_file_atomically(temp_.file("file"), "text");
  link("nowhere", "link");
  ASSERT_EQ(::mkfifo(temp_.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(output_kind(temp_.file("none")), OutputKind::kNothing);
  EXPECT_EQ(output_kind(temp_.file("file/below")), OutputKind::kNothing);
  EXPECT_EQ(output_kind(temp_.file("file")), OutputKind::kPlainFile);
  EXPECT_EQ(output_kind(temp_.path()), OutputKind::kDirectory);
  EXPECT_EQ(output_kind(temp_.file("link")), OutputKind::kLink);
  EXPECT_EQ(output_kind(temp_.file("pipe")), OutputKind::kPipeOrDevice);
  const auto message = [](const std::string& path) { return message_of([&] { require_plain_output(path); }); };
  for (const char* const fine : {"none", "file"}) EXPECT_EQ(message(temp_.file(fine)), "no error") << fine;
  const std::string expected = ": expected a plain file, or none; ";
  EXPECT_EQ(message(temp_.file("link")), "a symbolic link is not written through: " + temp_.file("link") + expected +
                                             "remove the link, or put the file itself there; the folder may be a link");
  EXPECT_EQ(message(temp_.path()), "a directory is not written like a file: " + temp_.path() + expected + "remove it");
  EXPECT_EQ(message(temp_.file("pipe")),
            "a pipe or device is not written like a file: " + temp_.file("pipe") + expected + "remove it");
  EXPECT_EQ(message_of([] { static_cast<void>(resolve_user_output("")); }, ErrorCode::kNotFound),
            std::string("create file failed: got ") + std::strerror(ENOENT) + "; check the path");
  EXPECT_EQ(message_of([&] { static_cast<void>(resolve_user_output(temp_.path())); }, ErrorCode::kIo),
            "create file failed: " + temp_.path() + ": got " + std::strerror(EISDIR));
}

TEST_F(OutputPath, NamesOfDescriptorsAreStreams) {
  for (const std::string path :
       {"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/77", "/proc/self/fd/1"}) {
    const UserOutput output = resolve_user_output(path);
    EXPECT_TRUE(output.is_stream) << path;
    EXPECT_EQ(output.path, path);
  }
  link("/dev/fd/77", "descriptor");
  EXPECT_TRUE(resolve_user_output(temp_.file("descriptor")).is_stream);
  EXPECT_EQ(resolve_user_output(temp_.file("descriptor")).path, "/dev/fd/77");
  EXPECT_FALSE(resolve_user_output(temp_.file("new")).is_stream);
  EXPECT_EQ(resolve_user_output(temp_.file("new")).path, temp_.file("new"));
  for (const std::string path : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    testing::internal::CaptureStdout();
    write_user_output(path, "text");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "text") << path;
  }
  testing::internal::CaptureStderr();
  write_user_output("/dev/stderr", "text");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "text");
}

}  // namespace
}  // namespace trainyard::core::output_path_test
