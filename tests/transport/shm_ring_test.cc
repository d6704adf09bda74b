// The memory that ranks of a host share, below the endpoint: its layout, and its rings.
#include <cstring>
#include <deque>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/transport/fabric.h"
#include "transport/shm/link.h"
#include "transport/shm/mapping.h"
#include "transport/shm/ring.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/segment_records.h"

namespace dlaunch {
namespace {

struct Range {
  std::size_t begin;
  std::size_t bytes;
};

// Everything in a segment, in order.
std::vector<Range> parts_of(const SegmentLayout& layout) {
  std::vector<Range> parts{{0, sizeof(SegmentHeader)}};
  for (int member = 0; member < layout.members; ++member) {
    parts.push_back({layout.record(member), sizeof(MemberRecord)});
  }
  for (int lane = 0; lane < layout.lanes; ++lane) {
    parts.push_back({layout.control(lane), sizeof(LaneControl)});
    for (int member = 0; member < layout.members; ++member) {
      parts.push_back({layout.state(lane, member), sizeof(MemberState)});
    }
    parts.push_back({layout.group(lane), SharedGroup::memory_bytes(layout.members)});
    for (int from = 0; from < layout.members; ++from) {
      for (int to = 0; to < layout.members; ++to) {
        parts.push_back({layout.ring_between(lane, from, to), layout.ring.memory_bytes()});
      }
    }
  }
  parts.push_back({layout.heaps_at, static_cast<std::size_t>(layout.members) * layout.heap_bytes});
  return parts;
}

TEST(SegmentLayout, HasAPlaceForEverythingAndNoneForTwo) {
  for (const int members : {1, 2, 3, 8, 9, 32, 33, 256}) {
    for (const int lanes : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(members) + " members, " + std::to_string(lanes) + " lanes");
      const SegmentLayout layout = SegmentLayout::of(members, lanes, std::size_t{5} << 20);
      std::size_t end = 0;
      for (const Range& part : parts_of(layout)) {
        ASSERT_GE(part.begin, end);
        ASSERT_EQ(part.begin % 128, 0U);
        end = part.begin + part.bytes;
      }
      EXPECT_EQ(end, layout.total_bytes);
      EXPECT_EQ(layout.group(0) % 4096, 0U);
      EXPECT_EQ(layout.heaps_at % (std::size_t{2} << 20), 0U);
      EXPECT_EQ(layout.heap_bytes, std::size_t{6} << 20);
    }
  }
}

// A ring in memory of the test.
class Ring {
 public:
  explicit Ring(RingShape shape)
      : mapping_(Mapping::anonymous(shape.memory_bytes()).value_or_throw()),
        memory_(mapping_.data(), shape) {}
  RingMemory memory() const { return memory_; }

 private:
  Mapping mapping_;
  RingMemory memory_;
};

TEST(Ring, CarriesLinesAndBulkAroundItsEndsAndKeepsWhatIsUnread) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const Ring ring({.lines = 8, .bulk_bytes = 256});
  RingWriter writer(ring.memory());
  RingReader reader(ring.memory());
  std::deque<std::vector<std::byte>> unread;
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    const std::size_t bytes = 1 + random() % 64;
    if (random() % 2 == 0 && writer.has_line() && writer.bulk_room() >= bytes) {
      unread.push_back(random_bytes(bytes, random()));
      writer.put_bulk(unread.back().data(), bytes);
      RingLineContent content{};
      content.tag.sequence = written++;
      content.set_number(0, bytes);
      writer.put_line(RingLineKind::kFragment, RingWriter::kNumbers, content);
      ASSERT_LE(unread.size(), 8U);
    } else if (reader.look() == RingReader::State::kReady) {
      const RingReader::Line line = reader.take_line();
      ASSERT_FALSE(unread.empty());
      ASSERT_EQ(line.kind, RingLineKind::kFragment);
      ASSERT_EQ(line.content.tag.sequence, read++);
      ASSERT_EQ(line.content.number(0), unread.front().size());
      std::vector<std::byte> got(unread.front().size());
      reader.take_bulk(got.data(), got.size());
      ASSERT_EQ(got, unread.front());
      unread.pop_front();
      reader.give_credit();
    } else {
      ASSERT_EQ(reader.look(),
                unread.empty() ? RingReader::State::kEmpty : RingReader::State::kReady);
    }
  }
  EXPECT_GT(written, 1000U);
}

TEST(Ring, IsNeverFullForEverOnceItHasBeenRead) {
  const Ring ring({.lines = 8, .bulk_bytes = 256});
  RingWriter writer(ring.memory());
  RingReader reader(ring.memory());
  const std::vector<std::byte> data(64);
  for (int turn = 0; turn < 100; ++turn) {
    int written = 0;
    for (; writer.has_line() && writer.bulk_room() >= data.size(); ++written) {
      writer.put_bulk(data.data(), data.size());
      writer.put_line(RingLineKind::kFragment, RingWriter::kNumbers, {});
    }
    ASSERT_GT(written, 0) << "turn " << turn;
    std::vector<std::byte> into(data.size());
    for (; written > 0; --written) {
      ASSERT_EQ(reader.look(), RingReader::State::kReady);
      reader.take_line();
      reader.take_bulk(into.data(), into.size());
      reader.give_credit();
    }
  }
}

