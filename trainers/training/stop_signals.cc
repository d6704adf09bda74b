#include "trainers/training/stop_signals.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::int64_t kSameSignalNs = 500'000'000;

// A handler has nothing else to look at.
std::atomic<int> caught_signal = 0;
std::atomic<std::int64_t> first_sigterm_ns = 0;
std::atomic<const Activity*> watched_activity = nullptr;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Whether this SIGTERM is to end the process at once.
bool ends_at_once() {
  const Activity* activity = watched_activity.load();
  if (activity != nullptr && activity->job_has_failed()) return true;
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
  std::int64_t first = 0;
  return !first_sigterm_ns.compare_exchange_strong(first, now) && now - first > kSameSignalNs;
}

void on_stop_signal(int number) {
  if (number == SIGTERM && ends_at_once()) {
    (void)::signal(SIGTERM, SIG_DFL);
    (void)::raise(SIGTERM);  // as soon as this handler has returned
    return;
  }
  caught_signal.store(number);
}

}  // namespace

void catch_stop_signals(std::shared_ptr<const Activity> activity) {
  // Never given back: a thread may get a signal until the very end of the process.
  static const auto* const kKept = new std::shared_ptr<const Activity>(std::move(activity));
  watched_activity.store(kKept->get());
  for (const int number : {SIGTERM, SIGUSR1}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction ours {};
    ours.sa_handler = on_stop_signal;
    ours.sa_flags = SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    (void)::sigaction(number, &ours, nullptr);
  }
}

int stop_signal() {
  return caught_signal.load();
}

std::string name_of_stop_signal(int signal) {
  return signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace dlaunch
