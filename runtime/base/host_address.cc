#include "runtime/base/host_address.h"

#include <array>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>

#include "runtime/base/start_thread.h"

namespace dlaunch {
namespace {

// What getaddrinfo() returns.
struct Answer {
  int error = 0;
  FoundHost found;
};

Answer ask(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  Answer answer;
  answer.error = getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &list);
  if (answer.error != 0) return answer;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  answer.found.canonical_name = list->ai_canonname == nullptr ? host : list->ai_canonname;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    HostAddress address;
    address.length = each->ai_addrlen;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    answer.found.addresses.push_back(address);
  }
  return answer;
}

// One search, which outlives whoever no longer waits for it.
struct Search {
  std::string host;
  std::string port;
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Answer> answer;
};

void run(Search& search) {
  Answer answer{.error = EAI_MEMORY};
  try {
    answer = ask(search.host, search.port, AI_CANONNAME);
  } catch (const std::bad_alloc&) {  // said by the error
  }
  const std::lock_guard lock(search.mutex);
  search.answer = std::move(answer);
  search.ended.notify_all();
}

// Threads inherit the mask of signals: one that nobody waits for is not to take what is meant for
// others.
void begin(const std::shared_ptr<Search>& search) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    start_thread([search] { run(*search); }).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Result<FoundHost> result_of(Answer answer) {
  if (answer.error == 0) return std::move(answer.found);
  return Status(StatusCode::kUnavailable, gai_strerror(answer.error));
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port <= 65535;
}

}  // namespace

std::optional<HostPort> split_host_port(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  if (address.ends_with(']')) return {};               // a colon of IPv6
  if (!is_port(address.substr(colon + 1))) return {};  // the library would take it modulo 65536
  return HostPort{std::string(without_brackets(address.substr(0, colon))),
                  std::string(address.substr(colon + 1))};
}

std::string_view without_brackets(std::string_view address) {
  const bool has_them = address.starts_with('[') && address.ends_with(']');
  return has_them ? address.substr(1, address.size() - 2) : address;
}

bool is_loopback(std::string_view address) {
  const std::string_view bare = without_brackets(address);
  return bare.starts_with("127.") || bare == "::1";
}

std::string numeric_text(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return "";
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

std::string endpoint_text(const sockaddr* address) {
  std::string host = numeric_text(address);
  in_port_t port = 0;
  if (address->sa_family == AF_INET)
    port = reinterpret_cast<const sockaddr_in*>(address)->sin_port;
  else
    port = reinterpret_cast<const sockaddr_in6*>(address)->sin6_port;
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    host.erase(0, kMapped.size());
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return host + ":" + std::to_string(ntohs(port));
}

Result<FoundHost> find_host(std::string_view host, std::string_view port, Deadline deadline) {
  auto search = std::make_shared<Search>();
  search->host = without_brackets(host);
  search->port = port;
  Answer number = ask(search->host, search->port, AI_NUMERICHOST);  // waits for nobody
  if (number.error != EAI_NONAME) return result_of(std::move(number));
  begin(search);
  std::unique_lock lock(search->mutex);
  const auto answered = [&] { return search->answer.has_value(); };
  if (!search->ended.wait_until(lock, deadline.when(), answered)) {
    return Status(StatusCode::kTimeout, "its name was not resolved in time");
  }
  return result_of(*std::move(search->answer));
}

}  // namespace dlaunch
