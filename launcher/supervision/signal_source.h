// SignalSource: the signals that dlaunch has blocked, as events of its loop. Belongs to the event
// loop's thread.
#pragma once

#include <functional>

#include <signal.h>

#include "launcher/base/event_loop.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {

class SignalSource {
 public:
  struct Callbacks {
    /// `seen_by_terminal_group`: the terminal has sent it to its foreground group itself.
    std::function<void(int signal, bool seen_by_terminal_group)> on_signal;
    /// SIGCHLD. Called after the other events of a round, so that ranks are seen in the order they
    /// ended.
    std::function<void()> on_child;
  };

  /// `signals` are blocked. Throws std::system_error.
  SignalSource(EventLoop& loop, const sigset_t& signals, Callbacks callbacks);
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

 private:
  void read_signals();

  EventLoop& loop_;
  const Callbacks callbacks_;
  Descriptor descriptor_;
};

}  // namespace dlaunch
