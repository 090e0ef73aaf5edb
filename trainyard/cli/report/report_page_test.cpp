#include "trainyard/cli/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/base/build_info.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/callbacks/run_record_json.h"

namespace trainyard::cli::report_page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr const char* kEvil = "<script>alert(1)</script>";

class ReportPage : public ::testing::Test {
 protected:
  std::string folder(const std::string& name, const Json& summary, int64_t rows = 100) {
    std::string directory = temp_.file(name);
    write_run_folder(directory, summary, rows);
    return directory;
  }
  static std::vector<ReportRun> read(const std::vector<std::string>& folders) {
    std::vector<ReportRun> runs;
    for (const std::string& each : folders) runs.push_back(read_report_run(each));
    name_runs(runs);
    return runs;
  }
  void write(const std::string& directory, const char* name, const std::string& text) {
    core::local_file_system().write_file_atomically(core::join_path(directory, name), text);
  }

  core::TempDir temp_;
};

TEST_F(ReportPage, HoldsWhatARunLeft) {
  const std::string directory = folder("run", run_summary_of("resnet20"));
  write(directory, "evaluation.json", evaluation_of(3).dump());
  const Json json = Json::parse(report_json(read({directory}), {.now = 1.7e9}));
  ASSERT_EQ(json["runs"].size(), 1U);
  const Json& run = json["runs"][0];
  EXPECT_EQ(run["name"], "run");
  EXPECT_EQ(run["model"], "resnet20");
  EXPECT_EQ(run["phases"][0]["phase"], "train");
  EXPECT_EQ(run["phases"][0]["step"].size(), 100U);
  EXPECT_EQ(run["phases"][0]["time"][0], 0) << "seconds since the first row";
  EXPECT_EQ(run["phases"][0]["time"][99], 99);
  EXPECT_EQ(run["phases"][0]["values"]["total_loss"][0], 2.62346) << "six digits";
  EXPECT_EQ(run["phases"][1]["values"]["top_1_accuracy"], (Json{0.4, 0.5}));
  EXPECT_EQ(run["evaluation"]["top_1"], 0.7);
  EXPECT_EQ(run["alerts"], Json::array()) << "it was read whole, and nothing is wrong with it";
  EXPECT_EQ(run["checkpoints"], Json::array());
  EXPECT_EQ(run["phases"][0]["rows"], 100);
  EXPECT_EQ(run["phases"][0]["epoch"][99], 1);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["made"], train::utc_date(1.7e9));
  const core::BuildInfo& build = core::build_info();
  EXPECT_EQ(json["version"], fmt::format("{} ({})", build.version, build.git_revision));
  EXPECT_EQ(json["reload_seconds"], nullptr);
  EXPECT_EQ(json["searches"], Json::array());
  EXPECT_EQ(run["repeat"],
            "trainyard train --model=resnet20 --data_dir=/data/cifar10 --init_learning_rate=0.1 --train_dir=" +
                directory + "-again");
  EXPECT_EQ(run["evaluate"], "trainyard eval --train_dir=" + directory + " --data_dir=/data/cifar10");
}

TEST_F(ReportPage, TheCommandToEvaluateHasWhatNoCheckpointHolds) {
  Json summary = run_summary_of("resnet20");
  Json& flags = summary["flags"];
  flags["data_name"] = "imagenet";
  flags["labels_csv"] = "my labels.csv";
  flags["on_unlabelled_file"] = "skip";
  flags["on_unknown_class"] = "skip";
  flags["split_class_folders"] = false;
  const std::string directory = folder("run", summary), begin = "trainyard eval --train_dir=" + directory;
  const auto command = [&] { return Json::parse(report_json(read({directory}), {}))["runs"][0]["evaluate"]; };
  EXPECT_EQ(command(), begin +
                           " --data_dir=/data/cifar10 --data_name=imagenet '--labels_csv=my labels.csv' "
                           "--on_unlabelled_file=skip --on_unknown_class=skip --nosplit_class_folders");
  // As a run has them that was told nothing.
  flags.update({{"data_name", ""},
                {"labels_csv", nullptr},
                {"on_unlabelled_file", "fail"},
                {"on_unknown_class", "fail"},
                {"split_class_folders", true}});
  write_run_folder(directory, summary, 10);
  EXPECT_EQ(command(), begin + " --data_dir=/data/cifar10");
}

