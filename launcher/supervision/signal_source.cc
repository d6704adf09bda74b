#include "launcher/supervision/signal_source.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace dlaunch {

SignalSource::SignalSource(EventLoop& loop, const sigset_t& signals, Callbacks callbacks)
    : loop_(loop),
      callbacks_(std::move(callbacks)),
      descriptor_(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)) {
  if (!descriptor_.is_open()) throw std::system_error(errno, std::generic_category(), "signalfd");
  loop_.add(descriptor_.get(), EPOLLIN, [this] { read_signals(); });
}

SignalSource::~SignalSource() {
  loop_.remove(descriptor_.get());
}

void SignalSource::read_signals() {
  signalfd_siginfo info{};
  while (read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      loop_.call_at(EventLoop::Clock::now(), [this] { callbacks_.on_child(); });
    } else {
      // The guard, which passes signals on, attaches whether the terminal has sent it.
      callbacks_.on_signal(signal, info.ssi_code == SI_QUEUE && info.ssi_int != 0);
    }
  }
}

}  // namespace dlaunch
