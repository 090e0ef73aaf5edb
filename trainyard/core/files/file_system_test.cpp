#include "trainyard/core/files/file_system.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/power_cut.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::file_system_test {
namespace {

std::string pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761U) >> 13);
  return text;
}

TEST(FileSystem, WritesAndReadsBack) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  // Smaller than, equal to and larger than the write buffer.
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65535}, size_t{65536}, size_t{200'001}}) {
    const std::string path = directory.file("file");
    const auto file = files.open_write(path);
    const std::string content = pattern(size);
    for (size_t begin = 0; begin < size; begin += 777) file->write(std::string_view(content).substr(begin, 777));
    file->close();
    file->close();
    EXPECT_EQ(files.read_file(path), content) << size;
    EXPECT_EQ(files.info(path).size, size);
  }
  files.open_write(directory.file("unclosed"))->write("content");
  EXPECT_EQ(files.read_file(directory.file("unclosed")), "content") << "its end writes it, too";
}

TEST(FileSystem, GivesAFileASecondName) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  files.write_file_atomically(directory.file("a"), "content");
  ASSERT_TRUE(files.link_file(directory.file("a"), directory.file("b")));
  EXPECT_EQ(files.info(directory.file("a")).file_id, files.info(directory.file("b")).file_id);
  EXPECT_THROW(static_cast<void>(files.link_file(directory.file("a"), directory.file("b"))), Error) << "there is one";
  files.remove_file(directory.file("a"));
  EXPECT_EQ(files.read_file(directory.file("b")), "content");
  EXPECT_THROW(static_cast<void>(files.link_file(directory.file("a"), directory.file("c"))), Error)
      << "nothing is there";
  class NoLinks : public SystemCalls {
   public:
    explicit NoLinks(int error) : error_(error) {}
    int link(const char*, const char*) override {
      errno = error_;
      return -1;
    }

   private:
    int error_;
  };
  EXPECT_FALSE(files.FileSystem::link_file(directory.file("b"), directory.file("c"))) << "as other kinds inherit it";
  EXPECT_FALSE(files.exists(directory.file("c")));
  for (const int error : {EPERM, EOPNOTSUPP, EXDEV, EMLINK}) {
    NoLinks calls(error);
    EXPECT_FALSE(make_file_system(calls)->link_file(directory.file("b"), directory.file("c"))) << error;
  }
}

TEST(FileSystem, FlushShowsBytesToOtherReaders) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  const auto file = files.open_write(directory.file("log"));
  file->write("hello");
  EXPECT_EQ(files.read_file(directory.file("log")), "");
  file->flush();
  EXPECT_EQ(files.read_file(directory.file("log")), "hello");
}

// In a loop, because the clock of a file's time may stand still between two of them.
TEST(FileSystem, TellsAFileFromAnotherOfTheSameName) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  const std::string path = directory.file("file");
  files.write_file_atomically(path, "0");
  for (int i = 1; i < 100; ++i) {
    const FileInfo before = files.info(path);
    EXPECT_EQ(files.info(path), before);
    files.write_file_atomically(path, i % 2 != 0 ? "1" : "0");
    EXPECT_NE(files.info(path), before);
  }
}

TEST(FileSystem, TellsWhenAFileWasWritten) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  files.write_file_atomically(directory.file("file"), "12345");
  const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 2}, {.tv_sec = 1'700'000'000, .tv_nsec = 123'456'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, directory.file("file").c_str(), times, 0), 0);
  EXPECT_EQ(files.info(directory.file("file")).modified_ns, 1'700'000'000'123'456'000);
}

TEST(FileSystem, AppendContinuesAtTheEnd) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  for (const char* text : {"one ", "two"}) {
    const auto file = files.open_append(directory.file("log"));
    file->write(text);
    file->close();
  }
  EXPECT_EQ(files.read_file(directory.file("log")), "one two");
}

TEST(FileSystem, AFailedWriteNamesTheCallersPath) {
  const TempDir directory;
  const std::string path = directory.file("missing/file");
  EXPECT_THAT(message_of([&] { local_file_system().write_file_atomically(path, "text"); }, ErrorCode::kNotFound),
              ::testing::AllOf(::testing::HasSubstr("create file failed: " + path),
                               ::testing::Not(::testing::HasSubstr(".tmp-"))));
}