TEST_F(ReportPage, TheCommandToRepeatHasEachKindOfFlag) {
  Json summary = run_summary_of("resnet20");
  summary["given_flags"] = {"steps",  "xla",  "nothing",    "existing_run", "config",
                            "nested", "gone", "Not-a-Flag", "train_dir",    "data_dir"};
  Json& flags = summary["flags"];
  flags["steps"] = Json::array({5, 10});
  flags["xla"] = false;
  flags["nothing"] = nullptr;
  flags["existing_run"] = "delete";
  flags["config"] = "a.yaml";
  flags["nested"] = Json::array({Json::array({1})});
  flags["Not-a-Flag"] = "x";
  const std::string directory = folder("run", summary);
  const auto repeat = [&] { return Json::parse(report_json(read({directory}), {}))["runs"][0]["repeat"]; };
  EXPECT_EQ(repeat(),
            "trainyard train --steps=5,10 --xla=false --data_dir=/data/cifar10 --train_dir=" + directory + "-again");
  summary["command"] = "trainyard";
  write_run_folder(directory, summary, 10);
  EXPECT_TRUE(repeat().get<std::string>().starts_with("trainyard --steps=5,10 ")) << repeat();
  summary["command"] = "trainyard find-lr";
  write_run_folder(directory, summary, 10);
  EXPECT_EQ(repeat(), "") << "which trains no run";
}

// The page is read in other folders than that in which the run was started.
TEST_F(ReportPage, TheCommandsHaveTheWholePathsOfWhatIsRead) {
  Json summary = run_summary_of("resnet20");
  const std::string directory = folder("run", summary), start = core::real_path(core::parent_path(directory));
  for (const char* name : {"labels.csv", "weights.pth"}) {
    core::local_file_system().write_file_atomically(core::join_path(start, name), "x");
  }
  summary["given_flags"] = {"labels_csv", "weights", "distill_from", "graph_file"};
  Json& flags = summary["flags"];
  flags["labels_csv"] = "labels.csv";
  flags["weights"] = "./weights.pth";
  flags["distill_from"] = "gone";
  flags["graph_file"] = "labels.csv";
  const auto expect_paths = [&](const char* known) {
    write_run_folder(directory, summary, 10);
    const Json run = Json::parse(report_json(read({directory}), {}))["runs"][0];
    EXPECT_EQ(run["repeat"], "trainyard train --labels_csv=" + start + "/labels.csv --weights=" + start +
                                 "/weights.pth --distill_from=gone --graph_file=labels.csv --train_dir=" + directory +
                                 "-again")
        << known;
    EXPECT_TRUE(run["evaluate"].get<std::string>().ends_with(" --labels_csv=" + start + "/labels.csv")) << known;
  };
  summary["data"]["directory"] = core::join_path(start, "photos");
  flags["data_dir"] = "photos/";
  expect_paths("the data");
  flags["data_dir"] = summary["data"]["directory"];
  flags["train_dir"] = "./run";
  expect_paths("the folder of the run");
}

TEST_F(ReportPage, TheBestCheckpointIsListedWithItsStepAndSize) {
  Json summary = run_summary_of("resnet20");
  summary["best_checkpoint"] = {{"global_step", 40}};
  const std::string directory = folder("run", summary), best = core::join_path(directory, "best");
  core::local_file_system().make_directories(best);
  write(best, "manifest.json", std::string(10, 'x'));
  write(best, "tensors.bin", std::string(30, 'y'));
  const auto listed = [&] { return Json::parse(report_json(read({directory}), {}))["runs"][0]["checkpoints"]; };
  const Json checkpoints = listed();
  ASSERT_EQ(checkpoints.size(), 1U);
  EXPECT_EQ(checkpoints[0]["name"], "best");
  EXPECT_EQ(checkpoints[0]["step"], 40);
  EXPECT_EQ(checkpoints[0]["bytes"], 40);
  EXPECT_EQ(checkpoints[0]["damage"], "");
  EXPECT_TRUE(checkpoints[0]["saved"].is_string()) << checkpoints;
  summary.erase("best_checkpoint");
  write_run_folder(directory, summary, 10);
  EXPECT_EQ(listed()[0]["step"], nullptr) << "nobody has written it down";
}

