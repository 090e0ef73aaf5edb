#include "trainyard/train/monitors/line_file.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"

namespace trainyard::train {
namespace {

void remove_torn_line(const std::string& path, core::FileSystem& files) {
  core::require_plain_output(path);
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
  core::require_plain_output(path);
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

std::string read_beginning(const std::string& path, core::FileSystem& files) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  core::require_plain_output(path);
  if (!files.exists(path)) return "";
  const auto file = files.open_read(path);
  std::string text(std::min(file->size(), kMostBytes), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void refuse_foreign_file(const std::string& path, const std::string& expected, const std::string& begin) {
  throw core::Error(core::ErrorCode::kCorruptData, {.problem = "not a file of metrics",
                                                    .where = path,
                                                    .expected = expected,
                                                    .actual = begin.substr(0, std::min<size_t>(begin.find('\n'), 80)),
                                                    .remedy = "move it away"});
}

bool is_torn_from(std::string_view text, std::string_view begin) {
  return begin.starts_with(text) || text.starts_with(begin) || text.find_first_not_of('\0') == std::string_view::npos;
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
