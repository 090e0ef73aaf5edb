// Pipes, /dev/null and the files of a launch's folders, as what a simulated process has open.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

namespace trainyard::cluster_simulation {

// Bytes in order. Its functions do not block, and return -1 and set errno where they fail.
class Stream : public Descriptor {
 public:
  virtual ssize_t read(char* bytes, size_t count) = 0;
  virtual ssize_t write(const char* bytes, size_t count) = 0;
  Stream* as_stream() override { return this; }
  bool blocks = true;  // its process waits in read() and write() (without O_NONBLOCK)
};

class NullDevice final : public Stream {
 public:
  short ready() const override;
  void close() override {}
  ssize_t read(char* /*bytes*/, size_t /*count*/) override { return 0; }
  ssize_t write(const char* /*bytes*/, size_t count) override { return static_cast<ssize_t>(count); }
};

class PipeEnd final : public Stream {
 public:
  short ready() const override;
  void close() override;
  ssize_t read(char* bytes, size_t count) override;
  ssize_t write(const char* bytes, size_t count) override;
  // Appends what is written from here on to `record` as well.
  void record_to(std::string* record) { shared_->record = record; }

 private:
  friend std::pair<std::shared_ptr<PipeEnd>, std::shared_ptr<PipeEnd>> make_pipe(World& world);
  struct Shared {
    World& world;
    std::string bytes;
    PipeEnd *reads = nullptr, *writes = nullptr;  // null: closed
    std::string* record = nullptr;
  };
  PipeEnd(std::shared_ptr<Shared> shared, bool writes) : shared_(std::move(shared)), writes_(writes) {}
  // Returns a count that is less in some calls, as a signal or a full page cuts them.
  size_t short_of(size_t count);

  const std::shared_ptr<Shared> shared_;
  const bool writes_;
};
// Returns the ends that read and write.
std::pair<std::shared_ptr<PipeEnd>, std::shared_ptr<PipeEnd>> make_pipe(World& world);

// A file or a folder of Machine::files, or /proc.
class OpenFile final : public Descriptor {
 public:
  OpenFile(Machine& machine, std::string path_of_it) : path(std::move(path_of_it)), machine_(machine) {}
  short ready() const override { return 0; }
  void close() override { lock(false); }
  OpenFile* as_file() override { return this; }
  void lock(bool locked);
  bool is_locked_by_others() const;

  const std::string path;
  std::vector<std::string> names;  // of a folder

 private:
  Machine& machine_;
  bool locked_ = false;
};

}  // namespace trainyard::cluster_simulation