TEST_F(ReportPage, CheckpointsHaveAStepAndADateWhereTheyAreKnown) {
  ReportRun run{.directory = temp_.file("run"), .name = "run"};
  run.checkpoints = {
      {.name = "model.ckpt-0", .global_step = 0, .bytes = 7, .saved_at = 1.7e9, .damage = "a file is missing"},
      {.name = "best", .global_step = -1, .bytes = 8, .saved_at = 0}};
  const Json json = Json::parse(report_json({run}, {.now = 0, .reload_seconds = 5}));
  EXPECT_EQ(json["runs"][0]["checkpoints"],
            (Json{{{"name", "model.ckpt-0"},
                   {"step", 0},
                   {"bytes", 7},
                   {"saved", train::utc_date(1.7e9)},
                   {"damage", "a file is missing"}},
                  {{"name", "best"}, {"step", nullptr}, {"bytes", 8}, {"saved", nullptr}, {"damage", ""}}}));
  EXPECT_EQ(json["reload_seconds"], 5);
}

TEST_F(ReportPage, HasEachMemberOfTheSummary) {
  const std::vector<std::string> members = {"status",
                                            "error",
                                            "started",
                                            "ended",
                                            "model",
                                            "dataset",
                                            "mode",
                                            "global_step",
                                            "steps",
                                            "seconds",
                                            "images_per_second",
                                            "model_flops_per_second",
                                            "limit_flops_per_second",
                                            "time_shares",
                                            "ranks",
                                            "bad_samples",
                                            "skipped_steps",
                                            "peak_memory_bytes",
                                            "metrics",
                                            "best_checkpoint",
                                            "version",
                                            "data",
                                            "seed",
                                            "machine"};
  ReportRun run{.directory = temp_.file("run"), .name = "run"};
  for (const std::string& name : members) run.summary[name] = "the " + name;
  run.summary["other"] = "not shown";
  const Json json = Json::parse(report_json({run}, {}))["runs"][0];
  for (const std::string& name : members) EXPECT_EQ(json.value(name, ""), "the " + name);
  EXPECT_FALSE(json.contains("other"));
}

// A trial whose folder is that of a run names it.
TEST_F(ReportPage, TrialsOfASearchAreThoseOfItsRuns) {
  std::vector<ReportRun> runs(2);
  runs[0].directory = temp_.file("search/trial-003");
  runs[1].directory = temp_.file("search/../search/trial-001/");
  ReportSearch search{.directory = temp_.file("search"), .problems = {"a problem"}};
  std::vector<std::string> problems;
  search.record = checked_search(search_record_of(), problems);
  const Json shown = Json::parse(report_json(runs, {}, {search}))["searches"];
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(shown[0]["name"], "search");
  EXPECT_EQ(shown[0]["path"], search.directory);
  EXPECT_EQ(shown[0]["problems"], Json::array({"a problem"}));
  Json places = Json::array();
  for (const Json& trial : shown[0]["trials"]) places.push_back(trial["run"]);
  EXPECT_EQ(places, (Json{nullptr, 1, nullptr, 0}));
}

TEST_F(ReportPage, SettingsSayWhatDiffers) {
  Json other = run_summary_of("resnet20");
  other["flags"]["init_learning_rate"] = 0.5;
  other["given_flags"].erase(0);
  other["flags"]["own"] = true;
  const Json json = Json::parse(report_json(read({folder("a", run_summary_of("resnet20")), folder("b", other)}), {}));
  const auto setting = [&](const std::string& name) {
    for (const Json& each : json["settings"]) {
      if (each["name"] == name) return each;
    }
    return Json();
  };
  EXPECT_EQ(setting("model"), (Json{{"name", "model"}, {"group", "flag"}, {"values", {"resnet20"}}, {"given", {0}}}));
  EXPECT_EQ(setting("init_learning_rate")["values"], (Json{0.1, 0.5}));
  EXPECT_EQ(setting("init_learning_rate")["given"], (Json{0, 1}));
  EXPECT_EQ(setting("own")["values"], (Json{nullptr, true}));
  EXPECT_EQ(setting("batch_size")["group"], "chosen");
}

