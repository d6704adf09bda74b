// Files for TensorBoard, decoded by hand: from the layout of TFRecord and of event.proto.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/temporary_folder.h"
#include "tests/trainers/event_records.h"
#include "trainers/output/event_file.h"

namespace dlaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Crc32c, HasTheValuesOfRfc3720) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
  EXPECT_EQ(crc32c(descending), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

class EventFileTest : public ::testing::Test {
 protected:
  static std::uint32_t mask(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8; }

  /// Those of the file, whose sums are checked.
  static std::vector<testing::EventRecord> records(const std::string& path) {
    const std::vector<testing::EventRecord> records = testing::event_records(path);
    for (const testing::EventRecord& record : records) {
      EXPECT_EQ(record.length_sum, mask(crc32c(record.length)));
      EXPECT_EQ(record.payload_sum, mask(crc32c(record.payload)));
    }
    return records;
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(EventFileTest, HoldsEventsAsTheirProtocolBufferHasThem) {
  EventFile events(directory_ + "/a/b");
  events.write(300, std::vector<Scalar>{{"loss", 0.5}, {"x", -2}});
  const auto written = records(events.path());  // while it is open
  ASSERT_EQ(written.size(), 2U);
  // wall_time (1, 8 bytes), step (2, a varint), file_version (3, a text)
  EXPECT_EQ(written[0].payload[0], '\x09');
  EXPECT_GT(testing::number_at<double>(written[0].payload, 1), 1.7e9);
  EXPECT_EQ(written[0].event(), std::string("\x10\x00\x1A\x0D", 4) + "brain.Event:2");
  // summary (5): a value (1) of tag (1) and simple_value (2, 4 bytes), twice
  const std::string loss = std::string("\x0A\x04loss\x15", 7) + std::string("\0\0\0\x3F", 4);
  const std::string x = std::string("\x0A\x01x\x15", 4) + std::string("\0\0\0\xC0", 4);
  EXPECT_EQ(written[1].event(), "\x10\xAC\x02\x2A\x17\x0A\x0B" + loss + "\x0A\x08" + x);
}

TEST_F(EventFileTest, BeginsAnewFileThatVoidsLaterStepsOfOthers) {
  std::string first;
  {
    EventFile events(directory_);
    events.write(7, std::vector<Scalar>{{"loss", 1}});
    first = events.path();
  }
  EventFile events(directory_);
  events.restart_at(5);
  EXPECT_LT(first, events.path());  // the order in which TensorBoard reads them
  EXPECT_THAT(events.path(), HasSubstr("events.out.tfevents."));
  const auto written = records(events.path());
  ASSERT_EQ(written.size(), 2U);
  // session_log (7) with status (1) START
  EXPECT_EQ(written[1].event(), "\x10\x05\x3A\x02\x08\x01");
  EXPECT_EQ(records(first).size(), 2U);
}

TEST_F(EventFileTest, SaysWhyItCannotBeWritten) {
  try {
    EventFile events("/proc/nowhere");
    ADD_FAILURE() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write TensorBoard's events: No such file"));
  }
}

TEST_F(EventFileTest, CanBeNoneAtAll) {
  EventFile events;
  events.write(1, std::vector<Scalar>{{"loss", 1}});
  EXPECT_EQ(events.path(), "");
}

}  // namespace
}  // namespace dlaunch
