#include "trainyard/train/session/run_directory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/session/run_lock.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;
using core::ErrorDetail;

namespace {

// docs/formats/metrics.md, docs/formats/mlflow.md, docs/formats/class_accuracy.md, docs/formats/evaluation.md.
constexpr std::array<std::string_view, 13> kRunFiles = {
    "metrics.jsonl", "metrics.csv",         "stats.json",      "mlflow_run.txt", "run_summary.json",
    "curve.svg",     "class_accuracy.json", "evaluation.json", "confusion.csv",  "confusion.svg",
    "per_class.csv", "calibration.svg",     "most_wrong.png"};

// A file that a training writes, also one that a crash has left under its temporary name.
bool is_run_file(std::string_view name) {
  if (name.starts_with("events.out.tfevents.")) return true;
  return std::any_of(kRunFiles.begin(), kRunFiles.end(), [&](std::string_view known) {
    return name == known || (name.starts_with(known) && name.substr(known.size()).starts_with(".tmp"));
  });
}

// A checkpoint's directory with nothing in it but what a checkpoint has.
bool is_checkpoint(const std::string& directory, const std::string& name, core::FileSystem& files) {
  if (!parse_checkpoint_name(name)) return false;
  const std::vector<std::string> content = files.list(core::join_path(directory, name));
  return std::all_of(content.begin(), content.end(),
                     [](const std::string& file) { return file == kManifestFile || file == kTensorFile; });
}

// `trainyard report`'s page, also under a temporary name. It is made from the run, and alone it is none.
bool is_report(std::string_view name) {
  constexpr std::string_view kReport = "report.html";
  return name == kReport || (name.starts_with(kReport) && name.substr(kReport.size()).starts_with(".tmp"));
}

// The names in a run directory, by whether a training wrote them.
struct RunEntries {
  std::vector<std::string> own, reports, foreign;
};

RunEntries entries_of(const std::string& directory, core::FileSystem& files) {
  RunEntries entries;
  if (!files.exists(directory) || !files.info(directory).is_directory) return entries;
  for (const std::string& name : files.list(directory)) {
    if (name == kRunLock) continue;  // alone it is no run
    const std::string path = core::join_path(directory, name);
    const bool is_folder = files.exists(path) && files.info(path).is_directory;  // a link may lead nowhere
    const bool own = is_folder ? is_checkpoint(directory, name, files) : is_run_file(name);
    const bool report = !is_folder && is_report(name);
    if (report) entries.reports.push_back(name);
    if (!report) (own ? entries.own : entries.foreign).push_back(name);
  }
  return entries;
}

std::string unused_path(const std::string& path, core::FileSystem& files) {
  for (int number = 2;; ++number) {
    std::string candidate = fmt::format("{}-{}", path, number);
    if (!files.exists(candidate)) return candidate;
  }
}

void delete_run(const std::string& directory, core::FileSystem& files) {
  const core::LockFile lock(core::join_path(directory, kRunLock));
  const RunEntries entries = entries_of(directory, files);
  if (!entries.foreign.empty()) {
    const size_t shown = std::min<size_t>(entries.foreign.size(), 5);
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "a run is not deleted from a directory that holds other things",
         .where = directory,
         .expected = "nothing but what a training and its report write",
         .actual = fmt::format("{}{}", fmt::join(entries.foreign.begin(), entries.foreign.begin() + shown, ", "),
                               shown < entries.foreign.size() ? ", ..." : ""),
         .remedy = "move them away, or keep the run under another name (back_up)"});
  }
  for (const std::string& name : entries.reports) files.remove_file(core::join_path(directory, name));
  for (const std::string& name : entries.own) {
    const std::string path = core::join_path(directory, name);
    if (files.info(path).is_directory) {
      files.remove_tree(path);
    } else {
      files.remove_file(path);
    }
  }
  files.sync_directory(directory);
}

// One key a call, without Enter and without an echo, as long as it lives.
class KeyReader {
 public:
  KeyReader() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0)
      throw core::system_error(errno, "read the settings of", "the terminal");
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  ~KeyReader() { ::tcsetattr(STDIN_FILENO, TCSANOW, &before_); }
  KeyReader(const KeyReader&) = delete;
  KeyReader& operator=(const KeyReader&) = delete;

  // Returns nothing at the end of the input, and when a stop is asked for.
  std::optional<char> next(const core::StopToken& stop) {
    while (!stop.stop_requested()) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, 100) <= 0) continue;
      char key = 0;
      const ssize_t count = ::read(STDIN_FILENO, &key, 1);
      if (count < 0 && errno == EINTR) continue;
      constexpr char kEndOfTransmission = 4;
      if (count != 1 || key == kEndOfTransmission) return std::nullopt;
      return key;
    }
    return std::nullopt;
  }

 private:
  termios before_{};
};

}  // namespace

