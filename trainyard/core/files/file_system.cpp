#include "trainyard/core/files/file_system.h"

#include <atomic>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/system_random.h"

namespace trainyard::core {
namespace {

// A name in the folder of `path` that no other writer uses at the same time, on other machines and in containers, whose
// processes have the same numbers, neither.
std::string temporary_path(const std::string& path) {
  static const uint32_t own = system_random();
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.tmp-{}-{}-{:08x}", path, ::getpid(), counter.fetch_add(1), own);
}

// The error with the name that the caller knows.
Error of_path(const Error& error, const std::string& temporary, const std::string& path) {
  ErrorDetail detail = error.detail();
  const size_t at = detail.where.find(temporary);
  if (at != std::string::npos) detail.where.replace(at, temporary.size(), path);
  return {error.code(), detail};
}

}  // namespace

bool FileSystem::link_file(const std::string& /*from*/, const std::string& /*to*/) {
  return false;
}

void FileSystem::sync_tree(const std::string& directory) {
  for (const std::string& name : list(directory)) {
    const std::string path = join_path(directory, name);
    if (info(path).is_directory) {
      sync_tree(path);
      continue;
    }
    const std::unique_ptr<WritableFile> file = open_append(path);
    file->sync();
    file->close();
  }
  sync_directory(directory);
}

std::string FileSystem::read_file(const std::string& path, uint64_t limit_bytes) {
  const std::unique_ptr<ReadableFile> file = open_read(path);
  if (file->size() > limit_bytes) {
    throw Error(ErrorCode::kCorruptData, {.problem = "file is too large",
                                          .where = path,
                                          .expected = fmt::format("at most {} bytes", limit_bytes),
                                          .actual = fmt::format("{} bytes", file->size()),
                                          .remedy = "check that it is the right file"});
  }
  std::string content(file->size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void FileSystem::write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = temporary_path(path);
  const auto discard = [&] {
    try {
      remove_file(temporary);
    } catch (const Error&) {
      // The first error is the one to tell; it may be that there is no file.
    }
  };
  try {
    const std::unique_ptr<WritableFile> file = open_write(temporary);
    file->write(content);
    file->sync();
    file->close();
    rename(temporary, path);
  } catch (const Error& error) {
    discard();
    throw of_path(error, temporary, path);
  } catch (...) {
    discard();
    throw;
  }
  sync_directory(parent_path(path));
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || name.starts_with('/')) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string real_path(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path real =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  return unknown ? path : without_slashes(real.string());
}

std::string parent_path(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace trainyard::core