// A link whose peer is the test, which writes into the ring what it likes.
class GarbledLink {
 public:
  static constexpr RingShape kShape{.lines = 64, .bulk_bytes = 8192};

  struct NoDoorbells final : Doorbells {
    void ring(int) override {}
  };

  GarbledLink()
      : memory_(Mapping::anonymous(SharedGroup::memory_bytes(2) + 2 * kHeapBytes).value_or_throw()),
        group_(member(0)),
        link_(context_, 1, group_, 1, out_.memory(), in_.memory()),
        writer_(in_.memory()) {
    SharedGroup(member(1)).open_to(0);
  }

  void put(RingLineKind kind, std::uint8_t inline_bytes, std::uint64_t first,
           std::uint64_t second) {
    RingLineContent content{};
    content.set_number(0, first);
    content.set_number(1, second);
    writer_.put_line(kind, inline_bytes, content);
  }

  SharedGroup::Options member(int index) {
    return {.index = index,
            .members = {{.rank = 0, .pid = ::getpid()}, {.rank = 1, .pid = ::getpid()}},
            .memory = memory_.data(),
            .heaps = memory_.data() + SharedGroup::memory_bytes(2),
            .heap_bytes = kHeapBytes,
            .doorbells = &doorbells_};
  }

  static constexpr std::size_t kHeapBytes = 1 << 20;
  EndpointContext context_{.rank = 0, .world_size = 2};
  NoDoorbells doorbells_;
  Mapping memory_;
  SharedGroup group_;
  Ring out_{kShape};
  Ring in_{kShape};
  ShmLink link_;
  RingWriter writer_;
};

TEST(ShmLink, LooksIntoARingOnceItsWriterHasSent) {
  GarbledLink here;
  SharedGroup peer_group(here.member(1));
  EndpointContext peer_context{.rank = 1, .world_size = 2};
  ShmLink peer(peer_context, 0, peer_group, 0, here.in_.memory(), here.out_.memory());
  EXPECT_FALSE(peer.has_input());
  here.out_.memory().line(0).word.store(77);  // a line that it would refuse
  EXPECT_FALSE(peer.has_input());
  here.out_.memory().line(0).word.store(0);
  Transfer message;
  message.peer = 1;
  here.link_.send(message);
  EXPECT_TRUE(message.done());
  EXPECT_TRUE(peer.has_input());
}

TEST(RingGarbage, IsFoundInALineOutOfTurn) {
  GarbledLink fresh;
  fresh.in_.memory().line(0).word.store(77);
  ASSERT_TRUE(fresh.link_.has_input());
  EXPECT_EQ(fresh.link_.read().code(), StatusCode::kProtocol);
}

TEST(RingGarbage, IsFoundInEveryImpossibleLine) {
  struct Line {
    RingLineKind kind;
    std::uint8_t inline_bytes;
    std::uint64_t first;
    std::uint64_t second;
  };
  using enum RingLineKind;
  constexpr std::uint8_t kNumbers = RingWriter::kNumbers;
  const std::uint64_t huge = ~std::uint64_t{0};
  const Line lines[] = {{kFragment, kNumbers, 8, 0},        // no message has begun
                        {kMessage, 17, 0, 0},               // longer than a line
                        {kMessage, kNumbers, 16, 16},       // would have been inline
                        {kMessage, kNumbers, huge, 16},     // longer than any message
                        {kMessage, kNumbers, 100, 0},       // an empty fragment
                        {kMessage, kNumbers, 100, 101},     // a fragment longer than its message
                        {kMessage, kNumbers, 10000, 8193},  // one longer than the ring
                        {static_cast<RingLineKind>(9), 0, 0, 0},
                        {kHeapOffer, kNumbers, 4, 0},
                        {kHeapOffer, kNumbers, GarbledLink::kHeapBytes, 1},
                        {kHeapOffer, kNumbers, 8192, huge},
                        {kHeapOffer, kNumbers, huge, 8192},
                        {kHeapOffer, 3, 8192, 0},
                        {kPrivateOffer, kNumbers, 200000, 4096}};  // members cannot be read
  for (const Line& line : lines) {
    GarbledLink fresh;
    fresh.put(line.kind, line.inline_bytes, line.first, line.second);
    EXPECT_EQ(fresh.link_.read().code(), StatusCode::kProtocol)
        << "kind " << static_cast<int>(line.kind) << " " << line.first << " " << line.second;
  }
}

TEST(RingGarbage, OfAnyKindIsSurvived) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 300; ++turn) {
    GarbledLink fresh;
    Status status;
    for (int line = 0; line < 32 && status.ok(); ++line) {
      const auto pick = [&] {
        const std::uint64_t choices[] = {0, 1, 8, 17, 100, 4096, 8192, 100000, random()};
        return choices[random() % std::size(choices)];
      };
      const auto inline_bytes = static_cast<std::uint8_t>(random() % 3 == 0 ? random() : 255);
      fresh.put(static_cast<RingLineKind>(random() % 6), inline_bytes, pick(), pick());
      while (fresh.link_.has_input() && status.ok()) status = fresh.link_.read();
    }
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kProtocol) << status.to_string();
    fresh.link_.fail_transfers(Status(StatusCode::kAborted, "the end"));
  }
}

}  // namespace
}  // namespace dlaunch
