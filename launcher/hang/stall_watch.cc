#include "launcher/hang/stall_watch.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kOftenest = std::chrono::milliseconds(20);
constexpr std::chrono::nanoseconds kRarest = std::chrono::seconds(5);

}  // namespace

StallWatch::StallWatch(EventLoop& loop, const ActivityBoard& board, std::chrono::nanoseconds limit,
                       std::function<void(std::chrono::nanoseconds)> on_stall)
    : loop_(loop), board_(board), limit_(limit), on_stall_(std::move(on_stall)) {
  if (limit_ > std::chrono::nanoseconds(0)) look();
}

StallWatch::~StallWatch() {
  loop_.cancel(timer_);
}

void StallWatch::look() {
  const auto now = EventLoop::Clock::now();
  bool anybody_waits = false;
  std::vector<std::uint64_t> progress;
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    const ShownRank shown = board_.read(rank);
    progress.push_back(shown.progress);
    anybody_waits = anybody_waits || std::ranges::any_of(shown.activities, &ShownActivity::waits);
  }
  if (stopped_ || !anybody_waits || progress != progress_) {
    changed_ = now;
    told_ = false;
  }
  progress_ = std::move(progress);
  if (!told_ && now - changed_ >= limit_) {
    told_ = true;
    on_stall_(now - changed_);
  }
  timer_ = loop_.call_at(now + std::clamp(limit_ / 8, kOftenest, kRarest), [this] { look(); });
}

}  // namespace dlaunch
