#include "launcher/ranks/free_port.h"

#include <fstream>
#include <optional>
#include <random>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr int kLowest = 10000;  // below live the well-known services
constexpr int kAttempts = 100;

// Binds without SO_REUSEADDR, as the strictest of programs would. Port 0 lets the system choose.
std::optional<std::uint16_t> try_bind(std::uint16_t port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(descriptor, generic, sizeof(address)) == 0 &&
                     getsockname(descriptor, generic, &length) == 0;
  close(descriptor);
  if (!bound) return std::nullopt;
  return ntohs(address.sin_port);
}

}  // namespace

Result<std::uint16_t> find_free_port() {
  int ephemeral_begin = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral_begin;
  if (ephemeral_begin > kLowest + kAttempts) {
    std::random_device random;
    std::uniform_int_distribution<int> ports(kLowest, ephemeral_begin - 1);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (const auto port = try_bind(static_cast<std::uint16_t>(ports(random)))) return *port;
    }
  }
  if (const auto port = try_bind(0)) return *port;
  return Status(StatusCode::kIo, "no free port for MASTER_PORT");
}

}  // namespace dlaunch
