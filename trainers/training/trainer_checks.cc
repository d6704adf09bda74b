// Where a Trainer finds that training has left the numbers.
#include <cmath>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "trainers/training/trainer.h"

namespace dlaunch {

Divergence Trainer::divergence(std::size_t epoch, std::size_t step, const std::string& what,
                               bool in_images) const {
  return Divergence(fmt::format("epoch {}, step {} of {}: {}; {}", epoch + 1, step + 1,
                                plan_.steps(), what, advice_after_divergence(config_, in_images)));
}

/// On all ranks the same. If it has gone, finds out where: the step is repeated, with checks.
void Trainer::check_loss(const StepTotals& totals, std::size_t epoch, std::size_t step) {
  if (std::isfinite(totals.loss)) return;
  load_from(epoch, step);
  generator_ = generator_before_step_;
  const Beginning begin = locate_divergence(world_, *model_, plan_.micro_batches(step),
                                            [&] { return images_of(loader_->next()); });
  throw divergence(epoch, step,
                   fmt::format("the loss is {}; {}", std::abs(totals.loss), begin.where),
                   begin.in_images);
}

/// That of a step on a device, whose host knows it after step `last` only.
void Trainer::check_late_loss(double loss, std::size_t epoch, std::size_t step, std::size_t last) {
  if (std::isfinite(loss)) return;
  const Beginning left = what_is_left(epoch, step);
  throw divergence(
      epoch, step,
      fmt::format("the loss is {}; noticed after step {}{}", std::abs(loss), last + 1, left.where),
      left.in_images);
}

/// What still tells of a step on a device when later ones may have been done. The step is repeated;
/// but if its images are finite and parameters are not, that tells nothing: a loss goes into all
/// gradients and they into parameters, and mostly that is no more than how far it has come.
Beginning Trainer::what_is_left(std::size_t epoch, std::size_t step) {
  load_from(epoch, step);
  const std::size_t count = plan_.micro_batches(step);
  auto batch =
      batches_.load(count, [this]() -> const nn::MicroBatch& { return loader_->next(); }).begin();
  Beginning begin = locate_divergence(world_, *model_, count, [&] { return (batch++)->images; });
  const NotFinite values = parameters_not_finite(parameters_);
  if (begin.in_images || values.count == 0) {
    begin.where = "; with the parameters of then, " + begin.where;
    return begin;
  }
  const std::size_t all = parameters_.views.size();
  const NotFinite gradients = gradients_not_finite(world_, parameters_, reducer_->updated_here());
  return {.where = fmt::format(
              ", when {} of {} parameters (first {}) and {} of {} gradients{} were not finite",
              values.count, all, values.first, gradients.count, all,
              gradients.count == 0 ? "" : fmt::format(" (first in backward {})", gradients.first))};
}

/// On all ranks the same. Ends a run none of whose gradients fit into f16 any more.
void Trainer::check_loss_scale(std::size_t epoch, std::size_t step) {
  if (loss_scale_->scale >= 1) return;
  const NotFinite gradients = gradients_not_finite(world_, parameters_, reducer_->updated_here());
  const std::string which = gradients.count == 0
                                ? ""
                                : fmt::format(" ({} of {}, first in backward {})", gradients.count,
                                              parameters_.views.size(), gradients.first);
  throw divergence(
      epoch, step,
      fmt::format("gradients{} are not finite though the loss scale has fallen to {:g}", which,
                  loss_scale_->scale));
}

/// Sums over all ranks, so all find the same; but if each has its share only, or if they are on a
/// device that would have to be waited for, the next loss tells.
void Trainer::check_gradients(std::size_t epoch, std::size_t step) {
  if (config_.parallel.gradients == GradientExchange::kShard || on_device_) return;
  if (small_gradients_are_finite(parameters_)) return;
  const NotFinite gradients = gradients_not_finite(world_, parameters_, reducer_->updated_here());
  throw divergence(epoch, step, fmt::format("the gradient of {} is not finite", gradients.first));
}

/// After share_network(), so on all ranks the same; `not_done` then: "no checkpoint was written".
/// A checkpoint of what has left the numbers would be gone on from: an update can do that with
/// gradients that nobody has looked at, or that were finite. And a running statistic that has,
/// which training does not notice, stays where it is.
void Trainer::check_network(std::string_view not_done) const {
  const std::string first = first_not_finite(parameters_, *model_);
  if (first.empty()) return;
  throw Divergence(fmt::format("after step {} of the run {} is not finite; {}; {}",
                               reporter_.summary().steps, first, not_done,
                               advice_after_divergence(config_)));
}

/// At the end. Before it training may make up for it, as where running statistics are young.
void Trainer::check_validation() const {
  const double loss = reporter_.summary().validation.mean_loss();
  if (std::isfinite(loss)) return;
  throw Divergence(fmt::format(
      "after step {} of the run the loss of the last validation is {}: what the network makes of "
      "the test images is not finite; no network was written; {}",
      reporter_.summary().steps, std::abs(loss), advice_after_divergence(config_)));
}

}  // namespace dlaunch