TEST_F(ReportPage, NoTextOfARunBecomesMarkup) {
  Json summary = run_summary_of(kEvil);
  summary["error"] = "</script><img src=x onerror=alert(1)> <!-- \u2028";
  summary["flags"]["model"] = kEvil;
  summary["flags"][kEvil] = "{{nonce}} {{data}}";
  const std::string directory = folder("it's a \"run\" <b>", summary);
  Json evaluation = evaluation_of(2);
  evaluation["classes"][0] = kEvil;
  write(directory, "evaluation.json", evaluation.dump());
  const std::string page = report_page(read({directory}), {});
  const size_t begin = page.find("<script id=\"data\" type=\"application/json\">"), end = page.find("</script>", begin);
  ASSERT_NE(begin, std::string::npos);
  const std::string data = page.substr(page.find('>', begin) + 1, end - page.find('>', begin) - 1);
  EXPECT_THAT(data, Not(HasSubstr("<")));
  EXPECT_EQ(Json::parse(data)["runs"][0]["model"], kEvil) << "the text is whole";
  EXPECT_EQ(Json::parse(data)["runs"][0]["name"], "it's a \"run\" <b>");
  EXPECT_THAT(data, HasSubstr("{{nonce}} {{data}}")) << "a text of a run is no place to fill";
  EXPECT_THAT(page, Not(HasSubstr(kEvil)));
  EXPECT_EQ(Json::parse(data)["runs"][0]["repeat"].get<std::string>().substr(0, 52),
            "trainyard train '--model=<script>alert(1)</script>' ");
}

TEST_F(ReportPage, AllowsItsOwnScriptAloneAndLoadsNothing) {
  const std::string directory = folder("run", run_summary_of("resnet20"));
  const std::string page = report_page(read({directory}), {}), second = report_page(read({directory}), {});
  const auto nonce = [](const std::string& text) { return text.substr(text.find("script-src 'nonce-") + 18, 32); };
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("<script nonce=\"" + nonce(page) + "\">"));
  EXPECT_NE(nonce(page), nonce(second)) << "it cannot be guessed";
  std::string loaded = page;
  constexpr std::string_view kNamespace = "http://www.w3.org/2000/svg";  // a name, which no browser loads
  ASSERT_NE(loaded.find(kNamespace), std::string::npos);
  loaded.erase(loaded.find(kNamespace), kNamespace.size());
  for (const char* address : {"http:", "https:", "src=\"", "@import", "url("}) {
    EXPECT_EQ(loaded.find(address), std::string::npos) << address;
  }
}

TEST_F(ReportPage, DamagedFoldersStillMakeAPage) {
  const std::string directory = folder("run", run_summary_of("resnet20"));
  for (const char* text :
       {"", "{", "[]", "null",
        "{\"flags\":3,\"given_flags\":{},\"time_shares\":[1],\"ranks\":\"x\",\"status\":7,\"machine\":null}",
        "\xff\xfe", "{\"model\":\"\xff\"}"}) {
    for (const char* name : {"run_summary.json", "evaluation.json", "metrics.jsonl"}) {
      write_run_folder(directory, run_summary_of("resnet20"), 10);
      write(directory, "evaluation.json", evaluation_of(3).dump());
      write(directory, name, text);
      EXPECT_TRUE(Json::parse(report_json(read({directory}), {})).is_object()) << name << ": " << text;
    }
  }
  write_run_folder(directory, run_summary_of("resnet20"), 10);
  write(directory, "run_summary.json", "{\"status\":");
  const Json json = Json::parse(report_json(read({directory}), {}));
  EXPECT_EQ(json["runs"][0]["alerts"][0]["text"], "run_summary.json is damaged: it is no JSON object");
  write(directory, "run_summary.json", std::string(3 << 20, ' '));
  EXPECT_THAT(report_json(read({directory}), {}), HasSubstr("file is too large"));
}

