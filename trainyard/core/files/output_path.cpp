#include "trainyard/core/files/output_path.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

namespace trainyard::core {
namespace {

constexpr int kMostLinks = 40;  // as Linux

OutputKind kind_of(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return OutputKind::kPlainFile;
  if (S_ISDIR(status.st_mode)) return OutputKind::kDirectory;
  return S_ISLNK(status.st_mode) ? OutputKind::kLink : OutputKind::kPipeOrDevice;
}

// What a descriptor of this process is open on can be a plain file (`> log.txt`), which others have open, too. Other
// names below /dev are what they are: /dev/shm holds plain files.
bool is_descriptor(const std::string& path) {
  return path == "/dev/stdin" || path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") ||
         path.starts_with("/proc/");
}

}  // namespace

Error not_a_plain_file(const std::string& path, OutputKind kind) {
  const bool link = kind == OutputKind::kLink;
  const char* const problem = link                             ? "a symbolic link is not written through"
                              : kind == OutputKind::kDirectory ? "a directory is not written like a file"
                                                               : "a pipe or device is not written like a file";
  return {ErrorCode::kInvalidArgument,
          {.problem = problem,
           .where = path,
           .expected = "a plain file, or none",
           .remedy = link ? "remove the link, or put the file itself there; the folder may be a link" : "remove it"}};
}

OutputKind output_kind(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return kind_of(status);
  if (errno == ENOENT || errno == ENOTDIR) return OutputKind::kNothing;
  throw system_error(errno, "look at file", path);
}

void require_plain_output(const std::string& path) {
  const OutputKind kind = output_kind(path);
  if (kind != OutputKind::kNothing && kind != OutputKind::kPlainFile) throw not_a_plain_file(path, kind);
}

UserOutput resolve_user_output(const std::string& path) {
  if (path.empty()) throw system_error(ENOENT, "create file", path);
  UserOutput output{.path = path, .is_stream = is_descriptor(path)};
  for (int links = 0; !output.is_stream; ++links) {
    const OutputKind kind = output_kind(output.path);
    if (kind == OutputKind::kDirectory) throw system_error(EISDIR, "create file", output.path);
    output.is_stream = kind == OutputKind::kPipeOrDevice;
    if (kind != OutputKind::kLink) break;
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(output.path, error);
    if (error) throw system_error(error.value(), "read link", output.path);
    if (links >= kMostLinks) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "symbolic links lead to each other", .where = path, .remedy = "name a file"});
    }
    output.path = join_path(parent_path(output.path), target.string());
    output.is_stream = is_descriptor(output.path);
  }
  return output;
}

void write_user_output(const std::string& path, std::string_view content, FileSystem& files) {
  const UserOutput output = resolve_user_output(path);
  if (!output.is_stream) return files.write_file_atomically(output.path, content);
  const auto stream = open_stream(output.path);
  stream->write(content);
  stream->close();
}

}  // namespace trainyard::core
