#include "launcher/ranks/spawn_crew.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

namespace dlaunch {
namespace {

// For fewer a thread is not worth its own start.
constexpr std::size_t kRanksPerThread = 4;
// A core that has gone idle takes a while to wake up again: while a thread stands still, and its
// rank moves to another core, there should be something else to do.
constexpr int kThreadsPerCore = 2;
constexpr int kMostThreads = 16;

}  // namespace

SpawnCrew::~SpawnCrew() {
  over_ = true;
  over_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status SpawnCrew::start(const SpawnPlan& plan, const std::vector<RankStart>& starts, int cores,
                        const Taker& take) {
  const auto most = static_cast<std::size_t>(std::clamp(cores * kThreadsPerCore, 1, kMostThreads));
  const std::size_t hands = std::clamp<std::size_t>(starts.size() / kRanksPerThread, 1, most);
  threads_.reserve(hands);
  for (std::size_t i = 1; i < hands; ++i) {
    try {
      ++working_;
      threads_.emplace_back([&, this] {
        start_some(plan, starts, take);
        --working_;
        working_.notify_one();
        over_.wait(false);
      });
    } catch (const std::exception&) {
      --working_;
      break;  // fewer hands do it too
    }
  }
  start_some(plan, starts, take);
  for (int left = working_; left != 0; left = working_) working_.wait(left);
  return result_;
}

void SpawnCrew::start_some(const SpawnPlan& plan, const std::vector<RankStart>& starts,
                           const Taker& take) {
  for (std::size_t i = next_++; i < starts.size(); i = next_++) {
    const Status done = start_one(plan, starts[i], take);
    if (done.ok()) continue;
    next_ = starts.size();
    const std::scoped_lock lock(mutex_);
    if (result_.ok()) result_ = done;
  }
}

// An exception must not leave a thread.
Status SpawnCrew::start_one(const SpawnPlan& plan, const RankStart& start, const Taker& take) {
  try {
    auto started = spawn_rank(plan, start);
    if (!started.ok()) return started.status();
    const std::scoped_lock lock(mutex_);
    take(*std::move(started));
    return {};
  } catch (const std::exception& error) {
    return Status(StatusCode::kIo, error.what());
  }
}

}  // namespace dlaunch
