// TCP that is not paced between ranks of one host. Where a system's congestion control is BBR, a
// sender keeps to the rate at which it has seen data arrive (Cardwell et al., 2016), also where
// there is no network that it could overload: through loopback messages of some 100 KB and more
// then take up to twice as long. A socket that was BBR's once is paced for good, so it has to begin
// as something else. Systems with another congestion control are left alone.
#pragma once

namespace dlaunch {

/// Before `socket` connects or listens; what a listener accepts begins as it does.
void begin_unpaced(int socket);

/// Once it is connected: back to BBR, unless both ends have the same address.
void settle_pacing(int socket);

}  // namespace dlaunch