// Reading a pipe would wait for its writer; a rename would put a file in the place of a device, for everyone.
TEST(FileSystem, LeavesPipesAndDevicesAlone) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  const std::string pipe = directory.file("pipe"), device = directory.file("device");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/dev/null", device.c_str()), 0);
  for (const std::string& path : {pipe, device}) {
    EXPECT_THAT(message_of([&] { files.open_read(path); }), core::Says("cannot be read like a file: " + path));
    EXPECT_THAT(message_of([&] { files.write_file_atomically(path, "text"); }),
                core::Says("not replaced by a file: " + path));
  }
  EXPECT_EQ(files.list(directory.path()), (std::vector<std::string>{"device", "pipe"}));
  struct stat status {};
  ASSERT_EQ(::lstat(device.c_str(), &status), 0);
  EXPECT_TRUE(S_ISLNK(status.st_mode));
}

TEST(FileSystem, ReadsAtOffsetsFromManyThreads) {
  const TempDir directory;
  const std::string content = pattern(100'000);
  local_file_system().write_file_atomically(directory.file("file"), content);
  const auto file = local_file_system().open_read(directory.file("file"));
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        std::string part(997, '\0');
        for (size_t offset = t; offset + part.size() <= content.size(); offset += 1009) {
          file->read_at(offset, std::as_writable_bytes(std::span(part)));
          wrong[t] += content.compare(offset, part.size(), part) != 0;
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(FileSystem, ReadingPastTheEndIsCorruptData) {
  const TempDir directory;
  local_file_system().write_file_atomically(directory.file("file"), "12345");
  const auto file = local_file_system().open_read(directory.file("file"));
  std::string part(3, '\0');
  try {
    file->read_at(3, std::as_writable_bytes(std::span(part)));
    FAIL() << "read bytes that are not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_EQ(error.detail().where, directory.file("file") + " at offset 3");
    EXPECT_EQ(error.detail().expected, "3 bytes");
    EXPECT_EQ(error.detail().actual, "2");
  }
}

TEST(FileSystem, ReadFileRefusesMoreThanItsLimit) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  files.write_file_atomically(directory.file("file"), "12345");
  EXPECT_EQ(files.read_file(directory.file("file"), 5), "12345");
  EXPECT_THAT(message_of([&] { files.read_file(directory.file("file"), 4); }, ErrorCode::kCorruptData),
              core::Says("file is too large: " + directory.file("file") + ": expected at most 4 bytes, got 5 bytes"));
}

TEST(FileSystem, MissingFilesAreNotFoundAndNamed) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  const std::string path = directory.file("none");
  EXPECT_FALSE(files.exists(path));
  for (const std::function<void()>& work : std::initializer_list<std::function<void()>>{
           [&] { files.open_read(path); }, [&] { files.info(path); }, [&] { files.list(path); },
           [&] { files.remove_file(path); }, [&] { files.rename(path, path + "2"); },
           [&] { files.open_write(path + "/file"); }, [&] { files.sync_directory(path); }}) {
    try {
      work();
      ADD_FAILURE() << "worked on a missing file";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  files.remove_tree(path);  // none there is fine
}

TEST(FileSystem, OpeningADirectoryAsAFileIsAnError) {
  const TempDir directory;
  EXPECT_EQ(code_of([&] { local_file_system().open_read(directory.path()); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { local_file_system().open_write(directory.path()); }), ErrorCode::kIo);
}

TEST(FileSystem, MakesListsRenamesAndRemovesDirectories) {
  const TempDir directory;
  FileSystem& files = local_file_system();
  const std::string deep = directory.file("a/b/c");
  files.make_directories(deep);
  files.make_directories(deep + "/");
  EXPECT_TRUE(files.info(deep).is_directory);
  for (const char* name : {"z", "a", "m"}) files.write_file_atomically(join_path(deep, name), name);
  EXPECT_EQ(files.list(deep), (std::vector<std::string>{"a", "m", "z"}));

  EXPECT_EQ(code_of([&] { files.make_directories(join_path(deep, "a")); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { files.make_directories(join_path(deep, "a/b")); }), ErrorCode::kIo);

  files.make_directories(directory.file("empty"));
  EXPECT_EQ(code_of([&] { files.rename(deep, directory.file("empty")); }), ErrorCode::kIo);
  files.rename(deep, directory.file("moved"));
  EXPECT_EQ(files.list(directory.file("moved")).size(), 3U);

  // A link to a directory is removed, what it points to stays.
  ASSERT_EQ(::symlink(directory.file("moved").c_str(), directory.file("a/link").c_str()), 0);
  files.remove_tree(directory.file("a"));
  EXPECT_EQ(files.list(directory.path()), (std::vector<std::string>{"empty", "moved"}));
  EXPECT_EQ(files.list(directory.file("moved")).size(), 3U);
}

TEST(FileSystem, AtomicWriteSyncsBeforeItRenamesAndThenSyncsTheDirectory) {
  const TempDir directory;
  FaultInjector calls;
  make_file_system(calls)->write_file_atomically(directory.file("file"), "content");
  std::vector<std::string> verbs;
  for (const std::string& call : calls.log()) verbs.push_back(call.substr(0, call.find(' ')));
  EXPECT_EQ(verbs, (std::vector<std::string>{"open", "fstat", "write", "fsync", "close", "stat", "rename", "open",
                                             "fsync", "close"}));
}

// Every call of writing, renaming and reading back fails once, in every way. Interruptions and short counts must not
// show; errors must be told and must leave the old file or the new one.
TEST(FileSystem, SurvivesOrReportsEveryFault) {
  const std::string before = pattern(1000);
  const std::string after = pattern(150'000);
  for (const Fault fault : {Fault::kInterrupted, Fault::kShort, Fault::kIoError, Fault::kNoSpace}) {
    const bool harmless = fault == Fault::kInterrupted || fault == Fault::kShort;
    int told = 0;
    int n = 1;
    for (;; ++n) {
      const TempDir directory;
      const std::string path = directory.file("file");
      local_file_system().write_file_atomically(path, before);
      FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto files = make_file_system(faults);
      const std::optional<ErrorCode> code = code_of([&] {
        files->write_file_atomically(path, after);
        if (files->read_file(path) != after) throw std::logic_error("read something else");
      });
      const std::string now = local_file_system().read_file(path);
      EXPECT_TRUE(now == before || now == after) << "call " << n;
      EXPECT_EQ(local_file_system().list(directory.path()).size(), 1U) << "a temporary file stays after call " << n;
      if (!faults.reached()) {
        EXPECT_EQ(code, std::nullopt);
        break;
      }
      if (harmless) {
        EXPECT_EQ(code, std::nullopt) << "call " << n;
      }
      if (code) {
        ++told;
        EXPECT_EQ(*code, fault == Fault::kNoSpace ? ErrorCode::kNoSpace : ErrorCode::kIo);
      }
    }
    EXPECT_GT(n, 12);
    // All but the closing of files that were only read or synced as directories are told.
    if (!harmless) {
      EXPECT_GE(told, n - 4) << "of " << n - 1;
    }
  }
}

TEST(FileSystem, DirectoryOperationsSurviveOrReportEveryFault) {
  for (const Fault fault : {Fault::kInterrupted, Fault::kIoError}) {
    for (int n = 1;; ++n) {
      const TempDir directory;
      FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto files = make_file_system(faults);
      const auto code = code_of([&] {
        files->make_directories(directory.file("a/b"));
        files->open_append(directory.file("a/b/file"))->close();
        if (!files->exists(directory.file("a/b/file")) || !files->info(directory.file("a")).is_directory) {
          throw std::logic_error("not made");
        }
        files->rename(directory.file("a"), directory.file("c"));
        files->remove_tree(directory.file("c"));
        if (!files->list(directory.path()).empty()) throw std::logic_error("not removed");
      });
      if (fault == Fault::kInterrupted) {
        EXPECT_EQ(code, std::nullopt) << n;
      }
      if (!faults.reached()) {
        EXPECT_GT(n, 15);
        break;
      }
    }
  }
}

TEST(FileSystem, AFullDiskThatStaysFullLeavesTheOldFile) {
  const std::string before = "before";
  for (int n = 1;; ++n) {
    const TempDir directory;
    const std::string path = directory.file("file");
    local_file_system().write_file_atomically(path, before);
    FaultInjector faults;
    faults.fail_writes_from_nth(n, Fault::kNoSpace);
    const auto code = code_of([&] { make_file_system(faults)->write_file_atomically(path, pattern(200'000)); });
    if (!faults.reached()) break;
    if (n <= 4) {
      EXPECT_EQ(local_file_system().read_file(path), before) << n;
    }
    if (n <= 8) {
      EXPECT_EQ(code, ErrorCode::kNoSpace) << n;
    }
  }
}

TEST(FileSystem, AnAtomicWriteOutlivesAPowerCut) {
  const TempDir directory;
  PowerCut disk;
  make_file_system(disk)->write_file_atomically(directory.file("file"), pattern(150'000));
  EXPECT_EQ(disk.cut(directory.path()), 0);
  EXPECT_EQ(local_file_system().read_file(directory.file("file")), pattern(150'000));
}

// What the sync before the rename is for: without it the new name stands for bytes that never reached the disk, and the
// old file is gone.
TEST(FileSystem, ARenameWithoutASyncLosesBothFilesInAPowerCut) {
  const TempDir directory;
  local_file_system().write_file_atomically(directory.file("file"), "old");
  PowerCut disk;
  const auto files = make_file_system(disk);
  const auto file = files->open_write(directory.file("new"));
  file->write(pattern(150'000));
  file->close();
  files->rename(directory.file("new"), directory.file("file"));
  EXPECT_EQ(disk.cut(directory.path()), 1);
  EXPECT_EQ(local_file_system().read_file(directory.file("file")), "");
}

TEST(FileSystem, AfterAnErrorAFileStaysBroken) {
  const TempDir directory;
  FaultInjector faults;
  const auto file = make_file_system(faults)->open_write(directory.file("file"));
  faults.fail_nth(faults.calls() + 1, Fault::kNoSpace);
  file->write("lost");
  EXPECT_EQ(code_of([&] { file->flush(); }), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of([&] { file->write("more"); }), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of([&] { file->sync(); }), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of([&] { file->close(); }), ErrorCode::kNoSpace);
  EXPECT_EQ(code_of([&] { file->write("more"); }), ErrorCode::kIo) << "closed";
}

// What the retry loop is for: a write that trusts the first count loses bytes.
TEST(FileSystem, AShortWriteThatIsNotContinuedLosesBytes) {
  const TempDir directory;
  FaultInjector faults;
  const int descriptor = faults.open(directory.file("file").c_str(), 0101, 0666);  // O_WRONLY | O_CREAT
  faults.fail_nth(2, Fault::kShort);
  EXPECT_EQ(faults.write(descriptor, "12345678", 8), 4);
  faults.close(descriptor);
  EXPECT_EQ(local_file_system().read_file(directory.file("file")), "1234");
}

TEST(Paths, OneForEachFolder) {
  const TempDir directory;
  const std::string real = real_path(directory.path());
  std::filesystem::create_directory_symlink(directory.path(), directory.file("link"));
  for (const char* const name : {"", "/", "//", "/link", "/link/", "/./link/./link", "/not/.."}) {
    EXPECT_EQ(real_path(directory.path() + name), real) << name;
  }
  EXPECT_EQ(real_path(directory.file("link/not/there/")), real + "/not/there");
  EXPECT_EQ(real_path("."), std::filesystem::current_path().string());
  EXPECT_EQ(real_path("/"), "/");
  EXPECT_EQ(real_path(""), "");
}

TEST(Paths, JoinAndSplit) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("c"), ".");
  EXPECT_EQ(parent_path("/c"), "/");
  EXPECT_EQ(base_name("a/b/c"), "c");
  EXPECT_EQ(base_name("c"), "c");
}

// Smaller writes are gathered; one that fills the buffer alone is passed on as it is.
TEST(FileSystem, GathersWritesUpTo64KiB) {
  class WriteSizes : public SystemCalls {
   public:
    ssize_t write(int descriptor, const void* bytes, size_t count) override {
      sizes.push_back(count);
      return SystemCalls::write(descriptor, bytes, count);
    }
    std::vector<size_t> sizes{};
  };
  const TempDir directory;
  WriteSizes calls;
  const auto file = make_file_system(calls)->open_write(directory.file("file"));
  file->write(pattern(65535));
  file->write("x");
  EXPECT_TRUE(calls.sizes.empty());
  file->write("y");
  EXPECT_EQ(calls.sizes, std::vector<size_t>{65536});
  file->write(pattern(65536));
  EXPECT_EQ(calls.sizes, (std::vector<size_t>{65536, 1, 65536}));
  file->write(pattern(65535));
  file->close();
  EXPECT_EQ(calls.sizes, (std::vector<size_t>{65536, 1, 65536, 65535}));
  EXPECT_EQ(local_file_system().read_file(directory.file("file")),
            pattern(65535) + "xy" + pattern(65536) + pattern(65535));
}

TEST(FileSystem, SaysWhichOperationHasFailedOnWhat) {
  const TempDir directory;
  FileSystem& machine = local_file_system();
  const std::string path = directory.file("file"), folder = directory.file("folder"), other = directory.file("other");
  const std::string of_path = " failed: " + path + ": got " + std::strerror(EIO),
                    of_folder = " failed: " + folder + ": got " + std::strerror(EIO),
                    of_other = " failed: " + other + ": got " + std::strerror(EIO);
  // What an operation says whose call number n fails.
  const auto message = [&](int n, const std::function<void(FileSystem&)>& work) {
    machine.write_file_atomically(path, "text");
    machine.make_directories(folder);
    FaultInjector faults;
    faults.fail_nth(n, Fault::kIoError);
    const auto files = make_file_system(faults);
    return message_of([&] { work(*files); }, ErrorCode::kIo);
  };
  EXPECT_EQ(message(1, [&](FileSystem& files) { static_cast<void>(files.exists(path)); }), "look for file" + of_path);
  EXPECT_EQ(message(1, [&](FileSystem& files) { static_cast<void>(files.info(path)); }), "look at file" + of_path);
  EXPECT_EQ(message(1, [&](FileSystem& files) { static_cast<void>(files.list(folder)); }),
            "list directory" + of_folder);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.make_directories(other); }), "make directory" + of_other);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.make_directories(folder); }), "make directory" + of_folder)
      << "there is one, or a file of its name";
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.rename(path, other); }), "rename " + path + of_other);
  EXPECT_EQ(message(1, [&](FileSystem& files) { static_cast<void>(files.link_file(path, other)); }),
            "link " + path + of_other);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.remove_file(path); }), "remove file" + of_path);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.remove_tree(path); }), "look at file" + of_path);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.remove_tree(path); }), "remove file" + of_path);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.remove_tree(folder); }), "list directory" + of_folder);
  EXPECT_EQ(message(3, [&](FileSystem& files) { files.remove_tree(folder); }), "remove directory" + of_folder);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.sync_directory(folder); }), "open directory" + of_folder);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.sync_directory(folder); }), "sync directory" + of_folder);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.sync_tree(folder); }), "open directory" + of_folder);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.sync_tree(folder); }),
            "sync the files below directory" + of_folder);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.open_read(path); }), "open file" + of_path);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.open_read(path); }), "read the size of file" + of_path);
  EXPECT_EQ(message(3, [&](FileSystem& files) { static_cast<void>(files.read_file(path)); }), "read file" + of_path);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.open_append(path); }), "create file" + of_path);
  EXPECT_EQ(message(1, [&](FileSystem& files) { files.open_write(path); }), "create file" + of_path);
  EXPECT_EQ(message(2, [&](FileSystem& files) { files.open_write(path); }), "look at file" + of_path);
  const auto written = [&](FileSystem& files, const std::function<void(WritableFile&)>& end) {
    const auto file = files.open_write(path);
    file->write("x");
    end(*file);
  };
  EXPECT_EQ(message(3, [&](FileSystem& files) { written(files, [](WritableFile& file) { file.flush(); }); }),
            "write file" + of_path);
  EXPECT_EQ(message(4, [&](FileSystem& files) { written(files, [](WritableFile& file) { file.sync(); }); }),
            "sync file" + of_path);
  EXPECT_EQ(message(4, [&](FileSystem& files) { written(files, [](WritableFile& file) { file.close(); }); }),
            "close file" + of_path);
  EXPECT_EQ(message_of([&] { machine.rename(path, folder); }, ErrorCode::kIo),
            "rename " + path + " to an existing directory failed: " + folder + ": got " + std::strerror(EEXIST));
  EXPECT_FALSE(machine.exists(join_path(path, "below"))) << "a file is no folder";
}

