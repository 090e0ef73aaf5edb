// Folders as runs leave them, for tests of what reads them.
#pragma once

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"

namespace trainyard::cli {

// Returns a summary with what a report reads.
inline nlohmann::ordered_json run_summary_of(const std::string& model) {
  return {{"status", "finished"},
          {"started", "2026-11-26T02:10:00.000Z"},
          {"ended", "2026-11-26T02:20:00.000Z"},
          {"model", model},
          {"dataset", "cifar10"},
          {"mode", "training + evaluation"},
          {"global_step", 100},
          {"images_per_second", 250.5},
          {"time_shares",
           {{"input", 0.02}, {"compute", 0.9}, {"communication", 0.05}, {"waiting", 0.01}, {"update", 0.03}}},
          {"ranks", nullptr},
          {"bad_samples", 0},
          {"skipped_steps", 0},
          {"metrics", {{"total_loss", 1.25}}},
          {"command", "trainyard train"},
          {"data", {{"directory", "/data/cifar10"}, {"num_classes", 10}}},
          {"seed", 1234},
          {"machine", {{"name", "host"}, {"cpu", "EPYC"}, {"cores", 2}, {"memory_bytes", 1 << 30}}},
          {"versions", {{"trainyard", "0.1.0"}}},
          {"choices", {{"batch_size", "64"}}},
          {"given_flags", {"model", "data_dir", "init_learning_rate", "train_dir"}},
          {"flags",
           {{"model", model},
            {"data_dir", "cifar10"},
            {"init_learning_rate", 0.1},
            {"weight_decay", nullptr},
            {"train_dir", "out"}}}};
}

// Returns a row of metrics.jsonl.
inline std::string metric_row(int64_t step, const std::string& phase, const nlohmann::ordered_json& values) {
  nlohmann::ordered_json row{{"global_step", step},
                             {"epoch", static_cast<double>(step) / 100},
                             {"wall_time", 1.7e9 + static_cast<double>(step)},
                             {"phase", phase}};
  row.update(values);
  return row.dump() + "\n";
}

// Returns a row with the names that a training step has.
inline std::string train_row(int64_t step, double loss, double images_per_second = 250) {
  return metric_row(step, "train",
                    {{"learning_rate", 0.1},
                     {"total_loss", loss},
                     {"images_per_second", images_per_second},
                     {"input_share", 0.02},
                     {"compute_share", 0.9},
                     {"communication_share", 0.05},
                     {"waiting_share", 0.01},
                     {"update_share", 0.03}});
}

// Writes the folder of a run of `rows` recorded steps, whose loss falls, with two evaluations.
inline void write_run_folder(const std::string& directory, const nlohmann::ordered_json& summary, int64_t rows) {
  core::FileSystem& files = core::local_file_system();
  files.make_directories(directory);
  files.write_file_atomically(core::join_path(directory, "run_summary.json"), summary.dump(2));
  std::string metrics;
  for (int64_t row = 1; row <= rows; ++row)
    metrics += train_row(row, 2.5 / static_cast<double>(row) + 0.123456789, 250.125);
  metrics += metric_row(rows / 2, "eval", {{"top_1_accuracy", 0.4}, {"loss", 1.5}});
  metrics += metric_row(rows, "eval", {{"top_1_accuracy", 0.5}, {"loss", 1.25}});
  files.write_file_atomically(core::join_path(directory, "metrics.jsonl"), metrics);
}

// Returns the record of a search of four trials: one has run to its end, one was stopped, one has failed, one runs.
inline nlohmann::ordered_json search_record_of() {
  using Json = nlohmann::ordered_json;
  const auto trial = [](int number, Json results, size_t started, Json failure, const char* rate,
                        const char* optimizer) {
    return Json{{"number", number},
                {"directory", fmt::format("trial-{:03}", number)},
                {"started", started},
                {"failure", failure},
                {"results", results},
                {"flags", {{"model", "resnet20"}, {"init_learning_rate", rate}, {"optimizer", optimizer}}}};
  };
  const auto result = [](double epochs, double value, double seconds) {
    return Json{{"epochs", epochs}, {"global_step", 10 * epochs}, {"value", value}, {"seconds", seconds}};
  };
  const Json none = Json::array();
  return {{"kind", "trainyard tune"},
          {"metric", "loss"},
          {"goal", "lowest"},
          {"levels", {1.0, 2.0}},
          {"ranges",
           {{{"flag", "init_learning_rate"}, {"scale", "logarithmic"}, {"choices", none}},
            {{"flag", "optimizer"}, {"scale", "choice"}, {"choices", {"adam", "sgd"}}}}},
          {"best", 0},
          {"trials",
           {trial(0, Json::array({result(1, 0.75, 1.5), result(2, 0.5, 1.25)}), 2, nullptr, "0.1", "sgd"),
            trial(1, Json::array({result(1, 1.5, 1)}), 1, nullptr, "0.2", "adam"),
            trial(2, none, 1, "the loss is not finite", "0.9", "adam"), trial(3, none, 1, nullptr, "0.01", "sgd")}},
          {"search", "search 1"}};
}

// Returns an evaluation.json of `classes` classes, whose matrix has no zero.
inline nlohmann::ordered_json evaluation_of(size_t classes, size_t wrong = 2, size_t image_bytes = 64) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array(), matrix = names, per_class = names, most_wrong = names;
  for (size_t t = 0; t < classes; ++t) {
    names.push_back(fmt::format("class {}", t));
    nlohmann::ordered_json row = nlohmann::ordered_json::array();
    for (size_t p = 0; p < classes; ++p) row.push_back(t == p ? 50 + t : 1 + (t + 2 * p) % 5);
    matrix.push_back(row);
    per_class.push_back(
        {{"name", names.back()}, {"images", 60}, {"precision", 0.81234567}, {"recall", 0.7}, {"f1", 0.75}});
  }
  for (size_t i = 0; i < wrong; ++i) {
    most_wrong.push_back({{"file", fmt::format("photos/{}.jpg", i)},
                          {"true", "class 0"},
                          {"predicted", "class 1"},
                          {"confidence", 0.99},
                          {"image", "iVBORw0KGgo" + std::string(image_bytes, 'A')}});
  }
  return {{"schema", 1},
          {"images", 600},
          {"top_1", 0.7},
          {"top_5", 0.95},
          {"classes", names},
          {"confusion", matrix},
          {"per_class", per_class},
          {"calibration", {{"ece", 0.05}, {"bins", {{{"confidence", 0.55}, {"accuracy", 0.5}, {"images", 100}}}}}},
          {"most_wrong", most_wrong}};
}

}  // namespace trainyard::cli
