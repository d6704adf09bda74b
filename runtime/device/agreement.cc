#include "runtime/device/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {
namespace {

struct Vote {
  std::int32_t code = 0;
  std::array<char, 500> text{};
};

}  // namespace

Status agree(Communicator& host, const Status& own) {
  Vote vote{.code = static_cast<std::int32_t>(own.code()), .text = {}};
  const std::string text = own.ok() ? "" : own.to_string();
  std::copy_n(text.begin(), std::min(text.size(), vote.text.size()), vote.text.begin());
  std::vector<Vote> votes(static_cast<std::size_t>(host.size()));
  DLAUNCH_RETURN_IF_ERROR(
      host.all_gather(ConstBuffer(&vote, sizeof vote, DType::kU8),
                      Buffer(votes.data(), votes.size() * sizeof vote, DType::kU8)));
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    const Vote& other = votes[rank];
    if (static_cast<StatusCode>(other.code) == StatusCode::kOk) continue;
    const auto end = std::ranges::find(other.text, '\0');
    return Status(static_cast<StatusCode>(other.code), std::string(other.text.begin(), end))
        .within("rank " + std::to_string(rank));
  }
  return Status();
}

}  // namespace dlaunch
