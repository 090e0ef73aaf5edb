#include "trainyard/frontends/input/data_digest.h"

#include <cstdint>

#include <fmt/format.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/file_walk.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kMostFiles = 100'000;

// Hashes the names of files, from the data's folder on, and their sizes.
class Digest : public data::FileVisitor {
 public:
  bool wants_more() override {
    more_ = count_ == kMostFiles;
    return !more_;
  }
  void visit(const std::string& name, const core::FileInfo& info) override {
    if (info.is_directory) return;
    ++count_;
    bytes_ += info.size;
    hash_ = core::stable_hash(fmt::format("{} {}\n", name, info.size), hash_);
  }
  void open_folder(const std::string& path, int depth) override { data::refuse_depth(path, depth); }
  std::string text() const {
    return fmt::format("{} files, {} bytes, {:016x}{}", count_, bytes_, hash_, more_ ? ", and more" : "");
  }

 private:
  int64_t count_ = 0;
  uint64_t bytes_ = 0, hash_ = core::stable_hash("");
  bool more_ = false;
};

}  // namespace

std::string data_digest(core::FileSystem& files, const std::string& data) {
  Digest digest;
  for (const std::string& path : data::paths_named(files, data)) data::walk_files(files, path, digest);
  return digest.text();
}

}  // namespace trainyard::frontends
