#include "transport/mesh/introduction.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <utility>
#include <vector>

namespace dlaunch {
namespace {

constexpr char kSeparator = '\n';

std::string join(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) {
    if (!text.empty()) text += kSeparator;
    for (const char letter : field) text += letter == kSeparator ? ' ' : letter;
  }
  return text;
}

Status not_understood() {
  return Status(StatusCode::kProtocol,
                "a rank introduces itself in a way that is not understood "
                "(different builds in one job?)");
}

Result<std::vector<std::string>> split(std::string_view text, std::size_t fields) {
  std::vector<std::string> found;
  while (true) {
    const std::size_t end = text.find(kSeparator);
    found.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  if (found.size() == fields) return found;
  return not_understood();
}

const char* flag(bool value) {
  return value ? "yes" : "no";
}

}  // namespace

std::string own_build() {
  return DLAUNCH_BUILD;
}

std::string Introduction::encode() const {
  return join({"introduction", build, address, host, socket, obstacle, flag(demands_sharing),
               std::to_string(cores), std::to_string(room.limit), std::to_string(room.open)});
}

Result<Introduction> Introduction::decode(std::string_view text) {
  auto fields = split(text, 10);
  if (!fields.ok()) return fields.status();
  std::vector<std::string>& field = *fields;
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string& digits = field[7 + i];
    const char* const end = digits.data() + digits.size();
    const auto [stopped, error] = std::from_chars(digits.data(), end, numbers[i]);
    if (error != std::errc() || stopped != end || numbers[i] < 0) return not_understood();
  }
  return Introduction{.build = std::move(field[1]),
                      .address = std::move(field[2]),
                      .host = std::move(field[3]),
                      .socket = std::move(field[4]),
                      .obstacle = std::move(field[5]),
                      .demands_sharing = field[6] == "yes",
                      .cores = numbers[0],
                      .room = {.limit = numbers[1], .open = numbers[2]}};
}

std::string SharingOutcome::encode() const {
  return join({"sharing", flag(joined), flag(readable), flag(pays), obstacle});
}

Result<SharingOutcome> SharingOutcome::decode(std::string_view text) {
  auto fields = split(text, 5);
  if (!fields.ok()) return fields.status();
  std::vector<std::string>& field = *fields;
  return SharingOutcome{.joined = field[1] == "yes",
                        .readable = field[2] == "yes",
                        .pays = field[3] == "yes",
                        .obstacle = std::move(field[4])};
}

Result<std::string> host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string identity;
  if (!(file >> identity)) {
    return Status(StatusCode::kUnavailable, "/proc/sys/kernel/random/boot_id cannot be read");
  }
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat about {};
    if (::stat(space, &about) != 0) return Status::from_errno(space, errno);
    identity += " " + std::to_string(about.st_ino);
  }
  return identity;
}

}  // namespace dlaunch