std::optional<ExistingRun> parse_existing_run(std::string_view text) {
  if (text == "keep") return ExistingRun::kKeep;
  if (text == "back_up") return ExistingRun::kBackUp;
  if (text == "delete") return ExistingRun::kDelete;
  if (text == "new_name") return ExistingRun::kNewName;
  return std::nullopt;
}

bool holds_run(const std::string& directory, core::FileSystem& files) {
  return !entries_of(directory, files).own.empty();
}

void require_plain_run_files(const std::string& directory) {
  for (const std::string_view name : kRunFiles) core::require_plain_output(core::join_path(directory, name));
}

std::string settle_existing_run(const std::string& directory, ExistingRun existing, double now,
                                core::FileSystem& files) {
  std::string path = core::without_slashes(directory);
  if (existing == ExistingRun::kKeep || !holds_run(path, files)) return directory;
  const std::string last = core::base_name(path);
  const bool nameless = last == "." || last == "..";  // cannot be renamed, and a folder next to it would be ".-2"
  if (nameless && existing != ExistingRun::kDelete) path = core::real_path(path);
  switch (existing) {
    case ExistingRun::kKeep:
      break;
    case ExistingRun::kBackUp: {
      // The lock is given back before the rename: the directory takes its lock file along.
      { const core::LockFile lock(core::join_path(path, kRunLock)); }
      std::string backup = fmt::format("{}.backup-{:%Y%m%d-%H%M%S}", path, fmt::gmtime(static_cast<time_t>(now)));
      if (files.exists(backup)) backup = unused_path(backup, files);
      files.rename(path, backup);
      files.sync_directory(core::parent_path(path));
      core::log::info("the run in {} is now {}", path, backup);
      if (nameless) return path;  // the folder that is "." has moved
      break;
    }
    case ExistingRun::kDelete:
      delete_run(path, files);
      core::log::info("the run in {} is deleted", path);
      break;
    case ExistingRun::kNewName: {
      std::string fresh = unused_path(path, files);
      core::log::info("{} holds a run: this one is {}", path, fresh);
      return fresh;
    }
  }
  return directory;
}

std::string make_new_run_directory(const std::string& parent, const std::string& name, core::FileSystem& files) try {
  std::string prefix = name + "-";
  std::replace(prefix.begin(), prefix.end(), '/', '-');
  files.make_directories(parent);
  int64_t number = 0;
  for (const std::string& other : files.list(parent)) {
    int64_t used = 0;
    if (!other.starts_with(prefix)) continue;
    const char* const end = other.data() + other.size();
    const auto parsed = std::from_chars(other.data() + prefix.size(), end, used);
    if (parsed.ec == std::errc() && parsed.ptr == end) number = std::max(number, used);
  }
  for (;;) {
    std::string path = core::join_path(parent, fmt::format("{}{}", prefix, ++number));
    if (std::filesystem::create_directory(path)) return path;  // false: another process was first
  }
} catch (const std::filesystem::filesystem_error& error) {
  throw Error(ErrorCode::kIo, {.problem = "a folder for the run cannot be made",
                               .where = error.path1().string(),
                               .actual = error.code().message(),
                               .remedy = "pass --train_dir, or an empty --train_dir= to save nothing"});
} catch (const Error& error) {
  ErrorDetail detail = error.detail();
  detail.remedy = "pass --train_dir, or an empty --train_dir= to save nothing";
  throw Error(error.code(), detail);
}

bool can_ask() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

ExistingRun ask_existing_run(const std::string& directory, std::ostream& out, const core::StopToken& stop,
                             bool offers_new_name) {
  KeyReader keys;
  out << fmt::format("{} holds a run. (k)eep it and go on, (b)ack it up, (d)elete it, {}(q)uit? ", directory,
                     offers_new_name ? "(n)ew name, " : "")
      << std::flush;
  while (const std::optional<char> key = keys.next(stop)) {
    if (std::string_view(offers_new_name ? "kbdnq" : "kbdq").find(*key) == std::string_view::npos) continue;
    out << *key << std::endl;
    if (*key == 'k') return ExistingRun::kKeep;
    if (*key == 'b') return ExistingRun::kBackUp;
    if (*key == 'd') return ExistingRun::kDelete;
    if (*key == 'n') return ExistingRun::kNewName;
    break;
  }
  throw Error(ErrorCode::kCancelled, {.problem = "no run was started", .where = directory});
}

}  // namespace trainyard::train
