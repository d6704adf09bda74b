#include "launcher/base/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

namespace dlaunch {

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

EventLoop::~EventLoop() {
  close(epoll_);
}

bool EventLoop::add(int descriptor, std::uint32_t events, Callback callback) {
  epoll_event event{.events = events, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    if (errno == EPERM) return false;
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  callbacks_[descriptor] = std::move(callback);
  return true;
}

void EventLoop::remove(int descriptor) {
  if (callbacks_.erase(descriptor) != 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
}

EventLoop::TimerId EventLoop::call_at(Clock::time_point when, Callback callback) {
  timers_.emplace(next_timer_, Timer{when, std::move(callback)});
  return next_timer_++;
}

void EventLoop::cancel(TimerId timer) {
  timers_.erase(timer);
}

// Rounded up, so that the last fraction of a millisecond is not spent in a busy loop.
int EventLoop::timeout_ms() const {
  if (timers_.empty()) return -1;
  const auto next =
      std::min_element(timers_.begin(), timers_.end(),
                       [](const auto& a, const auto& b) { return a.second.when < b.second.when; });
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next->second.when - Clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, INT_MAX));
}

void EventLoop::serve_timers() {
  const auto now = Clock::now();
  while (true) {
    const auto due = std::find_if(timers_.begin(), timers_.end(),
                                  [&](const auto& timer) { return timer.second.when <= now; });
    if (due == timers_.end()) return;
    const Callback callback = std::move(due->second.callback);
    timers_.erase(due);
    callback();
  }
}

void EventLoop::run_once() {
  std::array<epoll_event, 256> events;
  const int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms());
  if (count < 0 && errno != EINTR) {
    throw std::system_error(errno, std::generic_category(), "epoll_wait");
  }
  for (int i = 0; i < count; ++i) {
    const auto found = callbacks_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (found == callbacks_.end()) continue;  // removed by a callback before it
    const Callback callback = found->second;  // it may remove itself
    callback();
  }
  serve_timers();
}

}  // namespace dlaunch
