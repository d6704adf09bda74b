#include "launcher/nodes/addresses.h"

#include <algorithm>

#include "runtime/base/host_address.h"

namespace dlaunch {

std::size_t before_port(std::string_view endpoint) {
  return endpoint.ends_with(']') ? std::string_view::npos : endpoint.rfind(':');
}

std::string host_port(std::string_view host, int port) {
  const std::string bare(without_brackets(host));
  return (bare.find(':') == std::string::npos ? bare : "[" + bare + "]") + ":" +
         std::to_string(port);
}

bool is_loopback(std::string_view address) {
  const std::string_view bare = without_brackets(address);
  return bare.starts_with("127.") || bare == "::1";
}

bool is_unspecified(std::string_view address) {
  const std::string_view bare = without_brackets(address);
  return bare == "0.0.0.0" || bare == "::";
}

std::string address_to_serve(std::string_view host, const std::vector<std::string>& own) {
  const std::string& first = own.front();
  if (without_brackets(host) == first || host == "localhost") return first;
  const bool several = std::ranges::any_of(own, [&](const auto& each) { return each != first; });
  return several || is_loopback(first) ? "::" : first;
}

}  // namespace dlaunch
