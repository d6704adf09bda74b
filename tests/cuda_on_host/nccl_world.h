// NcclWorld: what the ranks of a communicator of the stand-in for NCCL share: messages, which are
// copied when they are sent. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch::cuda_on_host {

class NcclWorld {
 public:
  explicit NcclWorld(int size) : size_(size) {}
  /// The world that ranks of this process meet in by that number.
  static std::shared_ptr<NcclWorld> of(std::uint64_t number, int size);

  int size() const { return size_; }
  void join() { ++joined_; }
  /// Whether all ranks are there.
  bool complete() const { return joined_ >= size_; }
  /// What the ranks make of it by their split with that index.
  std::shared_ptr<NcclWorld> part(int index);

  void post(int from, int to, std::span<const std::byte> bytes);
  /// Waits for the next message from one to the other; nothing if it is `given_up` first.
  std::optional<std::vector<std::byte>> take(int from, int to, const std::atomic<bool>& given_up);

 private:
  const int size_;
  std::atomic<int> joined_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages_;
  std::map<int, std::shared_ptr<NcclWorld>> parts_;
};

}  // namespace dlaunch::cuda_on_host
