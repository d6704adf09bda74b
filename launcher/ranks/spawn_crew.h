// SpawnCrew: starts the ranks of an attempt from several threads at once. Whoever starts a process
// by vfork stands still until the program is loaded; on one thread all ranks would be loaded one
// after the other.
//
// One thread uses a crew. Its own threads live as long as it does, because the kernel ends a rank
// when the thread that started it has ended (PR_SET_PDEATHSIG).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "launcher/ranks/spawn.h"

namespace dlaunch {

class SpawnCrew {
 public:
  /// Takes a rank that has just been started. Called on any thread of the crew, on one at a time.
  using Taker = std::function<void(Rank started)>;

  SpawnCrew() = default;
  /// Ranks that still run are killed.
  ~SpawnCrew();
  SpawnCrew(const SpawnCrew&) = delete;
  SpawnCrew& operator=(const SpawnCrew&) = delete;

  /// Starts all ranks, nearly in their order, on the calling thread and, if they are many, on some
  /// more, about two for each core. Returns when all have been taken; after an error (as
  /// spawn_rank) it starts no further ones. To be called once.
  Status start(const SpawnPlan& plan, const std::vector<RankStart>& starts, int cores,
               const Taker& take);

 private:
  void start_some(const SpawnPlan& plan, const std::vector<RankStart>& starts, const Taker& take);
  Status start_one(const SpawnPlan& plan, const RankStart& start, const Taker& take);

  std::atomic<std::size_t> next_{0};  // of the ranks to start
  std::atomic<int> working_{0};       // threads that still start ranks
  std::mutex mutex_;                  // held for take and result_
  Status result_;
  std::atomic<bool> over_{false};  // the threads may end
  std::vector<std::thread> threads_;
};

}  // namespace dlaunch
