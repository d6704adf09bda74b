// Works: asynchronous operations by number. Waits for those still in flight when it goes, because
// the buffers they use usually go next. One thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/comm/work.h"

namespace dlaunch {

class Works {
 public:
  explicit Works(std::size_t count) : works_(count) {}
  ~Works() {
    for (std::size_t i = 0; i < works_.size(); ++i) (void)wait(i);
  }
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;

  void set(std::size_t index, Work work) { works_[index] = std::move(work); }
  /// Whether it was started and has ended.
  bool done(std::size_t index) const { return works_[index].has_value() && works_[index]->done(); }
  /// Whether it was started and has not ended.
  bool goes_on(std::size_t index) const {
    return works_[index].has_value() && !works_[index]->done();
  }
  /// How it ended; ok if there is none, or it was waited for before.
  Status wait(std::size_t index) {
    if (!works_[index].has_value()) return {};
    Status status = works_[index]->wait();
    works_[index].reset();
    return status;
  }

 private:
  std::vector<std::optional<Work>> works_;
};

}  // namespace dlaunch
