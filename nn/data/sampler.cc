#include "nn/data/sampler.h"

#include <algorithm>

#include "nn/core/random.h"
#include "nn/data/streams.h"

namespace dlaunch::nn {
namespace {

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::vector<std::uint32_t> epoch_order(std::size_t size, std::uint64_t seed, std::uint64_t epoch) {
  return Generator(seed, random_stream(RandomPurpose::kPermutation, epoch)).permutation(size);
}

SampleRange even_part(std::size_t size, std::size_t parts, std::size_t index) {
  return {size * index / parts, size * (index + 1) / parts};
}

StepPlan::StepPlan(std::size_t samples, std::size_t samples_per_step, std::size_t micro_batches,
                   std::size_t ranks)
    : samples_(samples),
      samples_per_step_(samples_per_step),
      micro_batches_(micro_batches),
      ranks_(ranks) {}

std::size_t StepPlan::steps() const {
  return divide_up(samples_, samples_per_step_);
}

double StepPlan::progress(std::size_t epoch, std::size_t step) const {
  return static_cast<double>(epoch * steps() + step) / static_cast<double>(steps());
}

SampleRange StepPlan::step_range(std::size_t step) const {
  return {std::min(samples_, step * samples_per_step_),
          std::min(samples_, (step + 1) * samples_per_step_)};
}

std::size_t StepPlan::micro_batches(std::size_t step) const {
  return divide_up(step_range(step).size() * micro_batches_, samples_per_step_);
}

SampleRange StepPlan::micro_batch(std::size_t step, std::size_t micro_batch,
                                  std::size_t rank) const {
  const SampleRange block = step_range(step);
  const SampleRange part =
      even_part(block.size(), micro_batches(step) * ranks_, micro_batch * ranks_ + rank);
  return {block.begin + part.begin, block.begin + part.end};
}

SampleRange StepPlan::whole_micro_batch(std::size_t step, std::size_t micro_batch) const {
  return {this->micro_batch(step, micro_batch, 0).begin,
          this->micro_batch(step, micro_batch, ranks_ - 1).end};
}

std::size_t StepPlan::largest_micro_batch() const {
  // The last step, if smaller, has at least its share of the micro-batches.
  return divide_up(step_range(0).size(), micro_batches(0) * ranks_);
}

}  // namespace dlaunch::nn
