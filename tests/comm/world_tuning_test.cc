// What ranks agree on before they choose algorithms.
#include "runtime/comm/world_tuning.h"

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/temporary_folder.h"
#include "runtime/rendezvous/memory_store.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {
namespace {

using Agreed = Result<std::shared_ptr<const Tuning>>;

// Every rank's result; `file_of(rank)` names its cost model.
template <typename FileOf>
std::vector<Agreed> agree(int world, const FileOf& file_of) {
  MemoryStore store;
  LoopbackNetwork network(world);
  std::vector<Agreed> results(static_cast<std::size_t>(world), Status());
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int rank = 0; rank < world; ++rank) endpoints.push_back(network.endpoint(rank));
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      const Exchange exchange = [&](std::string_view round, const std::string& own,
                                    Deadline deadline) -> Result<std::vector<std::string>> {
        const auto key = [&](int of) { return std::string(round) + std::to_string(of); };
        DLAUNCH_RETURN_IF_ERROR(store.set(key(rank), own));
        std::vector<std::string> keys;
        for (int of = 0; of < world; ++of) keys.push_back(key(of));
        return store.get_all(keys, deadline);
      };
      const auto index = static_cast<std::size_t>(rank);
      results[index] = agree_on_tuning(*endpoints[index], 2, file_of(rank), exchange,
                                       Deadline::after(std::chrono::seconds(20)));
    });
  }
  ranks.clear();
  return results;
}

TEST(WorldTuning, IsTheSameOnAllRanksAndKnowsThatTheyAreOnOneHost) {
  for (const Agreed& agreed : agree(3, [](int) { return std::string(); })) {
    ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
    const Topology& topology = (*agreed)->topology;
    EXPECT_EQ(topology.ranks, 3);
    EXPECT_EQ(topology.host_of_rank, std::vector<int>(3, 0));
    EXPECT_FALSE(topology.shared_memory);  // the loopback network is no shared memory
    EXPECT_GE(topology.cores_per_host, 1);
    EXPECT_DOUBLE_EQ((*agreed)->model.host_message.latency, CostModel().host_message.latency);
  }
}

TEST(WorldTuning, HasTheModelOfRankZeroOnAllRanks) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, double latency) {
    CostModel model;
    model.host_message.latency = latency;
    model.sync = 3 * latency;
    std::string path = folder.path() + "/" + name;
    std::ofstream(path) << to_json(model);
    return path;
  };
  const std::string first = write("first.json", 123e-6);
  const std::string other = write("other.json", 7e-6);
  const auto file_of = [&](int rank) { return rank == 0 ? first : other; };
  for (const Agreed& agreed : agree(3, file_of)) {
    ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
    const CostModel& model = (*agreed)->model;
    EXPECT_NEAR(model.host_message.latency, 123e-6, 1e-12);  // as the file has it: microseconds
    EXPECT_NEAR(model.sync, 369e-6, 1e-12);
    EXPECT_NEAR(model.network_message.latency, CostModel().network_message.latency, 1e-12);
  }
}

TEST(WorldTuning, ReadsTheModelOfRankZeroOnlyAndTellsAllWhyItCannot) {
  const auto missing = [](int rank) { return rank == 0 ? "/no/such/model.json" : ""; };
  for (const Agreed& agreed : agree(3, missing)) {
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(agreed.status().to_string().find("/no/such/model.json"), std::string::npos)
        << agreed.status().to_string();
  }
  const auto elsewhere = [](int rank) { return rank == 0 ? "" : "/no/such/model.json"; };
  for (const Agreed& agreed : agree(3, elsewhere)) EXPECT_TRUE(agreed.ok());
}

}  // namespace
}  // namespace dlaunch::testing
