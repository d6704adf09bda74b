#include "launcher/ranks/rank_terminal.h"

#include <array>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "launcher/base/rank_prefix.h"

namespace dlaunch {

Status make_rank_terminal(Descriptor& reading, Descriptor& writing) {
  // Neither end becomes anybody's controlling terminal: signals come from the user's own.
  Descriptor master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.is_open()) return Status::from_errno("posix_openpt", errno);
  std::array<char, 64> path{};
  if (grantpt(master.get()) != 0 || unlockpt(master.get()) != 0 ||
      ptsname_r(master.get(), path.data(), path.size()) != 0) {
    return Status::from_errno("pseudo-terminal", errno);
  }
  Descriptor slave(open(path.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave.is_open()) return Status::from_errno(path.data(), errno);
  termios settings{};
  if (tcgetattr(slave.get(), &settings) != 0) return Status::from_errno("tcgetattr", errno);
  cfmakeraw(&settings);
  if (tcsetattr(slave.get(), TCSANOW, &settings) != 0) {
    return Status::from_errno("tcsetattr", errno);
  }
  fcntl(master.get(), F_SETFL, O_NONBLOCK);
  reading = std::move(master);
  writing = std::move(slave);
  return {};
}

bool set_terminal_size(int rank, int from, int to) {
  winsize size{};
  if (ioctl(from, TIOCGWINSZ, &size) != 0) return false;
  const std::size_t taken = rank_prefix(rank).size() + 1;
  if (size.ws_col > 2 * taken) size.ws_col -= static_cast<unsigned short>(taken);
  return ioctl(to, TIOCSWINSZ, &size) == 0;
}

}  // namespace dlaunch
