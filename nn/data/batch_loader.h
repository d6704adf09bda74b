// BatchLoader: makes the micro-batches of one rank, epoch after epoch, on threads of its own, and
// keeps a few of them ready.
//
// next() is called by one thread. The data set must outlive the loader; it is read by the loader's
// threads. Memory is allocated once, for `depth` + 1 micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/data/dataset.h"
#include "nn/data/mix.h"
#include "nn/data/sampler.h"
#include "nn/data/transform.h"

namespace dlaunch::nn {

struct MicroBatch {
  std::uint64_t epoch = 0;
  std::size_t step = 0;              // within the epoch
  std::size_t index = 0;             // of the micro-batch within the step
  std::size_t size = 0;              // samples; may be 0
  ImageShape shape;                  // of the images
  std::vector<float> images;         // [size, H, W, C]; empty if the loader makes none
  std::vector<std::int32_t> labels;  // [size]
  /// If the images are mixed (mix.h): the labels of what was mixed in, and the share of `labels`.
  std::vector<std::int32_t> partner_labels;
  float own_share = 1;
  /// What the images are made of.
  std::vector<std::uint32_t> samples;
  std::vector<std::uint32_t> partners;  // if they are mixed
  std::uint64_t first_place = 0;        // in the epoch's order
  std::uint64_t last_place = 0;         // of the first image's partner, from where they go back
  Mix mix;
};

/// Images are side x side until so many epochs have passed.
struct ResizeStage {
  double until_epochs = 0;
  std::size_t side = 0;
};

/// Of the micro-batch's first image; the places of the others follow.
ImagePlace first_place_of(const MicroBatch& batch, std::uint64_t seed);
/// For its images, in epochs of `samples`.
AugmentationPlan plan_of(const ImageTransform& transform, const MicroBatch& batch,
                         std::size_t samples);

struct BatchLoaderOptions {
  StepPlan plan;
  std::size_t rank = 0;
  std::uint64_t seed = 0;
  std::uint64_t first_epoch = 0;
  std::size_t first_step = 0;  // of that epoch
  std::size_t depth = 4;       // micro-batches made in advance, at least 1
  std::size_t workers = 1;     // threads that make the images of one; they change no bit of it
  MixOptions mix;
  std::vector<ResizeStage> resize;  // ascending; behind the last one as they are stored
  bool pixels = true;               // whether images are made, or somebody else makes them
  bool resident = false;  // for measurements: the first ones again and again, made only once
};

class BatchLoader {
 public:
  BatchLoader(const Dataset& dataset, const ImageTransform& transform,
              const BatchLoaderOptions& options);
  ~BatchLoader();  // ends the thread
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The next micro-batch in the order (epoch, step, index), without end. Waits for it if need be.
  /// Valid until the next call. Throws what the loader's threads met (DataError), from then on
  /// always.
  const MicroBatch& next();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace dlaunch::nn
