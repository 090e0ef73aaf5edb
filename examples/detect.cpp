// A detector from end to end: trains SSD300 on images with boxes in COCO's form, measures it by COCO's numbers, writes
// what it finds as COCO's JSON of results, and an ONNX file that detects. usage: example_detect COCO_FOLDER STEPS
// FOUND.json MODEL.onnx
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int, char** arguments) try {
  const auto input = [](const std::shared_ptr<data::CocoDataset>& images, bool training) {
    return std::make_shared<data::Pipeline>(
        images, data::transforms().get("coco")(data::ssd300_input(training)),
        data::PipelineOptions{.batch_size = 2, .height = 300, .width = 300, .repeat = training});
  };
  const nn::Graph graph = models::build_model("ssd300", "coco", {.num_classes = data::kCocoLabels});
  train::TowerTrainer trainer({.graph = graph,
                               .loss = train::detection_loss(),
                               .make_optimizer = optim::momentum({.weight_decay = 5e-4}),
                               .learning_rate = optim::constant(1e-3)},
                              input(data::open_coco({.directory = arguments[1]}), true));
  trainer.train({.steps_per_epoch = std::stoll(arguments[2])});

  const std::shared_ptr<data::CocoDataset> images =
      data::open_coco({.directory = arguments[1], .subset = data::Subset::kValidation});
  const data::DefaultBoxes& boxes = data::DefaultBoxes::ssd300();
  train::DetectionEvaluation evaluation(images->annotations(), boxes, {.detect = {.min_score = 0.01F}});
  const auto detect = [&](const data::Batch& batch, const at::Tensor& output) {
    std::vector<data::CocoImage> of_batch;
    for (const int64_t sample : batch.sample_indices) of_batch.push_back(images->image(sample));
    evaluation.add(output, of_batch);
  };
  train::Evaluator(train::EvaluatorOptions{.graph = graph, .labels = false, .on_output = detect}, trainer.parameters())
      .run(*input(images, false));
  evaluation.finish(trainer.global_step());
  const train::DetectionResult result = evaluation.wait().front();
  std::cout << train::coco_metric_lines(result.metric) << result.detections.size() << " boxes in " << result.images
            << " images\n";
  data::write_coco_detections(arguments[3], result.detections, core::local_file_system());
  train::write_detector(arguments[4], graph, trainer.parameters(), boxes);
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
