// Batches: of folders, of tensors, of functions, and what turns images into them.
#pragma once

#include "trainyard/data/augment/transform.h"           // IWYU pragma: export
#include "trainyard/data/codecs/png_writer.h"           // IWYU pragma: export
#include "trainyard/data/datasets/dataset.h"            // IWYU pragma: export
#include "trainyard/data/datasets/shapes.h"             // IWYU pragma: export
#include "trainyard/data/detection/coco_annotations.h"  // IWYU pragma: export
#include "trainyard/data/detection/coco_dataset.h"      // IWYU pragma: export
#include "trainyard/data/detection/coco_labels.h"       // IWYU pragma: export
#include "trainyard/data/detection/default_boxes.h"     // IWYU pragma: export
#include "trainyard/data/detection/drawn_boxes.h"       // IWYU pragma: export
#include "trainyard/data/detection/ssd_transform.h"     // IWYU pragma: export
#include "trainyard/data/pipeline/batch_source.h"       // IWYU pragma: export
#include "trainyard/data/pipeline/pipeline.h"           // IWYU pragma: export
#include "trainyard/data/sources/combined_source.h"     // IWYU pragma: export
#include "trainyard/data/sources/described_source.h"    // IWYU pragma: export
#include "trainyard/data/sources/folder_source.h"       // IWYU pragma: export
#include "trainyard/data/sources/function_source.h"     // IWYU pragma: export
#include "trainyard/data/sources/tensor_source.h"       // IWYU pragma: export
