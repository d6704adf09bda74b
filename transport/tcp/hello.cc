#include "transport/tcp/hello.h"

#include <string>

#include "runtime/base/hash_text.h"
#include "transport/tcp/little_endian.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kHelloMagic = 0x49484c44;  // "DLHI"
constexpr std::uint32_t kHelloVersion = 1;

Status refused(const std::string& why) {
  return Status(StatusCode::kProtocol, why);
}

}  // namespace

std::uint64_t hash_job(std::string_view job_id) {
  return hash_text(job_id);
}

std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello) {
  std::array<std::byte, kHelloBytes> encoded;
  std::byte* to = encoded.data();
  to = store_little_endian(to, kHelloMagic);
  to = store_little_endian(to, kHelloVersion);
  to = store_little_endian(to, hello.rank);
  to = store_little_endian(to, hello.world_size);
  to = store_little_endian(to, hello.lane);
  to = store_little_endian(to, hello.lanes);
  store_little_endian(to, hello.job);
  return encoded;
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> encoded, const Hello& expected) {
  const std::byte* from = encoded.data();
  if (load_little_endian<std::uint32_t>(from) != kHelloMagic) return refused("no hello");
  if (const auto version = load_little_endian<std::uint32_t>(from); version != kHelloVersion) {
    return refused("protocol version " + std::to_string(version) + ", this is " +
                   std::to_string(kHelloVersion) + " (different builds in one job?)");
  }
  Hello hello;
  hello.rank = load_little_endian<std::uint32_t>(from);
  hello.world_size = load_little_endian<std::uint32_t>(from);
  hello.lane = load_little_endian<std::uint32_t>(from);
  hello.lanes = load_little_endian<std::uint32_t>(from);
  hello.job = load_little_endian<std::uint64_t>(from);
  if (hello.job != expected.job) return refused("belongs to another job");
  if (hello.world_size != expected.world_size) {
    return refused("believes in a world of " + std::to_string(hello.world_size) + ", this is " +
                   std::to_string(expected.world_size));
  }
  if (hello.lanes != expected.lanes) {
    return refused("believes in " + std::to_string(hello.lanes) + " lanes, here are " +
                   std::to_string(expected.lanes));
  }
  if (hello.rank >= hello.world_size || hello.lane >= hello.lanes) {
    return refused("says it is rank " + std::to_string(hello.rank) + ", lane " +
                   std::to_string(hello.lane) + ", which do not exist");
  }
  return hello;
}

}  // namespace dlaunch