TEST_F(ReportPage, DeepAndLongTextsAreCut) {
  Json summary = run_summary_of("resnet20");
  summary["error"] = std::string(100'000, 'x');
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  summary["data"] = deep;
  summary["metrics"] = Json::object();
  for (int i = 0; i < 5000; ++i) summary["metrics"][fmt::format("metric {}", i)] = i;
  const std::string json = report_json(read({folder("run", summary)}), {});
  EXPECT_LT(json.size(), 60'000U);
  const Json shown = Json::parse(json)["runs"][0];
  EXPECT_EQ(shown["metrics"].size(), 1024U);
  EXPECT_EQ(shown["error"], std::string(4000, 'x') + "...");
  EXPECT_EQ(shown["data"], Json::parse("[[[[[null]]]]]")) << "five levels";
  summary["error"] = std::string(4000, 'x');
  summary["data"] = Json::parse("[[[[[1,[]]]]]]");
  const Json whole = Json::parse(report_json(read({folder("whole", summary)}), {}))["runs"][0];
  EXPECT_EQ(whole["error"], summary["error"]);
  EXPECT_EQ(whole["data"], Json::parse("[[[[[1,null]]]]]"));
  const std::string directory = temp_.file("run");
  constexpr size_t kDepth = 300'000;  // more than calls fit onto a stack
  write(directory, "run_summary.json", "{\"data\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}");
  EXPECT_LT(report_json(read({directory}), {}).size(), 60'000U);
}

TEST_F(ReportPage, PipesInAFolderAreNotRead) {
  const std::string directory = temp_.file("run");
  core::local_file_system().make_directories(directory);
  for (const char* name : {"run_summary.json", "evaluation.json", "metrics.jsonl"}) {
    ASSERT_EQ(::mkfifo(core::join_path(directory, name).c_str(), 0600), 0);
  }
  EXPECT_FALSE(is_run_folder(directory));
  EXPECT_TRUE(Json::parse(report_json(read({directory}), {})).is_object());
}

TEST_F(ReportPage, RunsAreNamedByWhatTellsThemApart) {
  std::vector<ReportRun> runs(5);
  const char* const paths[] = {"a/run", "b/run/", "other", "/x/y/z", "c/d/run"};
  for (size_t i = 0; i < runs.size(); ++i) runs[i].directory = paths[i];
  name_runs(runs);
  EXPECT_EQ(runs[0].name, "a/run");
  EXPECT_EQ(runs[1].name, "b/run");
  EXPECT_EQ(runs[2].name, "other");
  EXPECT_EQ(runs[3].name, "z");
  EXPECT_EQ(runs[4].name, "d/run");
}

// The most that twenty runs can bring: curves of 20,000 rows, 1,001 classes, 200 images of 10 kB each.
TEST_F(ReportPage, TwentyRunsHaveAtMostTwoMegabytes) {
  std::vector<std::string> folders;
  const std::string first = folder("run0", run_summary_of("resnet20"), 20'000);
  write(first, "evaluation.json", evaluation_of(1001, 200, 10'000).dump());
  std::vector<ReportRun> runs = read({first});
  EXPECT_EQ(runs[0].evaluation["cells"].size(), 3U * 1001 * 1001);
  Json summary = run_summary_of("resnet20");
  for (int i = 0; i < 250; ++i)
    summary["flags"][fmt::format("a_flag_with_a_long_name_{}", i)] = "a value of some length";
  runs[0].summary = summary;
  for (int i = 1; i < 20; ++i) {
    runs.push_back(runs[0]);
    runs.back().directory = temp_.file(fmt::format("run{}", i));
    runs.back().summary["flags"]["init_learning_rate"] = 0.1 * i;
  }
  name_runs(runs);
  const std::string page = report_page(std::move(runs), {});
  EXPECT_LE(page.size(), 2'000'000U);
  EXPECT_GE(page.size(), 1'000'000U) << "what fits is there";
}

TEST_F(ReportPage, FiveHundredRunsFit) {
  const std::string directory = folder("run0", run_summary_of("resnet20"), 300);
  std::vector<ReportRun> runs(500, read({directory})[0]);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].directory = temp_.file(fmt::format("run{}", i));
  name_runs(runs);
  const std::string page = report_page(std::move(runs), {});
  EXPECT_LE(page.size(), 12'000'000U);
  EXPECT_THAT(page, HasSubstr("\"name\":\"run499\""));
}

}  // namespace
}  // namespace trainyard::cli::report_page_test
