// Which of its addresses this host tells others, where the user says: DLAUNCH_INTERFACE and
// --local-addr.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, without brackets
};

/// Those of the interfaces that are up, in the system's order; without IPv6 addresses that hold on
/// one link only, which others cannot use as they are. kIo. Any thread.
Result<std::vector<InterfaceAddress>> interface_addresses();

/// The address that `choice` names: by an interface ("ib0"; its first IPv4 address, or IPv6 if it
/// has none), as it is ("10.1.0.3") or by a prefix ("10.1.0.0/16", "fd00:1::/64"); or several of
/// these with commas between, of which the first counts that names one. An IPv6 address comes in
/// brackets. kNotFound if there is none says what there is. A pure function.
Result<std::string> choose_address(std::string_view choice,
                                   const std::vector<InterfaceAddress>& addresses);

/// Among this host's. Any thread.
Result<std::string> choose_address(std::string_view choice);

}  // namespace dlaunch