// Some network file systems answer so; nothing can be done there, and what was written must not be given up for it. A
// file that is not synced is an error as ever.
TEST(FileSystem, AcceptsDirectoriesThatCannotBeSynced) {
  class NoSync : public SystemCalls {
   public:
    NoSync(int error, bool directories) : error_(error), directories_(directories) {}
    int fsync(int descriptor) override {
      struct stat status {};
      if (SystemCalls::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode) != directories_) return 0;
      errno = error_;
      return -1;
    }

   private:
    int error_;
    bool directories_;
  };
  const TempDir directory;
  const std::string path = directory.file("file");
  for (const int error : {EINVAL, EOPNOTSUPP, EIO}) {
    NoSync of_directories(error, true), of_files(error, false);
    const auto expected = error == EIO ? std::optional(ErrorCode::kIo) : std::nullopt;
    EXPECT_EQ(code_of([&] { make_file_system(of_directories)->sync_directory(directory.path()); }), expected) << error;
    EXPECT_EQ(code_of([&] { make_file_system(of_directories)->write_file_atomically(path, "new"); }), expected);
    EXPECT_EQ(local_file_system().read_file(path), "new");
    EXPECT_EQ(code_of([&] { make_file_system(of_files)->write_file_atomically(path, "other"); }), ErrorCode::kIo);
  }
}

