#include "trainers/device/step_graphs.h"

#include "nn/core/error.h"

namespace dlaunch {
namespace {

/// Of the next words that Generator::reserve() hands out.
std::uint64_t next_block(const nn::Generator& generator) {
  return (generator.state().position + 3) / 4;
}

}  // namespace

bool StepGraphs::run(const StepKind& step, const std::function<void()>& work,
                     const GiveUp& give_up) {
  const bool known = kinds_.contains(step);
  if (!enabled_ || (!known && kinds_.size() == kMostKinds)) {
    work();
    return false;
  }
  Kind& kind = kinds_[step];
  if (kind.recording == nullptr && kind.seen++ < kWarmUp) {
    work();
    return false;
  }
  const bool repeats = kind.recording != nullptr;
  if (!repeats && !try_to_record(kind, work, give_up)) {
    work();
    return false;
  }
  replay(kind);
  return repeats;
}

/// False if steps are recorded no more, also not `kind`.
bool StepGraphs::try_to_record(Kind& kind, const std::function<void()>& work,
                               const GiveUp& give_up) {
  const nn::RandomState before = generator_.state();
  try {
    record(kind, work);
    return true;
  } catch (const nn::Error& error) {
    if (world_ != nullptr) throw;
    generator_.restore(before);
    enabled_ = false;
    kinds_.clear();
    give_up(error.what());
    return false;
  }
}

void StepGraphs::record(Kind& kind, const std::function<void()>& work) {
  const nn::RandomState before = generator_.state();
  kind.first_block = next_block(generator_);
  kind.recording = backend_.record(work);
  if (kind.recording == nullptr) throw nn::Error("this device cannot record steps");
  if (generator_.state() != before)
    kind.random_words = generator_.state().position - 4 * kind.first_block;
  generator_.restore(before);
}

void StepGraphs::replay(Kind& kind) {
  const std::uint64_t block = next_block(generator_);
  const auto launch = [&] { kind.recording->replay(block - kind.first_block); };
  if (world_ == nullptr) {
    launch();
  } else {
    throw_if_error(world_->repeat(launch).within("recorded step"));
  }
  if (kind.random_words > 0) (void)generator_.reserve(kind.random_words);
}

}  // namespace dlaunch
