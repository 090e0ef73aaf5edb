#include "trainyard/train/line_file.h"

namespace trainyard::train {
namespace {

void remove_torn_line(const std::string& path, core::FileSystem& files) {
  if (!files.exists(path)) return;
  const uint64_t size = files.info(path).size;
  if (size == 0) return;
  std::byte last{};
  files.open_read(path)->read_at(size - 1, {&last, 1});
  if (last == std::byte{'\n'}) return;
  const std::string content = files.read_file(path);
  files.write_file_atomically(path, std::string_view(content).substr(0, content.rfind('\n') + 1));
}

}  // namespace

LineFile::LineFile(const std::string& path, core::FileSystem& files) {
  files.make_directories(core::parent_path(path));
  remove_torn_line(path, files);
  file_ = files.open_append(path);
}

void LineFile::append(std::string_view line) {
  file_->write(line);
  file_->write("\n");
  file_->flush();
}

}  // namespace trainyard::train
