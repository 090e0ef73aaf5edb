// Checkpoints: damaged in any file, and saved on disks that fail, fill up or lose power. What was reported as saved
// stays as it was.
#include <memory>
#include <string>
#include <vector>

#include "tests/hostile/hostile.h"
#include <fmt/format.h>

#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/power_cut.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::hostile {
namespace {

using core::ErrorCode;
using train::CheckpointInfo, train::CheckpointStore, train::VersionedState;

const train::CheckpointIdentity kIdentity{.model = "lenet", .dataset = "shapes", .num_classes = 12};

void expect_version(const CheckpointInfo& saved, int64_t version) {
  VersionedState state;
  train::load_checkpoint(saved, &kIdentity, state);
  check(state.version() == version, fmt::format("{} holds version {}, not {}", saved.path, state.version(), version));
}

// Returns the versions of all intact checkpoints, each of which must hold what it says.
int64_t newest_intact(const std::string& directory) {
  int64_t newest = 0;
  for (const CheckpointInfo& saved : CheckpointStore(directory).list()) {
    expect_version(saved, saved.global_step);
    newest = saved.global_step;
  }
  return newest;
}

std::string run_damage(Case& drawn) {
  CheckpointStore store(drawn.folder, 5);
  const int64_t elements = drawn.between(1, 400);
  const int64_t count = drawn.between(1, 3);
  CheckpointInfo newest;
  for (int64_t step = 1; step <= count; ++step) {
    newest = store.save(step, kIdentity, VersionedState(step, elements));
  }
  const std::string path =
      core::join_path(newest.path, drawn.draw.next_bool() ? train::kManifestFile : train::kTensorFile);
  core::FileSystem& files = core::local_file_system();
  std::string content = files.read_file(path);
  std::string how;
  switch (drawn.below(4)) {
    case 0:
      drawn.flip_bit(content);
      how = "bit flipped";
      break;
    case 1:
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
      how = "cut";
      break;
    case 2:
      content += drawn.bytes(drawn.between(1, 50));
      how = "bytes behind";
      break;
    default:
      content = drawn.bytes(static_cast<int64_t>(content.size()));
      how = "noise";
  }
  const auto out = files.open_write(path);
  out->write(content);
  out->close();
  const std::string message = refused(ErrorCode::kCorruptData, "a checkpoint with " + how, [&] {
    VersionedState state;
    train::load_checkpoint(newest, nullptr, state);
  });
  check(message.find(newest.path) != std::string::npos, "the checkpoint is not named: " + message);
  refused(ErrorCode::kCorruptData, "the newest checkpoint with " + how, [&] {
    VersionedState state;
    train::resume_newest_checkpoint(store, &kIdentity, state);
  });
  VersionedState state;
  const auto resumed = train::resume_newest_checkpoint(store, &kIdentity, state, train::DamagedCheckpoints::kPassOver);
  check(resumed.has_value() == (count > 1) && (count == 1 || state.version() == count - 1),
        "an intact checkpoint was not found behind a damaged one");
  return "checkpoint " + how;
}

// Version 1 is saved in peace; version 2 meets the fault.
std::string run_disk(Case& drawn) {
  const int64_t elements = drawn.between(1, 40'000);
  CheckpointStore(drawn.folder, 5).save(1, kIdentity, VersionedState(1, elements));
  core::FaultInjector faults;
  static constexpr core::Fault kFaults[] = {core::Fault::kIoError, core::Fault::kNoSpace, core::Fault::kInterrupted,
                                            core::Fault::kShort};
  const core::Fault fault = kFaults[drawn.below(std::size(kFaults))];
  const auto at = static_cast<int>(drawn.between(1, 45));
  const bool stays = drawn.draw.next_bool() && (fault == core::Fault::kIoError || fault == core::Fault::kNoSpace);
  if (stays) {
    faults.fail_writes_from_nth(at, fault);
  } else {
    faults.fail_nth(at, fault);
  }
  const auto files = core::make_file_system(faults);
  bool saved = false;
  try {
    CheckpointStore(drawn.folder, 5, *files).save(2, kIdentity, VersionedState(2, elements));
    saved = true;
  } catch (const core::Error& error) {
    const bool full = fault == core::Fault::kNoSpace;
    check(faults.reached() && error.code() == (full ? ErrorCode::kNoSpace : ErrorCode::kIo),
          std::string("saving failed for another reason than the disk's: ") + error.what());
    check(full || fault == core::Fault::kIoError, "an interrupted or short call made saving fail");
  }
  const int64_t newest = newest_intact(drawn.folder);
  check(newest == 2 || (newest == 1 && !saved), fmt::format("saved: {}, but the newest is {}", saved, newest));
  // The disk has recovered: the next save works and removes what the failed one has left.
  CheckpointStore(drawn.folder, 5).save(3, kIdentity, VersionedState(3, elements));
  check(newest_intact(drawn.folder) == 3, "the next save is not there");
  for (const std::string& name : core::local_file_system().list(drawn.folder)) {
    check(name.find("tmp") == std::string::npos, "a failed save left " + name);
  }
  return saved ? "disk fault, saved" : "disk fault, reported";
}

// What was reported as saved is there after the power was cut.
std::string run_power(Case& drawn) {
  core::PowerCut disk;
  const auto files = core::make_file_system(disk);
  CheckpointStore store(drawn.folder, drawn.between(1, 3), *files);
  const int64_t count = drawn.between(1, 4);
  const int64_t elements = drawn.between(1, 40'000);
  for (int64_t step = 1; step <= count; ++step) store.save(step, kIdentity, VersionedState(step, elements));
  disk.cut(drawn.folder);
  check(newest_intact(drawn.folder) == count, "a saved checkpoint was lost with the power");
  return "power cut";
}

}  // namespace

std::string run_checkpoints(Case& drawn) {
  switch (drawn.below(4)) {
    case 0:
    case 1:
      return run_damage(drawn);
    case 2:
      return run_disk(drawn);
    default:
      return run_power(drawn);
  }
}

}  // namespace trainyard::hostile
