// StepGraphs: training steps that are recorded once (nn::Backend::record) and then repeated as a
// whole, each kind of step for itself: those with as many samples. On all ranks a step is recorded
// at the same time, since its collectives are recorded with it.
//
// What changes from step to step must lie in the backend's memory, where it is written before the
// step, and the random numbers of dropout must come from `generator`. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "nn/core/backend.h"
#include "nn/core/random.h"
#include "runtime/device/device_communicator.h"

namespace dlaunch {

/// What tells steps apart that must be recorded apart; the same on all ranks.
struct StepKind {
  std::size_t samples = 0;              // over all ranks
  std::array<std::int64_t, 2> sides{};  // of an image: height and width
  friend bool operator<(const StepKind& a, const StepKind& b) {
    return std::tie(a.samples, a.sides) < std::tie(b.samples, b.sides);
  }
};

class StepGraphs {
 public:
  /// After so many steps of a kind it has been recorded.
  static constexpr int kToRecord = 3;

  /// `world` is that of the steps' collectives, null if they have none on the backend's memory. All
  /// must outlive it.
  StepGraphs(nn::Backend& backend, nn::Generator& generator, DeviceWorld* world, bool enabled)
      : backend_(backend), generator_(generator), world_(world), enabled_(enabled) {}

  /// Is told why steps are recorded no more, before `work` is called once again: makes what it
  /// changes on the host as it was before.
  using GiveUp = std::function<void(const std::string& why)>;

  ~StepGraphs() {
    kinds_.clear();
    if (world_ != nullptr) world_->forget_recordings();
  }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  bool enabled() const { return enabled_; }
  /// Does a step: the first ones of its kind by calling `work`, then by recording that and
  /// repeating it. True if it was not called. Throws what it throws; if that happens while it is
  /// recorded, nothing has been done. Without a world an nn::Error then makes an end of recording:
  /// this step and all others are done by calling `work`. (Ranks would have to agree on that, in
  /// the middle of a step in which some have queued collectives.)
  bool run(const StepKind& kind, const std::function<void()>& work, const GiveUp& give_up);

 private:
  /// Steps that are done before one is recorded: backends choose algorithms and make what they keep
  /// in the first, communication finds its order in it.
  static constexpr int kWarmUp = kToRecord - 1;
  /// More kinds than that are not recorded: each takes some memory of its own.
  static constexpr std::size_t kMostKinds = 4;

  struct Kind {
    int seen = 0;
    std::unique_ptr<nn::Recording> recording;
    std::uint64_t first_block = 0;   // of random words, when it was recorded
    std::uint64_t random_words = 0;  // that it takes, from there on
  };

  bool try_to_record(Kind& kind, const std::function<void()>& work, const GiveUp& give_up);
  void record(Kind& kind, const std::function<void()>& work);
  void replay(Kind& kind);

  nn::Backend& backend_;
  nn::Generator& generator_;
  DeviceWorld* const world_;
  bool enabled_;
  std::map<StepKind, Kind> kinds_;
};

}  // namespace dlaunch
