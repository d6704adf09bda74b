#include "trainers/validation/validation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/core/ops.h"
#include "nn/data/augmentation.h"
#include "nn/data/sampler.h"
#include "trainers/training/datasets.h"

namespace dlaunch {
namespace {

// Images that rank 0 reads while the others wait: few enough that even photographs, which it has to
// decode and resize, are there long before the others' deadline.
constexpr std::size_t kChunk = 64;

/// Images and labels [begin, end) of the data set; nothing on ranks that have none.
ValidationShard read_chunk(const nn::Dataset* dataset, std::size_t begin, std::size_t end) {
  ValidationShard chunk;
  if (dataset == nullptr) return chunk;
  const std::size_t image_size = dataset->image_shape().size();
  chunk.images.resize((end - begin) * image_size);
  for (std::size_t i = begin; i < end; ++i) {
    dataset->copy_image(i, std::span(chunk.images).subspan((i - begin) * image_size, image_size));
    chunk.labels.push_back(dataset->label(i));
  }
  return chunk;
}

/// A way to look at an image, and how much its scores count.
struct View {
  nn::ImageDraw draw;
  float weight = 1;
};

std::vector<View> views_of(ValidationViews views) {
  const auto both = [](int shift, float weight) {
    return std::array{View{{.shift_y = shift, .shift_x = shift}, weight / 2},
                      View{{.shift_y = shift, .shift_x = shift, .flip = true}, weight / 2}};
  };
  std::vector<View> all;
  const auto append = [&](const std::array<View, 2>& pair) {
    for (const View& view : pair) all.push_back(view);
  };
  switch (views) {
    case ValidationViews::kSingle:
      return {View{}};
    case ValidationViews::kMirror:
      append(both(0, 1));
      break;
    case ValidationViews::kMirrorShift:  // airbench's weights (Jordan 2024)
      append(both(0, 0.5F));
      append(both(-1, 0.25F));
      append(both(1, 0.25F));
      break;
  }
  return all;
}

/// Scores of images (u8 [count, H, W, C] on the backend), f32.
nn::Tensor scores_of(nn::Module& model, const nn::Tensor& images, nn::AugmentationPlan plan,
                     const std::vector<View>& views) {
  nn::Backend& backend = images.backend();
  plan.pad_mode = nn::PadMode::kReflect;  // where an image was moved
  nn::Tensor sum;
  for (const View& view : views) {
    const nn::Tensor input = nn::Tensor::empty(backend, images.shape());
    backend.augment({.plan = plan,
                     .n = images.shape()[0],
                     .images = images.data<const std::uint8_t>(),
                     .fixed = view.draw,
                     .first = {},
                     .mix = {}},
                    input.write());
    nn::Tensor scores = scale(model.forward(input), view.weight);
    sum = sum.defined() ? add(std::move(sum), std::move(scores)) : std::move(scores);
  }
  return sum;
}

/// Sums over the ranks.
void reduce(Communicator& world, ValidationSums& sums) {
  std::array<double, 4> packed{sums.samples, sums.top1, sums.top5, sums.loss};
  throw_if_error(world.all_reduce(packed).within("validation"));
  const double loss = std::isnan(packed[3]) ? std::abs(packed[3]) : packed[3];  // "nan", not "-nan"
  sums = {packed[0], packed[1], packed[2], loss};
}

std::string where_in_settings(const ValidationOptions& options) {
  return fmt::format(", in a validation of {} images at a time (train.validation_batch_size)",
                     options.batch_size);
}

/// Sums over this rank's images.
ValidationSums evaluate(nn::Backend& backend, nn::Module& model,
                        const nn::ImageTransform& transform, const ValidationShard& shard,
                        const ValidationOptions& options) {
  const nn::ImageShape& shape = transform.shape();
  const std::vector<View> views = views_of(options.views);
  std::vector<float> scores;
  ValidationSums sums;
  for (std::size_t begin = 0; begin < shard.labels.size(); begin += options.batch_size) {
    const std::size_t count = std::min(options.batch_size, shard.labels.size() - begin);
    const auto bytes = std::span(shard.images).subspan(begin * shape.size(), count * shape.size());
    const nn::Tensor output =
        scores_of(model, nn::Tensor::from<std::uint8_t>(backend, image_batch(count, shape), bytes),
                  transform.plan(0, 0), views);
    scores.resize(static_cast<std::size_t>(output.size()));
    backend.copy_to_host(scores.data(), output.data<const float>(), scores.size() * sizeof(float));
    add_scores(scores, std::span(shard.labels).subspan(begin, count), sums);
  }
  return sums;
}

}  // namespace

ValidationShard scatter_validation_set(Communicator& world, const nn::Dataset* dataset,
                                       const nn::ImageShape& shape) {
  const bool has_images = world.rank() == 0;
  std::array<std::int64_t, 1> total{has_images ? static_cast<std::int64_t>(dataset->size()) : 0};
  throw_if_error(world.broadcast(total, 0).within("validation set"));
  const auto size = static_cast<std::size_t>(total[0]);
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto rank = static_cast<std::size_t>(world.rank());

  ValidationShard shard;
  for (std::size_t begin = 0; begin < size; begin += kChunk) {
    const std::size_t end = std::min(size, begin + kChunk);
    std::vector<std::size_t> samples, bytes;
    for (std::size_t r = 0; r < ranks; ++r) {
      // Of the first n images it has (n + r) / ranks, so that in the end all have as many.
      samples.push_back((end + r) / ranks - (begin + r) / ranks);
      bytes.push_back(samples.back() * shape.size());
    }
    const ValidationShard chunk = read_chunk(has_images ? dataset : nullptr, begin, end);
    const std::size_t images_before = shard.images.size();
    const std::size_t labels_before = shard.labels.size();
    shard.images.resize(images_before + bytes[rank]);
    shard.labels.resize(labels_before + samples[rank]);
    throw_if_error(
        world.scatter(chunk.images, std::span(shard.images).subspan(images_before), 0, bytes)
            .within("validation set"));
    throw_if_error(
        world.scatter(chunk.labels, std::span(shard.labels).subspan(labels_before), 0, samples)
            .within("validation set"));
  }
  return shard;
}

void add_scores(std::span<const float> scores, std::span<const std::int32_t> labels,
                ValidationSums& sums) {
  if (labels.empty()) return;
  const std::size_t classes = scores.size() / labels.size();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::span<const float> row = scores.subspan(i * classes, classes);
    const auto label = static_cast<std::size_t>(labels[i]);
    const double own = row[label];
    const double highest = *std::max_element(row.begin(), row.end());
    double exponentials = 0;
    std::size_t higher = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      exponentials += std::exp(row[k] - highest);
      const bool lower = k < label ? row[k] < own : row[k] <= own;
      if (k != label && !lower) ++higher;
    }
    const bool is_number = !std::isnan(own);
    sums.samples += 1;
    sums.top1 += is_number && higher < 1 ? 1 : 0;
    sums.top5 += is_number && higher < 5 ? 1 : 0;
    sums.loss += highest + std::log(exponentials) - own;
  }
}

ValidationSums validate(Communicator& world, nn::Backend& backend, nn::Module& model,
                        const nn::ImageTransform& transform, const ValidationShard& shard,
                        const ValidationOptions& options) {
  const nn::NoGradGuard no_grad;
  model.eval();
  ValidationSums sums;
  try {
    sums = evaluate(backend, model, transform, shard, options);
  } catch (const nn::Error& error) {  // above all: that memory does not suffice
    throw nn::Error(error.what() + where_in_settings(options));
  } catch (const std::bad_alloc&) {
    throw nn::Error("out of memory" + where_in_settings(options));
  }
  model.train();
  reduce(world, sums);
  return sums;
}

}  // namespace dlaunch
