#include "trainyard/train/monitors/line_file.h"

#include <algorithm>

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

void keep_lines(const std::string& path, core::FileSystem& files, const std::function<bool(std::string_view)>& keep) {
  if (!files.exists(path)) return;
  const std::string content = files.read_file(path);
  std::string kept;
  for (std::string_view rest = content; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    if (keep(line.ends_with('\n') ? line.substr(0, line.size() - 1) : line)) kept += line;
    rest.remove_prefix(end);
  }
  if (kept.size() != content.size()) files.write_file_atomically(path, kept);
}

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
