// ThreadExchange: connect_mesh's exchange between ranks that are threads of one test.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/mesh/mesh.h"

namespace dlaunch {

/// Outlives the exchanges it gives. Any thread.
class ThreadExchange {
 public:
  explicit ThreadExchange(int world_size) : world_size_(static_cast<std::size_t>(world_size)) {}

  Exchange of(int rank) {
    return [this, rank](std::string_view round, const std::string& own,
                        Deadline deadline) -> Result<std::vector<std::string>> {
      std::unique_lock lock(mutex_);
      std::map<int, std::string>& said = said_[std::string(round)];
      said[rank] = own;
      changed_.notify_all();
      if (!changed_.wait_until(lock, deadline.when(), [&] { return said.size() == world_size_; })) {
        return Status(StatusCode::kTimeout, "not everybody has spoken");
      }
      std::vector<std::string> all;
      all.reserve(world_size_);
      for (const auto& [speaker, text] : said) all.push_back(text);
      return all;
    };
  }

 private:
  std::size_t world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::map<int, std::string>> said_;  // by round, then rank
};

}  // namespace dlaunch
