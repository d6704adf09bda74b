#include "launcher/supervision/signals.h"

#include <cstring>
#include <initializer_list>

namespace dlaunch {

SignalSetup block_signals() {
  SignalSetup setup;
  // Were SIGCHLD ignored, the system would reap children before anyone learned how they ended.
  signal(SIGCHLD, SIG_DFL);
  sigemptyset(&setup.handled);
  sigaddset(&setup.handled, SIGCHLD);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH}) {
    struct sigaction current {};
    sigaction(number, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&setup.handled, number);
  }
  sigset_t blocked = setup.handled;
  sigaddset(&blocked, SIGPIPE);
  sigaddset(&blocked, SIGXFSZ);
  sigaddset(&blocked, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &blocked, &setup.original);
  return setup;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace dlaunch
