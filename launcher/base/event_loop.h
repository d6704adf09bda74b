// EventLoop: waits for descriptors and for points in time, and calls back. One thread, plain epoll.
//
// Descriptors that become ready are served in the order in which they did; ranks' ends (pidfds) are
// therefore seen in the order in which the ranks died. Descriptors stay the caller's, who must
// remove them before closing them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace dlaunch {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Callback = std::function<void()>;

  /// Throws std::system_error.
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls back whenever `events` (EPOLLIN, EPOLLOUT) hold. False if the descriptor cannot be
  /// waited for because it is always ready (a regular file). Throws std::system_error.
  bool add(int descriptor, std::uint32_t events, Callback callback);
  void remove(int descriptor);

  /// Calls back once, at `when`. Returns what cancel() takes.
  using TimerId = std::uint64_t;
  TimerId call_at(Clock::time_point when, Callback callback);
  void cancel(TimerId timer);

  /// Waits for what comes next and serves it. Callbacks may add and remove anything.
  void run_once();

 private:
  int timeout_ms() const;
  void serve_timers();

  struct Timer {
    Clock::time_point when;
    Callback callback;
  };

  int epoll_;
  std::map<int, Callback> callbacks_;
  std::map<TimerId, Timer> timers_;
  TimerId next_timer_ = 1;
};

}  // namespace dlaunch
