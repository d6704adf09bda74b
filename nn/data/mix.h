// Mixing of images: mixup (Zhang et al. 2018) adds two, CutMix (Yun et al. 2019) puts a rectangle
// of one into the other; the loss is mixed likewise.
//
// How a micro-batch is mixed depends on (seed, epoch, step, micro-batch) alone, and an image's
// partner on its place in the micro-batch over all ranks, so that the number of ranks changes
// nothing.
#pragma once

#include <cstddef>
#include <span>

#include "nn/core/random.h"
#include "nn/data/augmentation.h"
#include "nn/data/dataset.h"

namespace dlaunch::nn {

enum class MixKind {
  kNone,
  kMixup,
  kCutmix,
  kEither,  // one or the other, drawn for each micro-batch
};

struct MixOptions {
  MixKind kind = MixKind::kNone;
  double alpha = 1;  // shares are drawn from Beta(alpha, alpha)
};

/// Draws one; without options.kind the mix that changes nothing.
Mix draw_mix(const MixOptions& options, const ImageShape& shape, Generator generator);

/// Mixes `partner` into `image`.
void apply_mix(const Mix& mix, const ImageShape& shape, std::span<const float> partner,
               std::span<float> image);

}  // namespace dlaunch::nn
