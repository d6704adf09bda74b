#include "runtime/base/chosen_address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace dlaunch {
namespace {

// An address and how many of its first bits count.
struct AddressPrefix {
  int family = AF_UNSPEC;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  int bits = 0;

  int most_bits() const { return family == AF_INET ? 32 : 128; }
};

std::optional<AddressPrefix> parse_address(const std::string& text) {
  AddressPrefix address;
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, text.c_str(), address.bytes.data()) != 1) continue;
    address.family = family;
    address.bits = address.most_bits();
    return address;
  }
  return std::nullopt;
}

// "10.1.0.0/16"; without a slash all bits count.
std::optional<AddressPrefix> parse_prefix(std::string_view text) {
  const std::size_t slash = text.find('/');
  auto prefix = parse_address(std::string(text.substr(0, slash)));
  if (!prefix || slash == std::string_view::npos) return prefix;
  const std::string_view bits = text.substr(slash + 1);
  const char* const end = bits.data() + bits.size();
  const auto [stop, error] = std::from_chars(bits.data(), end, prefix->bits);
  const bool fits = prefix->bits >= 0 && prefix->bits <= prefix->most_bits();
  if (error != std::errc() || stop != end || !fits) return std::nullopt;
  return prefix;
}

bool holds(const AddressPrefix& prefix, const std::string& text) {
  const auto address = parse_address(text);
  if (!address || address->family != prefix.family) return false;
  for (int bit = 0; bit < prefix.bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if ((address->bytes[byte] & mask) != (prefix.bytes[byte] & mask)) return false;
  }
  return true;
}

bool is_v6(const InterfaceAddress& address) {
  return address.address.find(':') != std::string::npos;
}

// Of one of the alternatives.
const InterfaceAddress* find_address(std::string_view choice,
                                     const std::vector<InterfaceAddress>& addresses) {
  if (const auto prefix = parse_prefix(choice)) {
    const auto found = std::ranges::find_if(
        addresses, [&](const InterfaceAddress& own) { return holds(*prefix, own.address); });
    return found == addresses.end() ? nullptr : &*found;
  }
  const InterfaceAddress* best = nullptr;
  for (const InterfaceAddress& own : addresses) {
    if (own.interface != choice) continue;
    if (best == nullptr || (is_v6(*best) && !is_v6(own))) best = &own;
  }
  return best;
}

// Numeric; empty for what is no address that others can use.
std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return "";
    inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Status::from_errno("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    std::string text = address_text(each->ifa_addr);
    if (text.empty() || (each->ifa_flags & IFF_UP) == 0) continue;
    found.push_back({each->ifa_name, std::move(text)});
  }
  return found;
}

Result<std::string> choose_address(std::string_view choice,
                                   const std::vector<InterfaceAddress>& addresses) {
  for (std::size_t begin = 0; begin <= choice.size();) {
    const std::size_t end = std::min(choice.find(',', begin), choice.size());
    const auto* const found = find_address(choice.substr(begin, end - begin), addresses);
    if (found != nullptr) return is_v6(*found) ? "[" + found->address + "]" : found->address;
    begin = end + 1;
  }
  std::string own;
  for (const InterfaceAddress& address : addresses) {
    own += (own.empty() ? "" : ", ") + address.interface + " " + address.address;
  }
  return Status(StatusCode::kNotFound,
                "'" + std::string(choice) +
                    "' is no interface (that is up), address or prefix (10.1.0.0/16) of this "
                    "host, which has " +
                    (own.empty() ? "no address" : own));
}

Result<std::string> choose_address(std::string_view choice) {
  auto addresses = interface_addresses();
  if (!addresses.ok()) return addresses.status();
  return choose_address(choice, *addresses);
}

}  // namespace dlaunch
