// The checkpoint store on a failing disk. Invariants: what was reported as saved, or something newer, is found whole by
// the next process; saving fails only with an error of the disk.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "tests/cluster_simulation/disk.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/planted.h"
#include "tests/cluster_simulation/scenario.h"
#include "tests/cluster_simulation/world.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_copy.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::cluster_simulation {
namespace {

constexpr const char* kFolder = "/disk/runs/first";

// The versions of one checkpoint that may be found: the last that was reported as saved, and those whose saving has not
// ended, or has failed, since then.
class Ledger {
 public:
  void begin(int64_t version) { begun_.insert(version); }
  void saved(int64_t version) {
    saved_ = version;
    begun_.clear();
  }
  // Returns what is wrong with finding this version, 0 for none at all.
  std::string judge(int64_t found) {
    const bool allowed = found == saved_ || begun_.contains(found);
    std::string problem = allowed ? ""
                                  : fmt::format("version {} was found, {} was reported as saved, and {} begun since",
                                                found, saved_, fmt::join(begun_, ", "));
    // What is found need not be durable, as its process may have died before it reported it: behind a loss of power it
    // may be one that was begun before.
    if (!problem.empty()) saved_ = found;
    return problem;
  }

 private:
  int64_t saved_ = 0;
  std::set<int64_t> begun_;
};

struct Story {
  Story(World& world_of_it, SimulatedDisk& disk_of_it, SeedReport& report_of_it)
      : world(world_of_it), disk(disk_of_it), report(report_of_it) {}

  World& world;
  SimulatedDisk& disk;
  SeedReport& report;
  Ledger newest, best;
  int64_t version = 0, step = 0, keep = 1, elements = 1;
  int generation = 0, saves = 0, best_saves = 0;

  void problem(const std::string& text) {
    world.trace("problem:", text);
    report.problems.push_back(fmt::format("process {}: {}", generation, text));
  }
};

void find_again(Story& story, train::CheckpointStore& store) {
  try {
    train::VersionedState state;
    const auto found = train::resume_newest_checkpoint(store, nullptr, state);
    const int64_t version = found ? state.version() : 0;
    story.world.trace("found version", version);
    if (const std::string wrong = story.newest.judge(version); !wrong.empty()) story.problem(wrong);
    story.step = found ? found->global_step : 0;
  } catch (const core::Error& error) {
    story.problem(fmt::format("cannot resume: {}", error.what()));
  }
  try {
    train::VersionedState state;
    const std::string path = std::string(kFolder) + "/best";
    int64_t version = 0;
    try {
      train::load_checkpoint(train::find_checkpoint(path, store.files()), nullptr, state, store.files());
      version = state.version();
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
    }
    if (const std::string wrong = story.best.judge(version); !wrong.empty()) story.problem("best: " + wrong);
  } catch (const core::Error& error) {
    story.problem(fmt::format("cannot load the best: {}", error.what()));
  }
}

// What is saved behind a copy, for the best checkpoint: nothing.
class NoState final : public core::Stateful {
 public:
  void save(core::StateWriter&) const override {}
  void load(const core::StateReader&) override {}
};

// Saves this version, as the newest or as the best checkpoint, from the state or from a copy of it.
void save_as(Story& story, train::CheckpointStore& store, bool best, const train::VersionedState& state,
             const train::CheckpointCopy* copy) {
  Ledger& ledger = best ? story.best : story.newest;
  ledger.begin(state.version());
  try {
    if (best) {
      copy == nullptr ? store.save_best(story.step, {}, state) : store.save_best_copy(story.step, {}, *copy, NoState());
    } else {
      copy == nullptr ? store.save(story.step, {}, state) : store.save_copy(story.step, {}, *copy);
    }
    ++(best ? story.best_saves : story.saves);
    story.world.trace(best ? "saved as the best, version" : "saved, version", state.version());
    ledger.saved(state.version());
  } catch (const core::Error& error) {
    story.world.trace("not saved:", error.what());
    if (error.code() != core::ErrorCode::kIo && error.code() != core::ErrorCode::kNoSpace) {
      story.problem(fmt::format("saving failed by no error of the disk: {}", error.what()));
    }
  }
}

void save(Story& story, train::CheckpointStore& store) {
  RandomDraws& draws = story.world.draws();
  const bool best = draws.chance(0.25);
  // A run that resumes and saves before its first step replaces the checkpoint that it was resumed from.
  if (!best && !draws.chance(0.3)) story.step += draws.between(1, 3);
  const train::VersionedState state(++story.version, story.elements);
  std::shared_ptr<const train::CheckpointCopy> copy;
  if (draws.chance(0.4)) copy = train::CheckpointCopy::of(state, story.step, nullptr, INT64_MAX);
  save_as(story, store, best, state, copy.get());
  // Takes the same copy: the tensors get a second name.
  if (copy && draws.chance(0.5)) save_as(story, store, !best, state, copy.get());
}

void run_process(Story& story) {
  const auto files = core::make_file_system(story.disk);
  train::CheckpointStore store(kFolder, story.keep, *files);
  find_again(story, store);
  const int64_t count = story.world.draws().between(1, 5);
  for (int64_t i = 0; i < count; ++i) save(story, store);
}

}  // namespace

SeedReport simulate_checkpoints(const SeedOptions& options) {
  SeedReport report;
  World world({.seed = options.seed, .machines = 1, .trace = options.trace});
  Network network(world, {});
  RandomDraws& draws = world.draws();
  SimulatedDisk disk(draws.next(), {});
  Story story(world, disk, report);
  story.keep = draws.between(1, 3);
  story.elements = draws.between(1, 4000);
  int cuts = 0, kills = 0;
  const int64_t processes = draws.between(3, 7);
  for (story.generation = 1; story.generation <= processes; ++story.generation) {
    disk.options() = {.error_chance = draws.chance(0.3) ? 0.02 : 0,
                      .short_chance = draws.chance(0.3) ? 0.3 : 0,
                      .interrupt_chance = draws.chance(0.3) ? 0.05 : 0,
                      .slowest = kMillisecond,
                      .capacity = draws.chance(0.2) ? static_cast<uint64_t>(draws.between(1, 120'000)) : UINT64_MAX,
                      .file_syncs_work = !planted("no file sync reaches the disk"),
                      .directory_syncs_work = !planted("no sync of a folder reaches the disk")};
    Process& process = world.start_process("saver", 0, [&story] { run_process(story); });
    if (draws.chance(0.7)) {
      world.at(world.now() + draws.between(0, 150 * kMillisecond), [&world, &process, &kills] {
        if (!process.ended) ++kills;
        world.kill(process);
      });
    }
    if (!world.run(world.now() + 100 * kSecond, [&process] { return process.ended; })) {
      story.problem("it has not ended within 100 s");
      break;
    }
    disk.close_all();
    if (draws.chance(0.6)) {
      world.trace("the power fails");
      disk.cut_power();
      ++cuts;
    }
  }
  report.summary = fmt::format("{} processes, {} killed, {} power cuts, {} checkpoints and {} best ones saved",
                               processes, kills, cuts, story.saves, story.best_saves);
  report.trace_hash = world.trace_hash();
  report.switches = world.switches();
  report.simulated_nanos = world.now();
  return report;
}

}  // namespace trainyard::cluster_simulation
