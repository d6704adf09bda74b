// Dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", ICLR 2018): gradients in
// f16 are those of `scale` times the loss, so that small ones do not vanish. A step with a gradient
// that is not finite is skipped and the scale made smaller; after some steps that were good it is
// made larger. The numbers are those of torch.amp.GradScaler.
//
// Plain functions of floats; constexpr, so usable from device code.
#pragma once

#include <bit>
#include <cstdint>

namespace dlaunch::nn {

struct LossScaleRule {
  float growth = 2;
  float backoff = 0.5F;
  float interval = 2000;  // good steps in a row before the scale grows

  /// That of a scale which stays as it is.
  static constexpr LossScaleRule fixed() { return {.growth = 1, .backoff = 1}; }
};

/// What a run knows of its scale. All floats, as they lie in a backend's memory and in checkpoints.
struct LossScaleState {
  float scale = 0;
  float good_steps = 0;     // since the scale has changed
  float skipped_steps = 0;  // in the whole run
};

/// Of a step: the numbers that the host knows before it.
struct LossScaleStep {
  float loss_factor = 0;  // of a sum over samples, so that it is a mean
  float parts = 1;        // means that are added up in the gradients
};

/// f32 without the branches of the library's.
constexpr bool is_finite(float value) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
}

/// d(objective)/d(loss) where the loss is a sum over samples.
constexpr float scaled_loss_gradient(const LossScaleState& state, const LossScaleStep& step) {
  return state.scale * step.loss_factor;
}

/// What sums of such gradients are multiplied with to be means.
constexpr float unscaling_factor(const LossScaleState& state, const LossScaleStep& step) {
  return 1.0F / state.scale / step.parts;  // whose product might be infinite
}

/// After a step whose gradients were all finite, or were not.
constexpr LossScaleState next_loss_scale(const LossScaleRule& rule, bool finite,
                                         LossScaleState state) {
  if (!finite)
    return {.scale = state.scale * rule.backoff,
            .good_steps = 0,
            .skipped_steps = state.skipped_steps + 1};
  state.good_steps += 1;
  if (state.good_steps < rule.interval) return state;
  const float larger = state.scale * rule.growth;
  return {.scale = is_finite(larger) ? larger : state.scale,
          .good_steps = 0,
          .skipped_steps = state.skipped_steps};
}

}  // namespace dlaunch::nn