TEST(FileSystem, AnExceptionOfAnotherKindLeavesNoFileEither) {
  class NoMemory : public SystemCalls {
   public:
    int fsync(int /*descriptor*/) override { throw std::bad_alloc(); }
  };
  const TempDir directory;
  NoMemory calls;
  const auto files = make_file_system(calls);
  EXPECT_THROW(files->write_file_atomically(directory.file("file"), "text"), std::bad_alloc);
  EXPECT_THAT(local_file_system().list(directory.path()), ::testing::IsEmpty());
}

// Another machine, or a container, may write the same file at the same time under the same process number.
TEST(FileSystem, EachAtomicWriteHasATemporaryNameOfItsOwn) {
  const TempDir directory;
  std::vector<std::string> opened;
  for (int i = 0; i < 2; ++i) {
    FaultInjector calls;
    make_file_system(calls)->write_file_atomically(directory.file("file"), "content");
    opened.push_back(calls.log().at(0));
    EXPECT_THAT(opened.back(), ::testing::MatchesRegex("open " + directory.file("file") + "\\.tmp-" +
                                                       std::to_string(::getpid()) + "-[0-9]+-[0-9a-f]{8}"));
  }
  EXPECT_NE(opened[0], opened[1]);
  EXPECT_EQ(opened[0].substr(opened[0].size() - 8), opened[1].substr(opened[1].size() - 8)) << "one of the process";
}

TEST(Paths, AllSlashesAtTheEndAreDropped) {
  EXPECT_EQ(without_slashes("a//"), "a");
  EXPECT_EQ(without_slashes("a/b/"), "a/b");
  EXPECT_EQ(without_slashes("a"), "a");
  EXPECT_EQ(without_slashes("//"), "/");
  EXPECT_EQ(without_slashes(""), "");
}

}  // namespace
}  // namespace trainyard::core::file_system_test
